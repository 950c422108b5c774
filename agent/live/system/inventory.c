/* agent/live/system/inventory.c: reads the running processes, threads and mappings from /proc. */
#include "agent/live/system/inventory.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/errand.h"
#include "agent/live/system/feature.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/source/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Passes through /proc. Numbers of processes wrap around, so a new child may get a number that was
 * passed already.
 */
#define PASSES_MAX 3
#define PID_MAX	   (4u << 20) /* PID_MAX_LIMIT of the kernel */

/*
 * The first FIRST_MAPPINGS mappings of each process are read, as far as that takes FIRST_NS. The few
 * processes with more share REST_NS for the rest. A process can have 65,530 mappings
 * (vm.max_map_count), and a hundred children with as many each; reading all of them takes a minute
 * and gigabytes. One mapping takes about 7 us; it takes 0.15 s if the process forks meanwhile,
 * because fork holds the lock of all its mappings.
 */
#define FIRST_MAPPINGS 256u
#define FIRST_NS       UINT64_C(50000000)
#define REST_NS	       UINT64_C(200000000)
/*
 * A process that is not read within this time keeps its reader waiting (opener_errand). Of a machine that is only busy
 * the mappings must not be lost, for they are not read again.
 */
#define WAIT_NS UINT64_C(500000000)

/* include/uapi/linux/fs.h, struct procmap_query. Many systems have headers older than it. */
struct procmap_query {
	uint64_t size;
	uint64_t query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset;
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint32_t vma_name_size, build_id_size; /* in: room; out: length, the name's with its NUL */
	uint64_t vma_name_addr, build_id_addr;
};
_Static_assert(sizeof(struct procmap_query) == 104, "as the kernel has it");
#define QUERY_PROCMAP	   _IOWR('f', 17, struct procmap_query)
#define QUERY_READABLE	   0x01u
#define QUERY_WRITABLE	   0x02u
#define QUERY_EXECUTABLE   0x04u
#define QUERY_THIS_OR_NEXT 0x10u

/* A process whose mappings were not all read. Those that were not read start at from or above. */
struct rest {
	uint32_t pid;
	uint64_t from, time_ns;
};

struct inventory {
	live_event_fn fn;
	void *ctx;
	uint8_t *seen; /* one bit per pid */
	bool (*wanted)(const void *ctx, uint32_t pid);
	const void *wanted_ctx;
	bool any_new;
	struct rest *rests;
	size_t n_rests, room_rests;
};

/* Parse a pid or tid. Return false if name is not a number below PID_MAX. */
static bool number(const char *name, uint32_t *out)
{
	char *end;
	unsigned long value = strtoul(name, &end, 10);

	if (name[0] < '0' || name[0] > '9' || *end || value >= PID_MAX)
		return false;
	*out = (uint32_t)value;
	return true;
}

/* Open /proc/PID. Return the descriptor, or -1 if the process is gone. */
static int open_process(uint32_t pid)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32, pid);
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* ---- mappings ------------------------------------------------------------------- */

/*
 * Ask the kernel for the build-id of a mapping, and check that the mapping is still the same. For
 * this the kernel reads the file, and waits for the file system.
 */
static void query_build_id(int fd, const struct procmap_query *reported, struct uw_build_id *out)
{
	struct procmap_query q = {
		.size = sizeof(q),
		.query_flags = QUERY_EXECUTABLE,
		.query_addr = reported->vma_start,
		.build_id_size = sizeof(out->bytes),
		.build_id_addr = (uintptr_t)out->bytes,
	};

	if (!ioctl(fd, QUERY_PROCMAP, &q) && q.build_id_size <= sizeof(out->bytes) &&
	    q.inode == reported->inode && q.dev_major == reported->dev_major &&
	    q.dev_minor == reported->dev_minor && q.vma_offset == reported->vma_offset)
		out->size = (uint8_t)q.build_id_size;
}

/* The mappings of a process as far as they are read at once: by a thread, which may wait for the process for ever. */
struct batch {
	uint32_t pid;
	int process; /* its directory in /proc */
	uint64_t from;
	uint64_t until_ns;		/* none is read after this time */
	int err;			/* as of read_batch */
	struct event_mapping *mappings; /* with their paths */
	size_t n, room;
	char path[PATH_MAX + 32]; /* of a mapping; with room for " (deleted)" */
};

/* Add a mapping. Return -E2BIG if no more mappings may be added, or -ENOMEM. */
static int add_mapping(struct batch *b, const struct event_mapping *mapping)
{
	char *path = strdup(mapping->path);

	if (!path || array_grow(b->mappings, b->n, b->room)) {
		free(path);
		return -ENOMEM;
	}
	b->mappings[b->n] = *mapping;
	b->mappings[b->n++].path = path;
	return b->n == FIRST_MAPPINGS || now_ns() > b->until_ns ? -E2BIG : 0;
}

/*
 * Add the mappings from b->from on, by PROCMAP_QUERY. Return 0 when all were added, -ENOTTY
 * before 6.11, another error of the query, or as add_mapping.
 */
static int query_mappings(struct batch *b, int fd)
{
	uint64_t addr = b->from;
	struct procmap_query q;
	int err;

	for (;;) {
		struct event_mapping m = { .path = b->path };

		q = (struct procmap_query){
			.size = sizeof(q),
			.query_flags = QUERY_EXECUTABLE | QUERY_THIS_OR_NEXT,
			.query_addr = addr,
			.vma_name_size = sizeof(b->path),
			.vma_name_addr = (uintptr_t)b->path,
		};
		b->path[0] = '\0';
		if (ioctl(fd, QUERY_PROCMAP, &q)) {
			/* ENOENT: there is no further mapping; ESRCH: the process has ended. */
			return errno == ENOENT || errno == ESRCH ? 0 : -errno;
		}
		if (q.vma_end <= addr)
			return -EBADMSG;
		m.start = q.vma_start;
		m.end = addr = q.vma_end;
		m.off = q.vma_offset;
		m.prot = (q.vma_flags & QUERY_READABLE ? PROT_READ : 0u) |
			 (q.vma_flags & QUERY_WRITABLE ? PROT_WRITE : 0u) |
			 (q.vma_flags & QUERY_EXECUTABLE ? PROT_EXEC : 0u);
		m.major = q.dev_major;
		m.minor = q.dev_minor;
		m.inode = q.inode;
		if (q.inode && !opener_device_is_fuse(b->pid, q.dev_major, q.dev_minor))
			query_build_id(fd, &q, &m.build_id);
		if (!q.vma_name_size)
			b->path[0] = '\0';
		procfs_set_path(&m, b->path);
		err = add_mapping(b, &m);
		if (err)
			return err;
	}
}

/* Add the mappings that start at from or above, by reading /proc/PID/maps. Return as add_mapping. */
static int read_mappings(struct batch *b, int fd, uint64_t from)
{
	FILE *file = fdopen(dup(fd), "r");
	struct event_mapping m;
	char *line = NULL;
	size_t room = 0;
	int err = 0;

	if (!file)
		return -errno;
	while (!err && getline(&line, &room, file) > 0)
		if (!procfs_maps_line(line, &m) && m.prot & PROT_EXEC && m.start >= from)
			err = add_mapping(b, &m);
	free(line);
	(void)fclose(file);
	return err;
}

/*
 * Add the mappings that a file in the process's directory lists: "maps". Return 0 if there are no more, or the process is
 * ending; -E2BIG if there may be more; or -ENOMEM.
 */
static int read_file(struct batch *b, const char *name)
{
	int fd = openat(b->process, name, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return 0;
	err = live_bpf_without("procmap_query") ? -ENOTTY : query_mappings(b, fd);
	if (err == -ENOTTY || err == -EINVAL || err == -ENAMETOOLONG)
		err = read_mappings(b, fd, b->n ? b->mappings[b->n - 1].end : b->from);
	(void)close(fd);
	return err == -ENOMEM || err == -E2BIG ? err : 0;
}

/* The main thread may have ended before others: then only these have the process's memory. Return as read_file. */
static int read_threads(struct batch *b)
{
	int fd = openat(b->process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;
	DIR *threads = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	uint32_t tid;

	while (threads && !err && !b->n && (entry = readdir(threads))) {
		char name[48];

		if (!number(entry->d_name, &tid) || tid == b->pid)
			continue;
		(void)snprintf(name, sizeof(name), "task/%" PRIu32 "/maps", tid);
		err = read_file(b, name);
	}
	if (threads)
		(void)closedir(threads);
	else if (fd >= 0)
		(void)close(fd);
	return err;
}

/* errand.run: read up to FIRST_MAPPINGS mappings from address from on, for about FIRST_NS. err is as of read_file. */
static void read_batch(void *ctx)
{
	struct batch *b = ctx;
	struct stat st;

	b->until_ns = now_ns() + FIRST_NS;
	b->err = read_file(b, "maps");
	/* A directory has a link from each one in it, and two more. */
	if (!b->err && !b->n && !fstatat(b->process, "task", &st, 0) && st.st_nlink > 3)
		b->err = read_threads(b);
}

/* errand.drop */
static void end_batch(void *ctx)
{
	struct batch *b = ctx;

	for (size_t i = 0; i < b->n; i++)
		free((char *)(uintptr_t)b->mappings[i].path);
	free(b->mappings);
	if (b->process >= 0)
		(void)close(b->process);
	free(b);
}

/* Report the mappings that were read. Return fn's result, or b->err. */
static int tell_batch(struct inventory *inv, const struct batch *b, uint64_t time_ns,
		      uint64_t *from)
{
	struct event event = {
		.type = EVENT_MAPPING, .pid = b->pid, .tid = b->pid, .time_ns = time_ns
	};
	int err = 0;

	for (size_t i = 0; !err && i < b->n; i++) {
		event.mapping = b->mappings[i];
		*from = event.mapping.end;
		err = inv->fn(inv->ctx, &event);
		/* To look up their files takes time, too. */
		if (!err && i + 1 < b->n && now_ns() > b->until_ns)
			err = -E2BIG;
	}
	return err ? err : b->err;
}

/*
 * Report up to FIRST_MAPPINGS mappings of a process from address *from on, for about FIRST_NS. Return
 * 0 if there are no more, or the process is ending; -E2BIG if there may be more, which start at *from
 * or above; -EBUSY if the process keeps its reader waiting; -ENOMEM, or another result of fn.
 */
static int tell_mappings(struct inventory *inv, int process, uint32_t pid, uint64_t time_ns,
			 uint64_t *from)
{
	struct batch *b = calloc(1, sizeof(*b));
	int err;

	if (!b)
		return -ENOMEM;
	b->pid = pid;
	b->from = *from;
	b->process = fcntl(process, F_DUPFD_CLOEXEC, 0);
	err = opener_errand(process,
			    &(struct errand){ .run = read_batch, .drop = end_batch, .ctx = b },
			    WAIT_NS);
	if (err == -ETIMEDOUT) /* b is the thread's */
		return -EBUSY;
	if (!err)
		err = tell_batch(inv, b, time_ns, from);
	else if (err != -EBUSY && err != -ENOMEM)
		err = 0; /* the process has ended */
	end_batch(b);
	return err;
}

/* Report the remaining mappings of the processes whose mappings were not all read, as long as REST_NS lasts. */
static int tell_rests(struct inventory *inv)
{
	uint64_t end = now_ns() + REST_NS;
	size_t left = inv->n_rests;
	int err = 0;

	for (bool more = true; more && !err && now_ns() < end;) {
		more = false;
		/* Take turns, so that one process does not use all the time. */
		for (size_t i = 0; i < inv->n_rests && !err && now_ns() < end; i++) {
			struct rest *rest = &inv->rests[i];
			int process;

			if (!rest->pid)
				continue;
			process = open_process(rest->pid);
			if (process >= 0) {
				err = tell_mappings(inv, process, rest->pid, rest->time_ns,
						    &rest->from);
				(void)close(process);
			}
			if (process >= 0 && err == -E2BIG) {
				more = true;
			} else {
				left -= process < 0 || err != -EBUSY;
				rest->pid = 0;
			}
			if (err == -E2BIG || err == -EBUSY)
				err = 0;
		}
	}
	if (!err && left)
		log_warning("of %zu processes not all executable mappings were read, as they are "
			    "too many, or the process keeps who reads them waiting; stacks that "
			    "reach the others stop with no_mapping",
			    left);
	return err;
}

bool live_procmap_query(void)
{
	struct procmap_query q = { .size = sizeof(q), .query_flags = QUERY_THIS_OR_NEXT };
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	bool works;

	if (fd < 0)
		return false;
	if (live_bpf_without("procmap_query")) {
		(void)close(fd);
		return false;
	}
	works = !ioctl(fd, QUERY_PROCMAP, &q);
	(void)close(fd);
	return works;
}

/* ---- processes and threads ------------------------------------------------------------ */

/*
 * Read a thread's name. Names have at most TASK_COMM_LEN bytes, those of kernel threads up to 64.
 */
static bool read_comm(int dir, const char *path, char comm[64])
{
	int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, comm, 63);
	(void)close(fd);
	if (n <= 0)
		return false;
	comm[comm[n - 1] == '\n' ? n - 1 : n] = '\0';
	return true;
}

/* Report a thread (not the first thread of its process) and its name. */
static int tell_thread(struct inventory *inv, int tasks, uint32_t pid, uint32_t tid,
		       uint64_t time_ns)
{
	struct event event = { .type = EVENT_FORK, .pid = pid, .tid = tid, .time_ns = time_ns };
	char path[32], comm[64];
	int err = 0;

	if (tid != pid) {
		event.fork = (struct event_fork){ .parent_pid = pid, .parent_tid = pid };
		err = inv->fn(inv->ctx, &event);
	}
	(void)snprintf(path, sizeof(path), "%" PRIu32 "/comm", tid);
	if (err || !read_comm(tasks, path, comm))
		return err;
	event.type = EVENT_COMM;
	event.comm.comm = comm;
	return inv->fn(inv->ctx, &event);
}

/* Report all threads of a process. */
static int tell_threads(struct inventory *inv, int process, uint32_t pid, uint64_t time_ns)
{
	int fd = openat(process, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	uint32_t tid;

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return 0;
	}
	while (!err && (entry = readdir(dir)))
		if (number(entry->d_name, &tid))
			err = tell_thread(inv, fd, pid, tid, time_ns);
	(void)closedir(dir);
	return err;
}

/* Store a process whose mappings were not all read, for tell_rests. */
static int note_rest(struct inventory *inv, const struct rest *rest)
{
	int err = array_grow(inv->rests, inv->n_rests, inv->room_rests);

	if (!err)
		inv->rests[inv->n_rests++] = *rest;
	return err;
}

/* Callback of live_processes: report a process that was not reported yet. */
static int tell_process(void *ctx, uint32_t pid)
{
	struct inventory *inv = ctx;
	struct event event = { .type = EVENT_FORK, .pid = pid, .tid = pid, .time_ns = now_ns() };
	int process, err;

	if (inv->seen[pid / 8] & 1u << pid % 8 ||
	    (inv->wanted && !inv->wanted(inv->wanted_ctx, pid)))
		return 0;
	process = open_process(pid);
	if (process < 0)
		return 0; /* the process has ended */
	inv->seen[pid / 8] |= (uint8_t)(1u << pid % 8);
	inv->any_new = true;
	err = inv->fn(inv->ctx, &event);
	if (!err)
		err = tell_threads(inv, process, pid, event.time_ns);
	if (!err) {
		struct rest rest = { .pid = pid, .time_ns = event.time_ns };

		err = tell_mappings(inv, process, pid, event.time_ns, &rest.from);
		if (err == -E2BIG || err == -EBUSY)
			err = note_rest(inv, &rest);
	}
	(void)close(process);
	return err;
}

int live_processes(live_pid_fn fn, void *ctx)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	uint32_t pid;
	int err = 0;

	if (!dir)
		return -errno;
	while (!err && (entry = readdir(dir)))
		if (number(entry->d_name, &pid))
			err = fn(ctx, pid);
	(void)closedir(dir);
	return err;
}

/*
 * Repeat until a pass finds no new process, because processes begin while /proc is read. Then read
 * the mappings that were left out of large processes.
 */
int live_inventory(bool (*wanted)(const void *ctx, uint32_t pid), const void *wanted_ctx,
		   live_event_fn fn, void *ctx)
{
	struct inventory *inv = calloc(1, sizeof(*inv));
	int err = -ENOMEM;

	if (!inv)
		return err;
	*inv = (struct inventory){
		.fn = fn, .ctx = ctx, .wanted = wanted, .wanted_ctx = wanted_ctx
	};
	inv->seen = calloc(PID_MAX / 8, 1);
	if (!inv->seen)
		goto out;
	for (int pass = 0; pass < PASSES_MAX; pass++) {
		inv->any_new = false;
		err = live_processes(tell_process, inv);
		if (err || !inv->any_new)
			break;
	}
	if (!err)
		err = tell_rests(inv);
out:
	free(inv->rests);
	free(inv->seen);
	free(inv);
	return err;
}

/*
 * agent/live/perf.c: reads lists of CPUs, and the kernel's side-band from perf's ring
 * buffers.
 */
#include "agent/live/perf.h"

#include "agent/live/feature.h"
#include "agent/live/hint.h"
#include "agent/live/mark.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING_BYTES (1u << 20) /* of one CPU; halved if the kernel refuses */
#define RING_LEAST (64u << 10)
#define CPUS_MAX   65536
#define ONLINE	   "/sys/devices/system/cpu/online"

int live_perf_open(const struct perf_event_attr *attr, int cpu)
{
	long fd = syscall(SYS_perf_event_open, attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

/* ---- CPUs ----------------------------------------------------------------------- */

int live_cpus_parse(const char *list, int **cpus, size_t *n_cpus)
{
	int *out = NULL;
	size_t n = 0;

	while (*list && *list != '\n') {
		char *end;
		long first = strtol(list, &end, 10), last = first;

		if (end == list || first < 0 || first >= CPUS_MAX)
			goto bad;
		if (*end == '-') {
			list = end + 1;
			last = strtol(list, &end, 10);
			if (end == list || last < first || last >= CPUS_MAX)
				goto bad;
		}
		if (*end == ',')
			end++;
		else if (*end && *end != '\n')
			goto bad;
		list = end;
		for (long cpu = first; cpu <= last; cpu++) {
			int *bigger = n < CPUS_MAX ? reallocarray(out, n + 1, sizeof(*out)) : NULL;

			if (!bigger) {
				free(out);
				return -ENOMEM;
			}
			out = bigger;
			out[n++] = (int)cpu;
		}
	}
	if (!n)
		goto bad;
	*cpus = out;
	*n_cpus = n;
	return 0;
bad:
	free(out);
	return -EBADMSG;
}

/*
 * Read a list of CPUs from a file. *fd is the file's descriptor, or -1 to open path; it stays open.
 */
static int read_cpus(const char *path, int *fd, int **cpus, size_t *n_cpus)
{
	char list[4096];
	ssize_t n;

	if (*fd < 0)
		*fd = open(path, O_RDONLY | O_CLOEXEC);
	n = *fd < 0 ? -1 : pread(*fd, list, sizeof(list) - 1, 0);
	if (n < 0)
		return -errno;
	list[n] = '\0';
	return live_cpus_parse(list, cpus, n_cpus);
}

/* As read_cpus, and close the file. */
static int read_cpus_once(const char *path, int **cpus, size_t *n_cpus)
{
	int fd = -1, err = read_cpus(path, &fd, cpus, n_cpus);

	if (fd >= 0)
		(void)close(fd);
	return err;
}

int live_cpus_online(int **cpus, size_t *n_cpus)
{
	return read_cpus_once(ONLINE, cpus, n_cpus);
}

int live_cpus_online_now(int *fd, int **cpus, size_t *n_cpus)
{
	return read_cpus(ONLINE, fd, cpus, n_cpus);
}

int live_cpus_present(int **cpus, size_t *n_cpus)
{
	return read_cpus_once("/sys/devices/system/cpu/present", cpus, n_cpus);
}

/* ---- the side-band ------------------------------------------------------------------ */

struct sideband_ring {
	int cpu;
	int fd;	     /* reports everything; mappings with build-ids */
	int file_fd; /* reports mappings with inode and generation, to the same ring; -1: none */
	uint64_t file_id;		   /* of file_fd, as in its records */
	struct perf_event_mmap_page *page; /* followed by size bytes of records */
	uint64_t head;			   /* the end of what is being read */
	struct live_file file;		   /* of the last mapping record of file_id */
};

struct live_sideband {
	struct sideband_ring *rings;
	size_t n_rings;
	size_t page_size, size;
	bool build_ids, prompt;
	/* The size field of a record has 16 bits. Aligned, because records are decoded in place. */
	_Alignas(8) uint8_t record[UINT16_MAX + 1];
};

/* Return the attributes of a side-band event, with build-ids or with inodes in mapping records. */
static struct perf_event_attr sideband_attr(const struct live_sideband *s, bool build_ids)
{
	return (struct perf_event_attr){
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(struct perf_event_attr),
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type =
			PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID | PERF_SAMPLE_CPU,
		.sample_id_all = 1,
		.mmap = 1, /* executable mappings only */
		.mmap2 = 1,
		.build_id = build_ids,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.watermark = 1,
		.wakeup_watermark = s->prompt ? 1 : (uint32_t)s->size / 2,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC, /* as bpf_ktime_get_ns */
	};
}

/*
 * A mapping record has either the build-id or the inode. Open a second event, to the same ring,
 * which reports the inodes. Without that event, mappings have build-ids only.
 */
static void open_files(struct live_sideband *s, struct sideband_ring *ring)
{
	struct perf_event_attr attr = sideband_attr(s, false);
	int fd;

	if (!s->build_ids)
		return;
	attr.comm = attr.comm_exec = attr.task = 0;
	fd = live_perf_open(&attr, ring->cpu);
	if (fd < 0)
		return;
	if (ioctl(fd, PERF_EVENT_IOC_ID, &ring->file_id) ||
	    ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring->fd)) {
		(void)close(fd);
		return;
	}
	ring->file_fd = fd;
}

/*
 * Open the side-band ring of one CPU. Fall back to records without build-ids, and to smaller rings,
 * if the kernel requires it. -ENODEV: the CPU is offline.
 */
static int open_ring(struct live_sideband *s, int cpu, struct sideband_ring *ring)
{
	for (;;) {
		struct perf_event_attr attr = sideband_attr(s, s->build_ids);
		int fd = live_perf_open(&attr, cpu), err;
		void *page;

		if (fd == -EINVAL && s->build_ids) { /* before 5.12 */
			s->build_ids = false;
			continue;
		}
		if (fd < 0)
			return fd;
		page = mmap(NULL, s->page_size + s->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			    0);
		if (page != MAP_FAILED) {
			*ring = (struct sideband_ring){
				.cpu = cpu, .fd = fd, .file_fd = -1, .page = page
			};
			open_files(s, ring);
			return 0;
		}
		err = -errno;
		(void)close(fd);
		if (err != -EPERM && err != -ENOMEM)
			return err;
		/* The limit of locked memory is exceeded, for which perf returns EPERM. */
		if (s->n_rings || s->size <= RING_LEAST)
			return -ENOMEM;
		s->size /= 2;
	}
}

static void close_ring(const struct live_sideband *s, const struct sideband_ring *ring)
{
	if (ring->file_fd >= 0)
		(void)close(ring->file_fd);
	(void)munmap(ring->page, s->page_size + s->size);
	(void)close(ring->fd);
}

static bool is_among(const int *cpus, size_t n, int cpu)
{
	for (size_t i = 0; i < n; i++)
		if (cpus[i] == cpu)
			return true;
	return false;
}

static bool has_ring(const struct live_sideband *s, int cpu)
{
	for (size_t i = 0; i < s->n_rings; i++)
		if (s->rings[i].cpu == cpu)
			return true;
	return false;
}

int live_sideband_set_cpus(struct live_sideband *s, const int *cpus, size_t n)
{
	struct sideband_ring *bigger;
	size_t kept = 0;

	for (size_t i = 0; i < s->n_rings; i++) {
		if (is_among(cpus, n, s->rings[i].cpu))
			s->rings[kept++] = s->rings[i];
		else
			close_ring(s, &s->rings[i]);
	}
	s->n_rings = kept;
	bigger = reallocarray(s->rings, kept + n, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	s->rings = bigger;
	for (size_t i = 0; i < n; i++) {
		int err = has_ring(s, cpus[i]) ? -ENODEV
					       : open_ring(s, cpus[i], &s->rings[s->n_rings]);

		if (err == -ENODEV) /* or the CPU has gone offline since the list was read */
			continue;
		if (err)
			return err;
		s->n_rings++;
	}
	return s->n_rings ? 0 : -ENODEV;
}

int live_sideband_open(bool prompt, struct live_sideband **out, char *error)
{
	struct live_sideband *s = calloc(1, sizeof(*s));
	int *cpus = NULL, err = -ENOMEM;
	size_t n_cpus = 0;

	if (!s)
		goto out;
	s->page_size = (size_t)sysconf(_SC_PAGESIZE);
	s->size = RING_BYTES;
	s->prompt = prompt;
	s->build_ids = !live_bpf_without("mmap_build_id") && live_mark_build_ids_are_safe();
	err = live_cpus_online(&cpus, &n_cpus);
	if (!err)
		err = live_sideband_set_cpus(s, cpus, n_cpus);
out:
	free(cpus);
	if (err) {
		live_sideband_free(s);
		(void)snprintf(error, LIVE_ERROR_SIZE,
			       "perf events that tell of mappings and processes: %s%s",
			       strerror(-err), live_hint(err));
		return err;
	}
	*out = s;
	return 0;
}

void live_sideband_free(struct live_sideband *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_rings; i++)
		close_ring(s, &s->rings[i]);
	free(s->rings);
	free(s);
}

bool live_sideband_build_ids(const struct live_sideband *s)
{
	return s->build_ids;
}

size_t live_sideband_n_fds(const struct live_sideband *s)
{
	return s->n_rings;
}

int live_sideband_fd(const struct live_sideband *s, size_t i)
{
	return s->rings[i].fd;
}

/* include/uapi/linux/perf_event.h, enum perf_event_type */
struct task_record { /* PERF_RECORD_FORK, PERF_RECORD_EXIT */
	struct perf_event_header header;
	uint32_t pid, ppid, tid, ptid;
	uint64_t time_ns;
};

/* Copy n bytes from position pos of a ring. They may wrap around the ring's end. */
static void copy_out(const struct live_sideband *s, const struct sideband_ring *ring, uint64_t pos,
		     void *out, size_t n)
{
	const uint8_t *data = (const uint8_t *)ring->page + s->page_size;
	size_t at = (size_t)(pos & (s->size - 1)), first = s->size - at < n ? s->size - at : n;

	memcpy(out, data + at, first);
	memcpy((uint8_t *)out + first, data, n - first);
}

/* Return the position up to which the kernel has written. The bytes before it may be read then. */
static uint64_t head_of(const struct sideband_ring *ring)
{
	return __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
}

/* Read the header of the record at tail. Return false if there is no record before head. */
static bool next_header(const struct live_sideband *s, const struct sideband_ring *ring,
			uint64_t tail, uint64_t head, struct perf_event_header *header)
{
	if (head - tail < sizeof(*header))
		return false;
	copy_out(s, ring, tail, header, sizeof(*header));
	/*
	 * The test never fails for records of the kernel; it keeps a damaged ring from causing
	 * harm.
	 */
	return header->size >= sizeof(*header) && header->size <= head - tail;
}

/* Pass all births in a ring to forks, without consuming the records. */
static void tell_forks(const struct live_sideband *s, const struct sideband_ring *ring,
		       live_fork_fn forks, void *ctx)
{
	uint64_t head = head_of(ring), tail = ring->page->data_tail;
	struct perf_event_header header;
	struct task_record fork;

	for (; next_header(s, ring, tail, head, &header); tail += header.size) {
		if (header.type != PERF_RECORD_FORK || header.size < sizeof(fork))
			continue;
		copy_out(s, ring, tail, &fork, sizeof(fork));
		if (fork.pid != fork.ppid)
			forks(ctx, fork.pid, fork.ppid);
	}
}

static int hand_over(struct sideband_ring *ring, struct perf_event_header *record,
		     live_record_fn fn, void *ctx);

int live_sideband_drain(struct live_sideband *s, live_fork_fn forks, live_record_fn fn, void *ctx)
{
	/*
	 * Read all heads first. For each record before these heads, the birth of its process came
	 * earlier, so the birth is in some ring when the rings are searched for births.
	 */
	for (size_t i = 0; i < s->n_rings; i++)
		s->rings[i].head = head_of(&s->rings[i]);
	for (size_t i = 0; forks && i < s->n_rings; i++)
		tell_forks(s, &s->rings[i], forks, ctx);
	for (size_t i = 0; i < s->n_rings; i++) {
		struct sideband_ring *ring = &s->rings[i];
		uint64_t tail = ring->page->data_tail;
		struct perf_event_header header;
		int err = 0;

		while (!err && next_header(s, ring, tail, ring->head, &header)) {
			copy_out(s, ring, tail, s->record, header.size);
			tail += header.size;
			/*
			 * If any listener asked for build-ids, Linux sets this flag in the records
			 * of all listeners.
			 */
			if (!s->build_ids)
				((struct perf_event_header *)(void *)s->record)->misc &=
					(uint16_t)~PERF_RECORD_MISC_MMAP_BUILD_ID;
			err = hand_over(ring, (void *)s->record, fn, ctx);
		}
		if (!err) /* the rest after a record with a bad size is skipped */
			tail = ring->head;
		__atomic_store_n(&ring->page->data_tail, tail, __ATOMIC_RELEASE);
		if (err)
			return err;
	}
	return 0;
}

/* ---- decoding ------------------------------------------------------------------------ */

/* At the end of each record, because of sample_id_all. sample_type selects the fields. */
struct sample_id {
	uint32_t pid, tid;
	uint64_t time_ns;
	uint64_t id; /* of the event that wrote the record */
	uint32_t cpu, reserved;
};

struct comm_record { /* followed by the name */
	struct perf_event_header header;
	uint32_t pid, tid;
};

struct mmap2_record { /* followed by the path */
	struct perf_event_header header;
	uint32_t pid, tid;
	uint64_t addr, len, pgoff;
	union {
		struct {
			uint32_t maj, min;
			uint64_t ino, ino_generation;
		};
		struct { /* if PERF_RECORD_MISC_MMAP_BUILD_ID is set */
			uint8_t build_id_size, reserved[3];
			uint8_t build_id[20];
		};
	};
	uint32_t prot, flags;
};

struct lost_record {
	struct perf_event_header header;
	uint64_t id, lost;
};

_Static_assert(sizeof(struct sample_id) == 32, "as the kernel writes it");
_Static_assert(sizeof(struct task_record) == 32, "as the kernel writes it");
_Static_assert(sizeof(struct comm_record) == 16, "as the kernel writes it");
_Static_assert(sizeof(struct mmap2_record) == 72, "as the kernel writes it");
_Static_assert(sizeof(struct lost_record) == 24, "as the kernel writes it");

/*
 * Return the string after a record's fixed part, or NULL if the string does not end before the
 * sample_id.
 */
static char *text_of(struct perf_event_header *record, size_t fixed)
{
	char *text = (char *)record + fixed;
	size_t room = record->size - fixed - sizeof(struct sample_id);

	return memchr(text, '\0', room) ? text : NULL;
}

/* Return the size of a record's fixed part; 0 for types that are not decoded. */
static size_t fixed_size(uint32_t type)
{
	switch (type) {
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		return sizeof(struct task_record);
	case PERF_RECORD_COMM:
		return sizeof(struct comm_record);
	case PERF_RECORD_MMAP2:
		return sizeof(struct mmap2_record);
	case PERF_RECORD_LOST:
		return sizeof(struct lost_record);
	default:
		return 0;
	}
}

/*
 * Pass a record to fn, a mapping together with its file. The kernel reports a mapping first to the
 * event that was opened last, and to all events of a CPU without interruption. So the record with
 * the inode comes directly before the record with the build-id.
 */
static int hand_over(struct sideband_ring *ring, struct perf_event_header *record,
		     live_record_fn fn, void *ctx)
{
	const struct mmap2_record *r = (const void *)record;
	const struct live_file *file = NULL;
	bool mapping = record->type == PERF_RECORD_MMAP2;
	struct sample_id id = { 0 };

	if (record->size >= sizeof(*record) + sizeof(id))
		memcpy(&id, (const uint8_t *)record + record->size - sizeof(id), sizeof(id));
	mapping = mapping && record->size >= sizeof(*r) + sizeof(id);
	/* Lost records are reported by whichever event next finds room in the ring. */
	if (ring->file_fd >= 0 && id.id == ring->file_id && record->type != PERF_RECORD_LOST) {
		/*
		 * This event did not ask for forks and exits, but gets them. Drop them, because the
		 * other event reports them, too.
		 */
		if (!mapping)
			return 0;
		/* The flag for build-ids may be set, but applies to the other event. */
		ring->file = (struct live_file){ .pid = r->pid,
						 .start = r->addr,
						 .size = r->len,
						 .major = r->maj,
						 .minor = r->min,
						 .inode = r->ino,
						 .generation = r->ino_generation };
		return 0;
	}
	if (mapping && ring->file.pid == r->pid && ring->file.start == r->addr &&
	    ring->file.size == r->len)
		file = &ring->file;
	return fn(ctx, record, file);
}

/* Decode a mapping record. Return false if it is not sound. */
static bool decode_mapping(struct perf_event_header *record, const struct live_file *file,
			   struct event *event)
{
	const struct mmap2_record *r = (const void *)record;
	struct event_mapping *m = &event->mapping;
	char *path = text_of(record, sizeof(*r));
	size_t length;

	if (!path || !r->len || r->len > UINT64_MAX - r->addr)
		return false;
	event->type = EVENT_MAPPING;
	event->pid = r->pid;
	event->tid = r->tid;
	*m = (struct event_mapping){ .start = r->addr,
				     .end = r->addr + r->len,
				     .off = r->pgoff,
				     .prot = r->prot,
				     .path = path };
	if (record->misc & PERF_RECORD_MISC_MMAP_BUILD_ID) {
		if (r->build_id_size <= sizeof(r->build_id)) {
			m->build_id.size = r->build_id_size;
			memcpy(m->build_id.bytes, r->build_id, r->build_id_size);
		}
		if (file) {
			m->major = file->major;
			m->minor = file->minor;
			m->inode = file->inode;
			m->inode_generation = file->generation;
		}
	} else {
		m->major = r->maj;
		m->minor = r->min;
		m->inode = r->ino;
		m->inode_generation = r->ino_generation;
	}
	length = strlen(path);
	if (length > 10 && !strcmp(path + length - 10, " (deleted)")) {
		path[length - 10] = '\0';
		m->deleted = true;
	}
	return true;
}

bool live_sideband_pid(const struct perf_event_header *record, uint32_t *pid)
{
	if ((record->type != PERF_RECORD_MMAP2 && record->type != PERF_RECORD_COMM) ||
	    record->size < sizeof(struct comm_record))
		return false;
	/* pid is at the same place in both records. */
	*pid = ((const struct comm_record *)(const void *)record)->pid;
	return true;
}

size_t live_sideband_decode(struct perf_event_header *record, const struct live_file *file,
			    struct event events[LIVE_DECODE_MAX])
{
	size_t fixed = fixed_size(record->type), n = 0;
	const struct task_record *task = (const void *)record;
	const struct comm_record *comm = (const void *)record;
	const struct lost_record *lost = (const void *)record;
	struct sample_id id;
	const char *name;

	if (!fixed || record->size < fixed + sizeof(id))
		return 0;
	memcpy(&id, (const uint8_t *)record + record->size - sizeof(id), sizeof(id));
	events[0] = events[1] = (struct event){ .time_ns = id.time_ns };
	switch (record->type) {
	case PERF_RECORD_FORK:
		events[n].type = EVENT_FORK;
		events[n].pid = task->pid;
		events[n].tid = task->tid;
		events[n++].fork =
			(struct event_fork){ .parent_pid = task->ppid, .parent_tid = task->ptid };
		break;
	case PERF_RECORD_EXIT:
		events[n].type = EVENT_EXIT;
		events[n].pid = task->pid;
		events[n++].tid = task->tid;
		break;
	case PERF_RECORD_COMM:
		name = text_of(record, sizeof(*comm));
		if (!name)
			return 0;
		if (record->misc & PERF_RECORD_MISC_COMM_EXEC) {
			events[n].type = EVENT_EXEC;
			events[n].pid = comm->pid;
			events[n++].tid = comm->tid;
		}
		events[n].type = EVENT_COMM;
		events[n].pid = comm->pid;
		events[n].tid = comm->tid;
		events[n++].comm.comm = name;
		break;
	case PERF_RECORD_MMAP2:
		n = decode_mapping(record, file, &events[0]);
		break;
	case PERF_RECORD_LOST:
		events[n].type = EVENT_LOST;
		events[n++].lost = (struct event_lost){ .reason = EVENT_LOST_RING_FULL,
							.n_sideband = lost->lost };
		break;
	default:
		break;
	}
	return n;
}

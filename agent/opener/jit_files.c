/* agent/opener/jit_files.c: opens files in which processes describe the code that they generate. */
#include "agent/clock.h"
#include "agent/opener/places.h"
#include "agent/opener/request.h"
#include "agent/opener/user.h"
#include "agent/source/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Return the process's pid as the process sees it, in the innermost of its namespaces. */
static uint32_t own_pid(const struct opener *opener, uint32_t pid)
{
	char path[48], line[256];
	uint32_t found = pid;
	FILE *status;

	(void)snprintf(path, sizeof(path), "/proc/%u/status", pid);
	status = opener->live ? fopen(path, "re") : NULL;
	while (status && fgets(line, sizeof(line), status)) {
		const char *last = strrchr(line, '\t');

		if (!strncmp(line, "NSpid:", 6) && last)
			(void)sscanf(last, "%u", &found);
	}
	if (status)
		(void)fclose(status);
	return found;
}

/* The largest perf map that is read: names of some millions of functions. */
#define PERF_MAP_MAX ((off_t)256 << 20)

/*
 * Check that only owner or root can have created an open file; with own, also this user. A file
 * with a second name may be another user's file, linked to this place (fs.protected_hardlinks may
 * be off).
 */
static int check_owner(int fd, uid_t owner, bool own, off_t max)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_nlink != 1)
		return -EINVAL;
	if (st.st_uid && st.st_uid != owner && !(own && st.st_uid == geteuid()))
		return -EACCES;
	return max && st.st_size > max ? -EFBIG : 0;
}

/*
 * Open a file that describes generated code, below root. max: size limit in bytes, 0: none. With a
 * limit, only the last component of the path must not be a link; without one, no component.
 */
static int open_it(int root, const char *path, const struct opener_user *user, off_t max, int *fd)
{
	enum place_links links = max ? NO_LINK_LAST : NO_LINKS;
	int opened, err = places_open_at(root, path, links, user, &opened);

	if (err)
		return err;
	err = check_owner(opened, user && user->known ? user->uid : 0, !user, max);
	if (err)
		(void)close(opened);
	else
		*fd = opened;
	return err;
}

/* Do the same below a directory of the user of this program, without a size limit. */
static int open_below(const char *root, const char *path, const struct opener_user *user, int *fd)
{
	int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), err;

	if (dir < 0)
		return -errno;
	err = open_it(dir, path, user, 0, fd);
	(void)close(dir);
	return err;
}

/* Open a name in a directory (O_PATH), which is no link. -EREMOTEIO: another user's program serves what it is. */
static int open_unserved(uint32_t pid, int dir, const char *name, int *fd)
{
	int opened = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (opened < 0)
		return -errno;
	if (places_is_served(pid, opened)) {
		(void)close(opened);
		return -EREMOTEIO;
	}
	*fd = opened;
	return 0;
}

static bool is_link(int fd)
{
	struct statx st;

	return !statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) &&
	       S_ISLNK(st.stx_mode);
}

/*
 * Open /tmp below root, with the rights of user. If it is a link, that leads through directories that anybody may serve: it is
 * followed only as far as the kernel knows the way. -EREMOTEIO: another user's program serves it, or may do so.
 */
static int open_tmp(uint32_t pid, int root, const struct opener_user *user, int *fd)
{
	struct user_left left;
	int tmp = -1, err;
	bool public;

	if (places_is_served(pid, root))
		return -EREMOTEIO;
	err = open_unserved(pid, root, "tmp", &tmp);
	if (err)
		return err;
	if (is_link(tmp)) {
		(void)close(tmp);
		err = user_enter(user, &left, &public);
		if (err)
			return err;
		tmp = places_known(root, "tmp", O_DIRECTORY);
		user_leave(&left);
		if (tmp < 0)
			return tmp == -EAGAIN ? -EREMOTEIO : tmp;
		if (places_is_served(pid, tmp)) {
			(void)close(tmp);
			return -EREMOTEIO;
		}
	}
	*fd = tmp;
	return 0;
}

/* Open a perf map in /tmp below root. */
static int open_map(uint32_t pid, int root, const char *name, const struct opener_user *user,
		    int *fd)
{
	int tmp = -1, map = -1, err = open_tmp(pid, root, user, &tmp);

	if (err)
		return err;
	/* A file can be mounted there, too. */
	err = open_unserved(pid, tmp, name, &map);
	if (!err) {
		(void)close(map);
		err = open_it(tmp, name, user, PERF_MAP_MAX, fd);
	}
	(void)close(tmp);
	return err;
}

int opener_perf_map(struct opener *opener, uint32_t pid, uint32_t ns_pid,
		    const struct opener_user *user, int *fd)
{
	struct place_process process;
	bool lives;
	char path[64];
	int root, err;

	if (opener->number) {
		struct request request = { .what = REQUEST_PERF_MAP,
					   .opener = opener->number,
					   .pid = pid,
					   .ns_pid = ns_pid,
					   .user = *user,
					   .fd = -1 };

		return request_file(&request, NULL, fd);
	}
	lives = !places_process(opener, pid, &process) && process.root >= 0;
	/*
	 * The pid may belong to another user's process by now. (A process of root may have become
	 * another user.)
	 */
	if (lives && user->known && user->uid && user->uid != process.user.uid) {
		places_process_close(&process);
		return -ESRCH;
	}
	(void)snprintf(path, sizeof(path), "perf-%" PRIu32 ".map", ns_pid ? ns_pid : pid);
	/* If the process has ended, its root is unknown: use our own. */
	root = lives ? process.root : open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -errno;
	err = open_map(pid, root, path, lives ? &process.user : user, fd);
	if (!lives)
		(void)close(root);
	places_process_close(&process);
	return err;
}

/*
 * Prefer the dump to the map, and the process's own root to the recording's or this program's root.
 */
int opener_open_jit(struct opener *opener, uint32_t pid, const struct opener_user *user,
		    const char *dump, int *fd)
{
	const char *symfs = opener->symfs ? opener->symfs : "/";
	const struct opener_file file = { .pid = pid, .user = user };
	struct place_process process;
	char map[64], own[64];
	int err = -ENOENT;

	if (opener->number) {
		struct request request = { .what = REQUEST_OPEN_JIT,
					   .opener = opener->number,
					   .pid = pid,
					   .flag = user != NULL,
					   .name = dump,
					   .fd = -1 };

		if (user)
			request.user = *user;
		return request_file(&request, NULL, fd);
	}
	(void)places_process(opener, pid, &process);
	if (!opener->symfs)
		user = places_user(opener, &file, &process);
	else
		user = NULL;
	(void)snprintf(map, sizeof(map), "/tmp/perf-%u.map", pid);
	(void)snprintf(own, sizeof(own), "/tmp/perf-%u.map", own_pid(opener, pid));
	if (dump && process.root >= 0)
		err = open_it(process.root, dump, &process.user, 0, fd);
	if (err && dump)
		err = open_below(symfs, dump, user, fd);
	if (err && process.root >= 0)
		err = open_it(process.root, own, &process.user, 0, fd);
	if (err)
		err = open_below(symfs, map, user, fd);
	places_process_close(&process);
	return err;
}

/* Return whether a mapping is of executable memory that a program filled itself. */
static bool is_generated(const struct event_mapping *m)
{
	return m->prot & PROT_EXEC && strcmp(m->path, "[vdso]") != 0 &&
	       strcmp(m->path, "[vsyscall]") != 0 &&
	       (m->path[0] != '/' || m->deleted || !strncmp(m->path, "/memfd:", 7) ||
		!strncmp(m->path, "/dev/", 5) || !strncmp(m->path, "/SYSV", 5));
}

bool opener_is_interpreter(const struct event_mapping *m)
{
	static const char *const names[] = { "python3", "libpython3.", "php",  "libphp",
					     "ruby",	"libruby",     "perl", "libperl" };
	const char *slash;

	if (!(m->prot & PROT_EXEC) || !m->path || m->path[0] != '/')
		return false;
	slash = strrchr(m->path, '/');
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(slash + 1, names[i], strlen(names[i])))
			return true;
	return false;
}

bool opener_is_v8(const char *path)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;

	return !strcmp(base, "node") || !strcmp(base, "nodejs") || !strncmp(base, "libnode.so", 10);
}

/*
 * Return whether a process generates code or interprets it, or has published a context: its memory tells where
 * threads have what they work for.
 */
static bool is_readable(int process)
{
	int fd = openat(process, "maps", O_RDONLY | O_CLOEXEC);
	FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
	struct event_mapping m;
	char *line = NULL;
	size_t room = 0;
	bool is = false;

	while (maps && !is && getline(&line, &room, maps) > 0)
		is = !procfs_maps_line(line, &m) &&
		     (is_generated(&m) || opener_is_interpreter(&m) ||
		      (m.prot & PROT_EXEC && m.path[0] == '/' && opener_is_v8(m.path)) ||
		      places_is_context(m.path));
	if (maps)
		(void)fclose(maps);
	else if (fd >= 0)
		(void)close(fd);
	free(line);
	return is;
}

/* For places_process_by: open the memory of a process if it is one whose memory may be read. */
static int open_memory(int process, const char *name, int flags)
{
	int fd;

	if (!is_readable(process))
		return -EACCES;
	fd = openat(process, name, flags);
	return fd < 0 ? -errno : fd;
}

int opener_memory(struct opener *opener, uint32_t pid, int *fd)
{
	struct request request = {
		.what = REQUEST_MEMORY, .opener = opener->number, .pid = pid, .fd = -1
	};
	int process, err;

	if (opener->number)
		return request_file(&request, NULL, fd);
	if (!opener->live)
		return -EACCES;
	err = places_process_directory(pid, &process);
	if (err)
		return err;
	err = places_process_by(open_memory, process, "mem", O_RDONLY, fd);
	(void)close(process);
	return err;
}

/* Read the pieces in this process. */
static void read_here(int memory, struct opener_part *parts, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct opener_part *p = &parts[i];
		bool is = p->addr <= INT64_MAX && p->size <= INT64_MAX - p->addr &&
			  pread(memory, p->out, p->size, (off_t)p->addr) == (ssize_t)p->size;

		p->err = is ? 0 : -EFAULT;
	}
}

/* Return how many of these pieces, from the first on, go into one request. */
static size_t in_one(const struct opener_part *parts, size_t n)
{
	size_t size = 0, k = 0;

	while (k < n && k < REQUEST_PARTS_MAX && parts[k].size <= REQUEST_BYTES_MAX - size)
		size += parts[k++].size;
	return k;
}

int opener_read_parts(struct opener *opener, int memory, struct opener_part *parts, size_t n,
		      struct opener_wait *wait)
{
	struct request request = { .what = REQUEST_READ_MEMORY,
				   .opener = opener->number,
				   .fd = memory };
	uint64_t began;
	int err = 0;

	wait->ns = 0;
	if (!opener->number) {
		read_here(memory, parts, n);
		return 0;
	}
	began = now_ns();
	for (size_t i = 0; i < n; i++)
		parts[i].err = -EFAULT;
	for (size_t i = 0; !err && i < n; i += request.n_parts) {
		request.parts = &parts[i];
		request.n_parts = in_one(&parts[i], n - i);
		err = request.n_parts ? request_parts(&request, OPENER_MEMORY_MS, &wait->late)
				      : -EINVAL;
	}
	wait->ns = now_ns() - began;
	return err;
}

int opener_read_memory(struct opener *opener, int memory, uint64_t addr, void *out, size_t size,
		       struct opener_wait *wait)
{
	uint64_t waited = 0;
	int err = 0;

	for (size_t done = 0; !err && done < size;) {
		struct opener_part part = { .addr = addr + done,
					    .out = (uint8_t *)out + done,
					    .size = size - done };

		if (part.size > OPENER_PART_MAX)
			part.size = OPENER_PART_MAX;
		err = addr > UINT64_MAX - done ? -EFAULT
					       : opener_read_parts(opener, memory, &part, 1, wait);
		err = err ? err : part.err;
		waited += wait->ns;
		done += part.size;
	}
	wait->ns = waited;
	return err;
}

bool opener_is_late(size_t late)
{
	return request_is_late(late);
}

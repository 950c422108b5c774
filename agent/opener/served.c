/*
 * agent/opener/served.c: detects files that another user's program serves, without asking the
 * program.
 */
#include "agent/clock.h"
#include "agent/opener/places.h"
#include "agent/opener/user.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

/*
 * A file system can be a program (FUSE). A thread that asks it for a name, for a file's size or for
 * bytes waits until the program answers. Once the program has read the request, not even killing
 * the waiting process ends the wait. So the mount tells whether a file belongs to another user's
 * program, and the program is not asked.
 */
#define FUSE_CTL_MAGIC 0x65735543	    /* fs/fuse/control.c */
#define LINES_MAX      4096u		    /* lines read of a list, which can have 100,000 */
#define BELIEVED_NS    UINT64_C(1000000000) /* answers expire: numbers are reused */

/* OVERLAID: an overlay that another user may have mounted, and so chosen what it shows: files of such a program, too. */
enum served { NOT_FOUND, LOCAL, SERVED_BY_US, OVERLAID, SERVED };

static struct answer { /* a cached answer from a process's list of mounts; pid 0: from our own */
	uint32_t major, minor, pid;
	uint64_t mount, asked_ns;
	int found;
} answers[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Return who serves the mount that a line of mountinfo describes: LOCAL, root or this user, or another one. foreign: the
 * list is of a process for which others mount. What is mounted there as user 0 need not be root's.
 */
static enum served server_of(const char *line, bool foreign)
{
	const char *type = strstr(line, " - "), *user;

	if (foreign && type && !strncmp(type + 3, "overlay ", 8))
		return OVERLAID;
	if (!type || strncmp(type + 3, "fuse", 4) != 0 || (type[7] != ' ' && type[7] != '.'))
		return LOCAL;
	user = foreign ? NULL : strstr(type, "user_id=");
	return !user || (strtoul(user + 8, NULL, 10) && strtoul(user + 8, NULL, 10) != geteuid())
		       ? SERVED
		       : SERVED_BY_US;
}

/*
 * Look up a mount by its number or its device in a list of mounts. foreign: as of server_of. -errno: the list cannot
 * be read.
 */
static int find(const char *list, unsigned int lines_max, const struct answer *want, bool foreign)
{
	FILE *mounts = fopen(list, "re");
	char *line = NULL;
	size_t room = 0;
	int found = NOT_FOUND;

	if (!mounts)
		return -errno;
	for (unsigned int i = 0; found == NOT_FOUND && i < lines_max; i++) {
		uint32_t major, minor;
		uint64_t id;

		if (getline(&line, &room, mounts) <= 0)
			break;
		/*
		 * proc(5): mount ID, parent ID, device, root, place, …, " - ", type, source,
		 * options
		 */
		if (sscanf(line, "%" SCNu64 " %*s %" SCNu32 ":%" SCNu32, &id, &major, &minor) ==
			    3 &&
		    ((want->mount && id == want->mount) ||
		     (major == want->major && minor == want->minor)))
			found = (int)server_of(line, foreign);
	}
	free(line);
	(void)fclose(mounts);
	return found;
}

/* Return whether the device is that of memfd files, whose mount is in no list. */
static bool is_memory(const struct answer *want)
{
	int fd = memfd_create("device", MFD_CLOEXEC);
	struct stat st;
	bool is = fd >= 0 && !fstat(fd, &st) && major(st.st_dev) == want->major &&
		  minor(st.st_dev) == want->minor;

	if (fd >= 0)
		(void)close(fd);
	return is;
}

/* Look up a mount in the list of one process. Return an enum served, or -errno. */
static int ask(const struct answer *want)
{
	int process, found;
	char path[48];

	if (!want->pid) {
		found = find("/proc/self/mountinfo", UINT_MAX, want, false);
		return found == NOT_FOUND && is_memory(want) ? LOCAL : found;
	}
	/* Hold the process, so that a reused pid cannot replace it. */
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32, want->pid);
	process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process < 0)
		return -errno;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/mountinfo", process);
	found = find(path, LINES_MAX, want, false);
	/* A process can leave for a user namespace of its own, but not come back. */
	if (!user_mounts(process))
		found = find(path, LINES_MAX, want, true);
	(void)close(process);
	return found;
}

/*
 * Read the kernel's list of all such programs, mounted anywhere: each is a directory that its user owns
 * (Documentation/filesystems/fuse.rst). One whose files an overlay shows is there as long as the overlay is.
 */
bool places_others_serve(void)
{
	DIR *dir = opendir("/sys/fs/fuse/connections");
	const struct dirent *entry;
	struct statfs fs;
	struct stat st;
	bool others = !dir || fstatfs(dirfd(dir), &fs) || fs.f_type != FUSE_CTL_MAGIC;

	if (!dir && errno == ENOENT && !access("/sys/fs", F_OK)) /* this kernel has no FUSE */
		return false;

	while (!others && (entry = readdir(dir)))
		others = entry->d_name[0] != '.' && !fstatat(dirfd(dir), entry->d_name, &st, 0) &&
			 st.st_uid && st.st_uid != geteuid();
	if (dir)
		(void)closedir(dir);
	return others;
}

/* Look up a mount in one list, through a cache. Thread-safe. */
static int look_up(struct answer want)
{
	struct answer *a = &answers[(want.minor ^ want.mount ^ want.pid) %
				    (sizeof(answers) / sizeof(answers[0]))];
	int found;

	want.asked_ns = now_ns();
	(void)pthread_mutex_lock(&lock);
	if (!a->asked_ns || want.asked_ns - a->asked_ns > BELIEVED_NS || a->minor != want.minor ||
	    a->mount != want.mount || a->pid != want.pid) {
		want.found = ask(&want);
		*a = want;
	}
	found = a->found;
	(void)pthread_mutex_unlock(&lock);
	return found;
}

/* Return whether the mount's file system is served by a program: another user's, or anyone's. */
static bool is_served(struct answer want, bool by_anyone)
{
	uint32_t pid = want.pid;
	int found;

	/* A file system with a device number of its own is on a disk, or was mounted by root. */
	if (want.major || !want.minor)
		return false;
	/* Most mounts are in our own list, which is the same for all processes. */
	want.pid = 0;
	found = look_up(want);
	if (found == NOT_FOUND && pid) {
		want.pid = pid;
		found = look_up(want);
		/*
		 * A mount that its process uses but does not list was detached from the tree, or
		 * hidden behind too many other mounts: assume the worst.
		 */
		if (found == NOT_FOUND)
			found = SERVED;
	}
	return found == SERVED || (by_anyone && found == SERVED_BY_US) ||
	       (found == OVERLAID && places_others_serve());
}

bool opener_device_is_served(uint32_t pid, uint32_t major, uint32_t minor)
{
	struct answer want = { .pid = pid, .major = major, .minor = minor };

	return is_served(want, false);
}

bool opener_device_is_fuse(uint32_t pid, uint32_t major, uint32_t minor)
{
	struct answer want = { .pid = pid, .major = major, .minor = minor };

	return is_served(want, true);
}

/* Do the same for the file system that a descriptor leads to. */
static bool is_served_at(uint32_t pid, int fd, bool by_anyone)
{
	struct answer want = { .pid = pid };
	struct statx stx;

	/* With these flags the kernel answers from memory, whatever the file system is. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &stx))
		return false;
	want.major = stx.stx_dev_major;
	want.minor = stx.stx_dev_minor;
	want.mount = stx.stx_mask & STATX_MNT_ID ? stx.stx_mnt_id : 0;
	return is_served(want, by_anyone);
}

bool places_is_served(uint32_t pid, int fd)
{
	return is_served_at(pid, fd, false);
}

bool places_is_fuse(uint32_t pid, int fd)
{
	return is_served_at(pid, fd, true);
}

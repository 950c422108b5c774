/* agent/opener/served.c: tells files that a stranger's program serves, without asking that program. */
#include "agent/opener/places.h"

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
#include <time.h>
#include <unistd.h>

/*
 * A file system may be a program (FUSE).  A thread that asks it for a name, for a file's size or
 * for bytes waits until it answers; once the program has taken the question, not even the end of
 * the process that asks ends the wait.  So a file of another user's program is told by its mount,
 * and nothing is asked.
 */
#define LINES_MAX   4096u /* of a process's list of mounts: it can make a hundred thousand */
#define BELIEVED_NS UINT64_C(1000000000) /* a number may be another mount's afterwards */

enum served { NOT_FOUND, LOCAL, SERVED };

static struct answer { /* of a process's list of mounts; pid 0: of our own */
	uint32_t major, minor, pid;
	uint64_t mount, asked_ns;
	int found;
} answers[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Return whether a line's file system is the program of a user other than root and this one. */
static bool is_strange(const char *line)
{
	const char *type = strstr(line, " - "), *user;

	if (!type || strncmp(type + 3, "fuse", 4) != 0 || (type[7] != ' ' && type[7] != '.'))
		return false;
	user = strstr(type, "user_id=");
	return !user || (strtoul(user + 8, NULL, 10) && strtoul(user + 8, NULL, 10) != geteuid());
}

/* Look a mount up by its number or its device in a list of mounts. -errno: it cannot be read. */
static int find(const char *list, unsigned int lines_max, const struct answer *want)
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
		/* proc(5): number, parent, device, root, place, …, " - ", type, source, options */
		if (sscanf(line, "%" SCNu64 " %*s %" SCNu32 ":%" SCNu32, &id, &major, &minor) ==
			    3 &&
		    ((want->mount && id == want->mount) ||
		     (major == want->major && minor == want->minor)))
			found = is_strange(line) ? SERVED : LOCAL;
	}
	free(line);
	(void)fclose(mounts);
	return found;
}

/* Files in memory are on a mount that no list has. */
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

static int ask(const struct answer *want)
{
	char path[48];

	if (!want->pid) {
		int found = find("/proc/self/mountinfo", UINT_MAX, want);

		return found == NOT_FOUND && is_memory(want) ? LOCAL : found;
	}
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/mountinfo", want->pid);
	return find(path, LINES_MAX, want);
}

/* Ask one list of mounts, unless it was asked just now. */
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

static bool is_served(struct answer want)
{
	uint32_t pid = want.pid;
	int found;

	/* Whatever has a device of its own is on a disk, or root has mounted it. */
	if (want.major || !want.minor)
		return false;
	/* Most are on our own list, which serves for all processes. */
	want.pid = 0;
	found = look_up(want);
	if (found != NOT_FOUND || !pid)
		return found == SERVED;
	want.pid = pid;
	found = look_up(want);
	/* A mount that its process has and does not list was taken out of the tree, or hidden behind too many. */
	return found == SERVED || found == NOT_FOUND;
}

bool opener_device_is_served(uint32_t pid, uint32_t major, uint32_t minor)
{
	struct answer want = { .pid = pid, .major = major, .minor = minor };

	return is_served(want);
}

bool places_is_served(uint32_t pid, int fd)
{
	struct answer want = { .pid = pid };
	struct statx stx;

	/* Asked like this the kernel answers from memory, whatever the file system. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &stx))
		return false;
	want.major = stx.stx_dev_major;
	want.minor = stx.stx_dev_minor;
	want.mount = stx.stx_mask & STATX_MNT_ID ? stx.stx_mnt_id : 0;
	return is_served(want);
}

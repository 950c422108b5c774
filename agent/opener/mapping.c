/*
 * agent/opener/mapping.c: opens the very file behind a mapping, without blocking on another
 * process.
 */
#include "agent/clock.h"
#include "agent/opener/opener.h"
#include "agent/opener/places.h"
#include "agent/opener/user.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOUNTS_MAX 512u
#define LOOKED_NS  UINT64_C(1000000000) /* how long our own list of mounts is valid */

/* File systems whose files can be opened and read without a server that may never answer. */
static const char *const local[] = { "ext2", "ext3",  "ext4",  "xfs",	   "btrfs",  "f2fs",
				     "vfat", "tmpfs", "erofs", "squashfs", "overlay" };

struct mount { /* a mount of a local file system */
	uint64_t id;
	uint32_t major, minor;
	bool overlay;
};

struct opener_mappings {
	struct mount own[MOUNTS_MAX], theirs[MOUNTS_MAX];
	size_t n_own;
	uint64_t looked_ns; /* CLOCK_MONOTONIC; 0: never */
	uint64_t memory;    /* the mount of memfd files; 0: unknown */
};

static bool is_local(const char *type)
{
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if (!strcmp(type, local[i]))
			return true;
	return false;
}

/*
 * Read the mounts of local file systems from a process's list, MOUNTS_MAX at most. Return their
 * number.
 */
static size_t read_mounts(const char *path, struct mount *mounts)
{
	FILE *file = fopen(path, "re");
	char *line = NULL, type[64];
	size_t room = 0, n = 0;

	while (file && n < MOUNTS_MAX && getline(&line, &room, file) > 0) {
		const char *rest = strstr(line, " - ");
		struct mount m;

		/* proc(5): mount ID, parent ID, device, root, mount point, …, " - ", type, … */
		if (rest && sscanf(rest, " - %63s", type) == 1 && is_local(type) &&
		    sscanf(line, "%" SCNu64 " %*s %" SCNu32 ":%" SCNu32, &m.id, &m.major,
			   &m.minor) == 3) {
			m.overlay = !strcmp(type, "overlay");
			mounts[n++] = m;
		}
	}
	free(line);
	if (file)
		(void)fclose(file);
	return n;
}

/* Read our own list of mounts again, if it is older than LOOKED_NS. */
static void look_at_own(struct opener_mappings *m)
{
	uint64_t now = now_ns();

	if (m->looked_ns && now - m->looked_ns < LOOKED_NS)
		return;
	m->looked_ns = now;
	m->n_own = read_mounts("/proc/self/mountinfo", m->own);
}

static const struct mount *find_mount(const struct mount *mounts, size_t n, uint64_t id)
{
	for (size_t i = 0; i < n; i++)
		if (mounts[i].id == id)
			return &mounts[i];
	return NULL;
}

/* Return whether a file system is mounted in our mount namespace. */
static bool is_own_device(const struct opener_mappings *m, uint32_t major, uint32_t minor)
{
	for (size_t i = 0; i < m->n_own; i++)
		if (m->own[i].major == major && m->own[i].minor == minor)
			return true;
	return false;
}

/*
 * Return whether a mount is of a local file system, and in our mount namespace or in that of
 * process pid. The caller's descriptor holds the mount, so its number cannot be reused meanwhile.
 * An overlay shows files of other file systems: in a user namespace of theirs, users can mount one over a program of
 * theirs that serves files, and never answers.
 */
static bool is_local_mount(struct opener_mappings *m, uint32_t pid, uint64_t id)
{
	const struct mount *found;
	int process;
	char path[64];
	bool is;

	if (id && id == m->memory)
		return true;
	look_at_own(m);
	if (find_mount(m->own, m->n_own, id))
		return true;
	/* Hold the process, so that a reused pid cannot replace it. */
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32, pid);
	process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process < 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/mountinfo", process);
	found = find_mount(m->theirs, read_mounts(path, m->theirs), id);
	is = found && (!found->overlay || is_own_device(m, found->major, found->minor) ||
		       user_mounts(process) || !places_others_serve());
	(void)close(process);
	return is;
}

/*
 * Read a file's type and mount number. With these flags the kernel answers from memory, whatever
 * the file system is.
 */
static int mount_of(int fd, bool *regular, uint64_t *id)
{
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &stx))
		return -errno;
	*regular = S_ISREG(stx.stx_mode);
	*id = stx.stx_mask & STATX_MNT_ID ? stx.stx_mnt_id : 0;
	return 0;
}

int opener_mappings_new(struct opener_mappings **out)
{
	struct opener_mappings *m = calloc(1, sizeof(*m));
	int fd = m ? memfd_create("mount", MFD_CLOEXEC) : -1;
	bool regular;

	if (!m)
		return -ENOMEM;
	if (fd >= 0) {
		(void)mount_of(fd, &regular, &m->memory);
		(void)close(fd);
	}
	*out = m;
	return 0;
}

void opener_mappings_free(struct opener_mappings *m)
{
	free(m);
}

/* Open the file by its inode, because the process has ended or has mapped something else there. */
static int open_inode(struct opener_mappings *m, const struct opener_file *file, int *fd)
{
	look_at_own(m);
	return is_own_device(m, file->major, file->minor) ? places_open_inode(file, fd) : -ENOENT;
}

/*
 * Open the link in /proc/PID/map_files, which leads to the mapped file even if its path is gone.
 * O_PATH opens nothing yet, so the mount is checked before any call that could wait.
 */
int opener_mappings_open(struct opener_mappings *m, const struct opener_file *file, int *fd)
{
	int place, opened;
	char link[64];
	bool regular;
	uint64_t id;

	if (places_mapped_link(file, &place))
		return open_inode(m, file, fd);
	if (mount_of(place, &regular, &id) || !regular || !is_local_mount(m, file->pid, id)) {
		(void)close(place);
		return -ENOENT;
	}
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", place);
	/* Without O_NONBLOCK, open waits for the holder of a lease on the file (fcntl(2)). */
	opened = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (opened < 0)
		opened = -errno;
	(void)close(place);
	if (opened < 0)
		return opened;
	*fd = opened;
	return 0;
}

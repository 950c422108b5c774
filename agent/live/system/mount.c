/* agent/live/system/mount.c: finds file systems that only other mount namespaces see. */
#include "agent/live/system/mount.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/live/system/inventory.h"
#include "agent/live/system/pin.h"
#include "agent/opener/opener.h"
#include "agent/source/procfs.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define DEVICES_MAX    4096u
#define NAMESPACES_MAX 1024u /* looked into by one search */
/* How soon a search for the same device may be repeated. */
#define AGAIN_NS UINT64_C(1000000000)
/*
 * All searches of one second may take so long, and then the rest of the second is without: an ordinary
 * user can have 100,000 mounts in each of his namespaces, and ever new file systems. On an ordinary
 * system a search takes less than a millisecond.
 */
#define WINDOW_NS UINT64_C(1000000000)
#define SEARCH_NS UINT64_C(50000000)
#define LINES	  64 /* of a list of mounts, between two looks at the clock */

/* Map a page of the file, and read from /proc/self/maps what the kernel reports for it. */
static int mapped_identity(int fd, struct event_mapping *out)
{
	const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	char *line = NULL;
	int err = page == MAP_FAILED ? -errno : procfs_own_mapping((uintptr_t)page, out, &line);

	free(line);
	if (page != MAP_FAILED)
		(void)munmap(page, size);
	return err;
}

int live_file_identity(int fd, uint32_t *major_out, uint32_t *minor_out, uint64_t *inode)
{
	struct event_mapping m;
	struct statfs fs;
	struct stat st;
	int err;

	if (fstatfs(fd, &fs) || fstat(fd, &st))
		return -errno;
	if (fs.f_type != OVERLAYFS_SUPER_MAGIC) {
		*major_out = major(st.st_dev);
		*minor_out = minor(st.st_dev);
		*inode = st.st_ino;
		return 0;
	}
	err = mapped_identity(fd, &m);
	if (err)
		return err;
	*major_out = m.major;
	*minor_out = m.minor;
	*inode = m.inode;
	return 0;
}

struct device {
	uint32_t major, minor;
	/* A process that sees the file system; 0: this process sees it, or none was found. */
	uint32_t pid;
	bool found;
	uint64_t again_ns; /* earliest time of the next search; CLOCK_MONOTONIC */
};

struct live_mounts {
	struct opener *opener;
	struct device *devices;
	size_t n, room;
	uint64_t window_ns, spent_ns; /* the second's beginning, and what searches took in it */
};

int live_mounts_new(struct live_mounts **out)
{
	const struct opener_options options = { .live = true, .irreplaceable = true };
	struct live_mounts *mounts = calloc(1, sizeof(*mounts));
	int err = mounts ? opener_new(&options, &mounts->opener) : -ENOMEM;

	if (err) {
		free(mounts);
		return err;
	}
	*out = mounts;
	return 0;
}

void live_mounts_free(struct live_mounts *mounts)
{
	if (!mounts)
		return;
	opener_free(mounts->opener);
	free(mounts->devices);
	free(mounts);
}

/* Return whether a process is there, which may have ended. */
static bool is_alive(uint32_t pid)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32, pid);
	return !access(path, F_OK);
}

static struct device *find(const struct live_mounts *mounts, uint32_t major, uint32_t minor)
{
	for (size_t i = 0; i < mounts->n; i++)
		if (mounts->devices[i].major == major && mounts->devices[i].minor == minor)
			return &mounts->devices[i];
	return NULL;
}

bool live_mounts_know(const struct live_mounts *mounts, uint32_t major, uint32_t minor)
{
	return find(mounts, major, minor);
}

/* Return the list of the mounts that a process sees. who: a pid, or "self". NULL: it cannot be read. */
static FILE *open_mounts(const char *who)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%s/mountinfo", who);
	return fopen(path, "re");
}

/*
 * Find out whether the file system is in a list of mounts, and get the mount point as that process names
 * it. The search ends without a result at until_ns, or if is_new (NULL: none) says so of the number of the first mount.
 * Closes mounts, which may be NULL.
 */
static bool find_place(FILE *mounts, const struct device *device, uint64_t until_ns,
		       bool (*is_new)(void *ctx, uint32_t mount), void *ctx, char where[4096])
{
	unsigned int n = 0;
	char *line = NULL;
	bool found = false;
	size_t room = 0;

	while (mounts && !found && getline(&line, &room, mounts) > 0) {
		unsigned int major, minor;
		uint32_t id;

		if (++n % LINES == 0 && now_ns() > until_ns)
			break;
		/* proc(5): mount ID, parent ID, device, root, mount point, … */
		found = sscanf(line, "%" SCNu32 " %*s %u:%u %*s %4095s", &id, &major, &minor,
			       where) == 4;
		if (found && n == 1 && is_new && !is_new(ctx, id)) {
			found = false;
			break;
		}
		found = found && major == device->major && minor == device->minor;
	}
	free(line);
	if (mounts)
		(void)fclose(mounts);
	return found;
}

struct search {
	uint64_t until_ns; /* CLOCK_MONOTONIC: it ends */
	struct device *device;
	struct live_pins *pins;
	/*
	 * The first mounts of the lists that were looked into. A mount belongs to one mount namespace. (The link to the namespace
	 * would tell the same, but a process can keep those waiting who look it up: opener_errand.)
	 */
	uint32_t mounts[NAMESPACES_MAX];
	size_t n;
};

/* Return whether a list that begins with this mount is to be looked into, and note that it is. */
static bool is_new(void *ctx, uint32_t mount)
{
	struct search *search = ctx;

	for (size_t i = 0; i < search->n; i++)
		if (search->mounts[i] == mount)
			return false;
	if (search->n == NAMESPACES_MAX)
		return false;
	search->mounts[search->n++] = mount;
	return true;
}

/*
 * Callback of live_processes: look for the device in this process's mount namespace, once for each
 * namespace. Return 1 to end the search. A file system that another process serves (such as FUSE)
 * is not used.
 */
static int look(void *ctx, uint32_t pid)
{
	struct search *search = ctx;
	char who[16], where[4096];
	int fd;

	if (search->n == NAMESPACES_MAX || now_ns() > search->until_ns)
		return 1;
	(void)snprintf(who, sizeof(who), "%" PRIu32, pid);
	if (!find_place(open_mounts(who), search->device, search->until_ns, is_new, search, where))
		return 0;
	if (opener_device_is_fuse(pid, search->device->major, search->device->minor))
		return 1;
	search->device->pid = pid;
	search->device->found = true;
	/* The process decides what is mounted over this place, and on the way to it. */
	if (search->pins &&
	    !opener_known_directory(pid, procfs_mount_path(where), search->device->major,
				    search->device->minor, &fd)) {
		live_pins_watch(search->pins, fd);
		(void)close(fd);
	}
	return 1;
}

void live_mounts_see(struct live_mounts *mounts, struct live_pins *pins, uint32_t major,
		     uint32_t minor, uint64_t now_ns)
{
	struct device *device = find(mounts, major, minor);
	struct search *search;

	if (!device) {
		char where[4096];

		if (mounts->n == DEVICES_MAX ||
		    array_grow(mounts->devices, mounts->n, mounts->room))
			return;
		device = &mounts->devices[mounts->n++];
		*device = (struct device){ .major = major, .minor = minor };
		device->found =
			find_place(open_mounts("self"), device, UINT64_MAX, NULL, NULL, where);
	}
	/* The process that was found may have ended; another one may still see the file system. */
	if (now_ns < device->again_ns || (device->found && (!device->pid || is_alive(device->pid))))
		return;
	if (now_ns >= mounts->window_ns + WINDOW_NS) {
		mounts->window_ns = now_ns;
		mounts->spent_ns = 0;
	}
	if (mounts->spent_ns >= SEARCH_NS)
		return;
	device->again_ns = now_ns + AGAIN_NS;
	device->found = false;
	search = calloc(1, sizeof(*search));
	if (!search)
		return;
	search->until_ns = now_ns + SEARCH_NS - mounts->spent_ns;
	search->device = device;
	search->pins = pins;
	(void)live_processes(look, search);
	free(search);
	mounts->spent_ns += clock_ns(CLOCK_MONOTONIC) - now_ns;
}

int live_mounts_open(const struct live_mounts *mounts, uint32_t major, uint32_t minor,
		     uint64_t inode, const char *path, int *fd)
{
	const struct device *device = find(mounts, major, minor);
	struct opener_file file = {
		.path = path, .major = major, .minor = minor, .compared = true
	};
	uint32_t its_major, its_minor;
	unsigned int next = 0;
	uint64_t its_inode;
	int opened, err;

	if (!device || !device->found || !device->pid)
		return -ENOENT;
	file.pid = device->pid;
	err = opener_open(mounts->opener, &file, &next, &opened);
	if (err)
		return err;
	/* The path may belong to another file by now. */
	if (live_file_identity(opened, &its_major, &its_minor, &its_inode) || its_inode != inode ||
	    its_major != major || its_minor != minor) {
		(void)close(opened);
		return -ENOENT;
	}
	*fd = opened;
	return 0;
}

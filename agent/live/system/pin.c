/* agent/live/system/pin.c: holds executed files open, by the notices of fanotify(7). */
#include "agent/live/system/pin.h"

#include "agent/live/system/mount.h"
#include "agent/opener/opener.h"
#include "agent/source/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define PINS_MAX 512u
#define HOLD_NS	 UINT64_C(3000000000) /* a mapping is delivered within half a second */

struct pin {
	uint32_t major, minor;
	uint64_t inode;
	uint64_t until_ns;
	int fd;
	bool ignored; /* the kernel sends no more notices for this file, so it must be held */
};

struct live_pins {
	int notices;
	struct opener_mappings *mappings;
	struct pin pins[PINS_MAX]; /* circular, in the order of until_ns */
	size_t first, n;
	uint64_t listened_ns; /* when the notices of all files were last turned on */
};

/* Local file systems: opening a file on them does not wait for a server. */
static const struct {
	const char *name;
	unsigned long magic; /* <linux/magic.h> */
} local[] = {
	{ "ext2", EXT2_SUPER_MAGIC },	      { "ext3", EXT3_SUPER_MAGIC },
	{ "ext4", EXT4_SUPER_MAGIC },	      { "xfs", XFS_SUPER_MAGIC },
	{ "btrfs", BTRFS_SUPER_MAGIC },	      { "f2fs", F2FS_SUPER_MAGIC },
	{ "vfat", MSDOS_SUPER_MAGIC },	      { "tmpfs", TMPFS_MAGIC },
	{ "erofs", EROFS_SUPER_MAGIC_V1 },    { "squashfs", SQUASHFS_MAGIC },
	{ "overlay", OVERLAYFS_SUPER_MAGIC },
};

/* Return whether a type of file system in mountinfo is local. */
static bool is_local(const char *type)
{
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if (!strcmp(type, local[i].name))
			return true;
	return false;
}

/* Ask for a notice at each execution of a file on the file system of path. */
static bool watch(int notices, const char *path)
{
	return !fanotify_mark(notices, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN_EXEC, AT_FDCWD,
			      path);
}

/*
 * Watch each local file system, through any of its mount points. Return how many mount points were
 * accepted.
 */
static size_t mark_all(int notices)
{
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, where[4096], type[64];
	size_t room = 0, n = 0;

	if (!mounts)
		return 0;
	while (getline(&line, &room, mounts) > 0) {
		const char *rest = strstr(line, " - ");

		if (rest && sscanf(rest, " - %63s", type) == 1 && is_local(type) &&
		    sscanf(line, "%*s %*s %*s %*s %4095s", where) == 1)
			n += watch(notices, procfs_mount_path(where));
	}
	free(line);
	(void)fclose(mounts);
	return n;
}

/*
 * O_NONBLOCK is for the descriptors that the kernel opens for the notices: it must not wait for the
 * holder of a lease on a file.
 */
int live_pins_new(struct live_pins **out)
{
	struct live_pins *pins = calloc(1, sizeof(*pins));
	int err = 0;

	if (!pins)
		return -ENOMEM;
	pins->notices = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK,
				      O_RDONLY | O_LARGEFILE | O_CLOEXEC | O_NONBLOCK);
	if (pins->notices < 0)
		err = -errno;
	else if (!mark_all(pins->notices))
		err = -ENOTSUP;
	else
		err = opener_mappings_new(&pins->mappings);
	if (err) {
		live_pins_free(pins);
		return err;
	}
	*out = pins;
	return 0;
}

/*
 * Turn the notices of all files on again. Files without notices until now are held for HOLD_NS from
 * now; they become the last, because files are dropped in the order of their times.
 */
static void listen(struct live_pins *pins, uint64_t now_ns)
{
	struct pin again[PINS_MAX];
	size_t n_again = 0, n_others = 0;

	pins->listened_ns = now_ns;
	/* Remove the ignore marks of single files. */
	(void)fanotify_mark(pins->notices, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL);
	for (size_t i = 0; i < pins->n; i++) {
		const struct pin *pin = &pins->pins[(pins->first + i) % PINS_MAX];

		if (pin->ignored)
			again[n_again++] = *pin;
		else
			pins->pins[(pins->first + n_others++) % PINS_MAX] = *pin;
	}
	for (size_t i = 0; i < n_again; i++) {
		again[i].until_ns = now_ns + HOLD_NS;
		again[i].ignored = false;
		pins->pins[(pins->first + n_others + i) % PINS_MAX] = again[i];
	}
}

/* Turn off the notices for a held file, which is executed often. */
static void ignore(const struct live_pins *pins, struct pin *pin)
{
	pin->ignored = !fanotify_mark(
		pins->notices, FAN_MARK_ADD | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY,
		FAN_OPEN_EXEC, pin->fd, NULL);
}

/* Stop holding the oldest file. */
static void drop_first(struct live_pins *pins)
{
	(void)close(pins->pins[pins->first].fd);
	pins->first = (pins->first + 1) % PINS_MAX;
	pins->n--;
}

void live_pins_free(struct live_pins *pins)
{
	if (!pins)
		return;
	while (pins->n)
		drop_first(pins);
	if (pins->notices >= 0)
		(void)close(pins->notices);
	opener_mappings_free(pins->mappings);
	free(pins);
}

static struct pin *find(struct live_pins *pins, uint32_t major, uint32_t minor, uint64_t inode)
{
	for (size_t i = 0; i < pins->n; i++) {
		struct pin *pin = &pins->pins[(pins->first + i) % PINS_MAX];

		if (pin->inode == inode && pin->major == major && pin->minor == minor)
			return pin;
	}
	return NULL;
}

/*
 * Hold a file. While it is held, no other file can get its inode number. A file that is held
 * already is not held twice; its notices are turned off instead. Takes ownership of fd.
 */
static void add(struct live_pins *pins, int fd, uint64_t now_ns)
{
	struct pin pin = { .until_ns = now_ns + HOLD_NS, .fd = fd }, *held;
	struct stat st;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    live_file_identity(fd, &pin.major, &pin.minor, &pin.inode)) {
		(void)close(fd);
		return;
	}
	held = find(pins, pin.major, pin.minor, pin.inode);
	if (held) {
		(void)close(fd);
		if (!held->ignored)
			ignore(pins, held);
		return;
	}
	if (pins->n == PINS_MAX && pins->pins[pins->first].ignored)
		listen(pins, now_ns);
	if (pins->n == PINS_MAX)
		drop_first(pins);
	pins->pins[(pins->first + pins->n++) % PINS_MAX] = pin;
}

void live_pins_watch(struct live_pins *pins, int directory)
{
	char path[32];
	struct statfs fs;

	/*
	 * Use the number of the file system's type: the own mountinfo has no line for another root.
	 */
	if (fstatfs(directory, &fs))
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", directory);
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if ((unsigned long)fs.f_type == local[i].magic) {
			(void)watch(pins->notices, path);
			return;
		}
}

void live_pins_hold(struct live_pins *pins, uint32_t pid, uint64_t start, uint64_t end,
		    uint64_t now_ns)
{
	const struct opener_file file = { .pid = pid, .start = start, .end = end };
	int fd;

	/* A name like that of a file in memory can be of another one, which a program serves. */
	if (!opener_mappings_open(pins->mappings, &file, &fd))
		add(pins, fd, now_ns);
}

void live_pins_drain(struct live_pins *pins, uint64_t now_ns)
{
	_Alignas(struct fanotify_event_metadata) char buffer[8192];
	ssize_t n;

	if (pins->listened_ns + HOLD_NS < now_ns)
		listen(pins, now_ns);
	while (pins->n && pins->pins[pins->first].until_ns < now_ns &&
	       !pins->pins[pins->first].ignored)
		drop_first(pins);
	while ((n = read(pins->notices, buffer, sizeof(buffer))) > 0) {
		const struct fanotify_event_metadata *notice = (const void *)buffer;

		for (; FAN_EVENT_OK(notice, n); notice = FAN_EVENT_NEXT(notice, n))
			if (notice->fd >= 0)
				add(pins, notice->fd, now_ns);
	}
}

int live_pins_open(struct live_pins *pins, uint32_t major, uint32_t minor, uint64_t inode, int *fd)
{
	const struct pin *pin = find(pins, major, minor, inode);
	int copy = pin ? fcntl(pin->fd, F_DUPFD_CLOEXEC, 0) : -1;

	if (!pin)
		return -ENOENT;
	if (copy < 0)
		return -errno;
	*fd = copy;
	return 0;
}

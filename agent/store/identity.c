/*
 * agent/store/identity.c: computes cryptographic identities of files, and decides who vouches for
 * them.
 */
#include "agent/store/identity.h"

#include <errno.h>
#include <linux/magic.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)
/*
 * File timestamps tick at intervals of up to 10 ms, so a second write in the same tick does not
 * show. If the last change is older than this, the next change gets another timestamp.
 */
#define SETTLED_NS (2 * SECOND_NS)

/* Hashing takes 0.1 s for so many bytes. */
#define CONTENTS_MAX ((uint64_t)64 << 20)

/* Not every <linux/magic.h> defines these. */
#define MAGIC_ZFS      0x2fc12fc1
#define MAGIC_BCACHEFS 0xca451a4e

/* ---- hashes ------------------------------------------------------------------------ */

/* Add bytes to the hash (uw_input_fn). */
static void take(void *ctx, const void *bytes, size_t size)
{
	sha256_update(ctx, size, bytes);
}

static void finish(struct sha256_ctx *hash, struct identity *out)
{
	sha256_digest(hash, sizeof(out->bytes), out->bytes);
}

int identity_of_object(struct uw_object *object, struct identity *out)
{
	struct sha256_ctx hash;
	int err;

	sha256_init(&hash);
	err = uw_object_inputs(object, take, &hash);
	if (!err)
		finish(&hash, out);
	return err;
}

void identity_of_file(const struct store_file *f, const struct uw_build_id *id,
		      struct identity *out)
{
	const uint64_t numbers[] = { f->dev,
				     f->ino,
				     f->elf_off,
				     f->size,
				     f->uid,
				     (uint64_t)f->mtime_ns,
				     (uint64_t)f->ctime_ns };
	struct sha256_ctx hash;

	sha256_init(&hash);
	take(&hash, numbers, sizeof(numbers));
	if (id)
		take(&hash, id->bytes, id->size);
	finish(&hash, out);
}

int identity_of_contents(int fd, struct identity *out)
{
	struct sha256_ctx hash;
	uint8_t bytes[16384];
	uint64_t at = 0;
	ssize_t n;

	sha256_init(&hash);
	while ((n = pread(fd, bytes, sizeof(bytes), (off_t)at)) > 0) {
		at += (uint64_t)n;
		if (at > CONTENTS_MAX)
			return -EFBIG;
		take(&hash, bytes, (size_t)n);
	}
	if (n < 0)
		return -errno;
	finish(&hash, out);
	return 0;
}

/* ---- files ------------------------------------------------------------------------ */

static int64_t time_of(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * SECOND_NS + ts->tv_nsec;
}

/*
 * Return the device of this process's root directory; 0: unknown. It is read when the store is opened:
 * in the sandbox, a worker has another root.
 */
static uint64_t own_root(void)
{
	static _Atomic uint64_t device;
	struct stat root;

	if (!device && !stat("/", &root))
		device = root.st_dev;
	return device;
}

/*
 * Return whether the inode data of this file can be trusted. A FUSE server or a network server can
 * answer anything. A disk image that a desktop user had mounted (udisks) has inodes as that user
 * wrote them; such mounts are nosuid. In a user namespace only tmpfs and overlays can be mounted: a
 * tmpfs has only files of its maker, but an overlay can show files of another mount.
 */
static bool is_truthful(int fd, const struct stat *st)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	switch ((unsigned long)fs.f_type & 0xffffffff) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
		return true;
	case EXT4_SUPER_MAGIC: /* also ext2 and ext3 */
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case SQUASHFS_MAGIC:
	case EROFS_SUPER_MAGIC_V1:
	case MAGIC_ZFS:
	case MAGIC_BCACHEFS:
		return !(fs.f_flags & ST_NOSUID);
	case OVERLAYFS_SUPER_MAGIC: /* this process's own root, as in a container */
		return own_root() == st->st_dev;
	default:
		return false;
	}
}

/* Return the only user who can write the file, or STORE_NOBODY. */
static int64_t owner_of(const struct stat *st)
{
	bool group = st->st_mode & S_IWGRP && st->st_gid != st->st_uid; /* not a user's own group */

	return group || st->st_mode & S_IWOTH ? STORE_NOBODY : (int64_t)st->st_uid;
}

/*
 * Do not trust a file that changed less than SETTLED_NS ago: a second change within the resolution
 * of its ctime would not be seen.
 */
void store_file_of(int fd, uint64_t elf_off, const char *path, struct store_file *out)
{
	struct timespec now;
	struct stat st;

	*out = (struct store_file){ .path = path, .owner = STORE_NOBODY };
	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || clock_gettime(CLOCK_REALTIME, &now))
		return;
	out->dev = st.st_dev;
	out->ino = st.st_ino;
	out->elf_off = elf_off;
	out->size = (uint64_t)st.st_size;
	out->uid = st.st_uid;
	out->mtime_ns = time_of(&st.st_mtim);
	out->ctime_ns = time_of(&st.st_ctim);
	out->known = time_of(&now) - out->ctime_ns >= SETTLED_NS;
	if (is_truthful(fd, &st)) {
		out->vouched = out->known;
		out->owner = owner_of(&st);
	}
}

/* Read the user when the store is opened: in the sandbox, a worker has another one. */
static int64_t own_user(void)
{
	static _Atomic int64_t user = STORE_NOBODY;

	if (user == STORE_NOBODY)
		user = (int64_t)geteuid();
	return user;
}

void identity_init(void)
{
	(void)own_user();
	(void)own_root();
}

bool identity_is_trusted(int64_t owner)
{
	const char *caller = own_user() ? NULL : getenv("SUDO_UID");
	char *end;

	if (owner == 0 || owner == own_user())
		return true;
	return caller && *caller >= '0' && *caller <= '9' && owner > 0 &&
	       owner == strtoll(caller, &end, 10) && !*end;
}

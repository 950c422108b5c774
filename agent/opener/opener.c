#include "agent/opener/opener.h"

#include "agent/opener/fetcher.h"
#include "agent/opener/places.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int opener_new(const struct opener_options *options, struct opener **out)
{
	struct opener *opener = calloc(1, sizeof(*opener));
	const char *home = getenv("HOME"), *caches = getenv("XDG_CACHE_HOME");

	if (!opener)
		return -ENOMEM;
	opener->live = options->live;
	opener->until_ns = options->until_ns;
	if (options->symfs)
		opener->symfs = strdup(options->symfs);
	if (options->exe)
		opener->exe = strdup(options->exe);
	if (options->beside)
		opener->beside = strdup(options->beside);
	if (options->debug_dir)
		opener->debug_dir = strdup(options->debug_dir);
	if (home && *home && asprintf(&opener->cache, "%s/.debug/.build-id", home) < 0)
		opener->cache = NULL;
	if (caches && *caches == '/') { /* others are to be ignored, says the XDG specification */
		if (asprintf(&opener->own, "%s/offwind", caches) < 0)
			opener->own = NULL;
	} else if (home && *home && asprintf(&opener->own, "%s/.cache/offwind", home) < 0) {
		opener->own = NULL;
	}
	if ((options->symfs && !opener->symfs) || (options->exe && !opener->exe) ||
	    (options->beside && !opener->beside) || (options->debug_dir && !opener->debug_dir)) {
		opener_free(opener);
		return -ENOMEM;
	}
	*out = opener;
	return 0;
}

void opener_free(struct opener *opener)
{
	if (!opener)
		return;
	fetcher_free(opener->fetcher);
	free(opener->symfs);
	free(opener->exe);
	free(opener->beside);
	free(opener->debug_dir);
	free(opener->cache);
	free(opener->own);
	free(opener);
}

/* Opens what an O_PATH descriptor names, if it is a regular file; takes it over. */
static int reopen(int path_fd, int *fd)
{
	char link[64];
	struct stat st;
	int err = 0, opened = -1;

	if (fstat(path_fd, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode))
		err = -EINVAL; /* a device or a pipe might block or do something */
	if (!err) {
		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
		opened = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY);
		if (opened < 0)
			err = -errno;
	}
	(void)close(path_fd);
	if (err)
		return err;
	*fd = opened;
	return 0;
}

int places_open(const char *path, int *fd)
{
	int path_fd = open(path, O_PATH | O_CLOEXEC);

	return path_fd < 0 ? -errno : reopen(path_fd, fd);
}

int places_open_below(const char *root, const char *path, int *fd)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int path_fd, err;

	if (dir < 0)
		return -errno;
	path_fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	err = path_fd < 0 ? -errno : 0;
	(void)close(dir);
	return err ? err : reopen(path_fd, fd);
}

/*
 * Without a build-id, a file that was put in place after the recording ended is
 * told by its change time, beside another inode than the one recorded (which
 * alone proves nothing: overlayfs shows others than the kernel records).
 */
static int check_age(const struct opener *opener, const struct opener_file *file, int fd)
{
	struct stat st;

	if (file->build_id.size || !opener->until_ns || opener->symfs)
		return 0;
	if (fstat(fd, &st))
		return -errno;
	if ((uint64_t)st.st_mtim.tv_sec > opener->until_ns / 1000000000)
		return -ESTALE;
	if (file->inode && (uint64_t)st.st_ino != file->inode &&
	    (uint64_t)st.st_ctim.tv_sec > opener->until_ns / 1000000000)
		return -ESTALE;
	return 0;
}

int places_open_cached(const struct opener *opener, const struct uw_build_id *id, const char *name,
		       int *fd)
{
	char path[4096], *p;
	size_t room;

	if (!opener->cache || id->size < 2)
		return -ENOENT;
	p = path + snprintf(path, sizeof(path), "%s/%02x/", opener->cache, id->bytes[0]);
	for (size_t i = 1; i < id->size; i++) {
		room = sizeof(path) - (size_t)(p - path);
		p += snprintf(p, room, "%02x", id->bytes[i]);
	}
	room = sizeof(path) - (size_t)(p - path);
	if ((size_t)snprintf(p, room, "/%s", name) >= room)
		return -ENAMETOOLONG;
	return places_open(path, fd);
}

/* By its base name alone; "..", a name that leads elsewhere, stays below the folder too. */
static int open_beside(const char *folder, const char *path, int *fd)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;

	return *base ? places_open_below(folder, base, fd) : -ENOENT;
}

/*
 * A mount of the file system that a file is on: any, of the whole or of a part,
 * since handles count from the file system itself.
 */
static int open_mount(const struct opener_file *file, int *fd)
{
	FILE *mounts;
	char *line = NULL, where[4096];
	size_t room = 0;
	struct stat root;
	int found = -1;

	/* In a chroot the root need not be a mount, so that no line tells of it. */
	if (!stat("/", &root) && major(root.st_dev) == file->major &&
	    minor(root.st_dev) == file->minor) {
		*fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		return *fd < 0 ? -errno : 0;
	}
	mounts = fopen("/proc/self/mountinfo", "re");
	if (!mounts)
		return -errno;
	while (found < 0 && getline(&line, &room, mounts) > 0) {
		unsigned int major, minor;

		/* proc(5): number, parent, device, root, place, … */
		if (sscanf(line, "%*s %*s %u:%u %*s %4095s", &major, &minor, where) == 3 &&
		    major == file->major && minor == file->minor)
			found = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	free(line);
	(void)fclose(mounts);
	if (found < 0)
		return -ENOENT;
	*fd = found;
	return 0;
}

/*
 * Handles as file systems without a form of their own make them
 * (include/linux/exportfs.h, FILEID_INO32_GEN), and XFS for large numbers.
 */
enum { HANDLE_INO32_GEN = 1, HANDLE_XFS_INO64_GEN = 0x81 };

/* The very file, be its process dead and its path unknown here, as long as it is not gone. */
static int open_by_inode(const struct opener_file *file, int *fd)
{
	union {
		struct file_handle handle;
		char room[sizeof(struct file_handle) + 12];
	} u = { .room = { 0 } };
	uint32_t generation = (uint32_t)file->inode_generation, small = (uint32_t)file->inode;
	bool large = file->inode > UINT32_MAX;
	size_t inode_size = large ? sizeof(file->inode) : sizeof(small);
	int mount, opened, err;

	if (!file->inode || !file->inode_generation || file->inode_generation > UINT32_MAX)
		return -ENOENT;
	err = open_mount(file, &mount);
	if (err)
		return err;
	u.handle.handle_bytes = (unsigned int)(inode_size + sizeof(generation));
	u.handle.handle_type = large ? HANDLE_XFS_INO64_GEN : HANDLE_INO32_GEN;
	memcpy(u.handle.f_handle, large ? (const void *)&file->inode : &small, inode_size);
	memcpy(u.handle.f_handle + inode_size, &generation, sizeof(generation));
	opened = open_by_handle_at(mount, &u.handle, O_PATH | O_CLOEXEC);
	/* ESTALE: there is no such file any more. */
	err = opened >= 0 ? 0 : errno == ESTALE ? -ENOENT : -errno;
	(void)close(mount);
	return err ? err : reopen(opened, fd);
}

enum candidate {
	EXE,
	BESIDE,
	MAP_FILES,
	PROCESS_ROOT,
	INODE,
	SYMFS,
	SYMFS_NAME, /* a few files that were copied there without their folders */
	PATH,
	CACHE,
	N_CANDIDATES
};

static int open_candidate(struct opener *opener, const struct opener_file *file,
			  enum candidate candidate, int *fd)
{
	char path[96];
	bool named = file->path[0] == '/' && !file->deleted;
	int err;

	switch (candidate) {
	case EXE:
		return opener->exe && file->main_program ? places_open(opener->exe, fd) : -ENOENT;
	case BESIDE:
		return opener->beside && !file->deleted
			       ? open_beside(opener->beside, file->path, fd)
			       : -ENOENT;
	case MAP_FILES: /* the very file, be it deleted, replaced or in another mount namespace */
		if (!opener->live || !file->pid)
			return -ENOENT;
		(void)snprintf(path, sizeof(path), "/proc/%u/map_files/%llx-%llx", file->pid,
			       (unsigned long long)file->start, (unsigned long long)file->end);
		return places_open(path, fd);
	case PROCESS_ROOT:
		if (!opener->live || !file->pid || !named)
			return -ENOENT;
		(void)snprintf(path, sizeof(path), "/proc/%u/root", file->pid);
		return places_open_below(path, file->path, fd);
	case INODE:
		return opener->live ? open_by_inode(file, fd) : -ENOENT;
	case SYMFS:
		return opener->symfs && named ? places_open_below(opener->symfs, file->path, fd)
					      : -ENOENT;
	case SYMFS_NAME:
		return opener->symfs && named && strchr(file->path + 1, '/')
			       ? open_beside(opener->symfs, file->path, fd)
			       : -ENOENT;
	case PATH:
		/* What lay beside another machine's recording says nothing of this machine's. */
		if (opener->symfs || opener->beside || !named)
			return -ENOENT;
		err = places_open(file->path, fd);
		if (!err)
			err = check_age(opener, file, *fd);
		if (err == -ESTALE)
			(void)close(*fd);
		return err;
	case CACHE:
		return places_open_cached(opener, &file->build_id, "elf", fd);
	case N_CANDIDATES:
		break;
	}
	return -ENOENT;
}

int opener_open(struct opener *opener, const struct opener_file *file, unsigned int *next, int *fd)
{
	int worst = -ENOENT;

	while (*next < N_CANDIDATES) {
		int opened, err = open_candidate(opener, file, (enum candidate)(*next)++, &opened);

		if (!err) {
			*fd = opened;
			return 0;
		}
		/* A process that is gone is no reason; that a file is no longer the one is. */
		if (err != -ENOENT && err != -ESRCH && worst != -ESTALE)
			worst = err;
	}
	return worst;
}

#define PERF_MAP_MAX ((off_t)256 << 20)

int opener_perf_map(struct opener *opener, uint32_t pid, uint32_t ns_pid, uint32_t uid, int *fd)
{
	struct open_how how = { .flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	char path[64];
	struct stat st;
	int dir, map, err = 0;

	(void)opener;
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/root", pid);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0) { /* it has ended; where its root was nobody knows any more */
		dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0)
			return -errno;
	}
	(void)snprintf(path, sizeof(path), "tmp/perf-%" PRIu32 ".map", ns_pid ? ns_pid : pid);
	map = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
	if (map < 0)
		err = -errno;
	(void)close(dir);
	if (err)
		return err;
	if (fstat(map, &st))
		err = -errno;
	else if (!S_ISREG(st.st_mode) || (st.st_uid != uid && st.st_uid != 0) || st.st_nlink != 1 ||
		 st.st_size > PERF_MAP_MAX)
		err = -EPERM;
	if (err)
		(void)close(map);
	else
		*fd = map;
	return err;
}

int opener_kallsyms(struct opener *opener, int *fd)
{
	int opened = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);

	(void)opener;
	if (opened < 0)
		return -errno;
	*fd = opened;
	return 0;
}

/* For this user alone, in a folder that is made likewise; a home must be there. */
static int make_folder(const char *path)
{
	char *above = strdup(path), *slash;
	int err = 0;

	if (!above)
		return -ENOMEM;
	slash = strrchr(above, '/');
	if (slash && slash != above) {
		*slash = '\0';
		(void)mkdir(above, 0700);
	}
	if (mkdir(path, 0700) && errno != EEXIST)
		err = -errno;
	free(above);
	return err;
}

static int copy_all(int from, int to)
{
	enum { CHUNK = 64 << 10 };
	char *chunk = malloc(CHUNK);
	size_t have = 0; /* the kernel gives a page at a time */
	ssize_t n = -1;

	while (chunk && (n = read(from, chunk + have, CHUNK - have)) >= 0) {
		have += (size_t)n;
		if (n && have < CHUNK)
			continue;
		if (write(to, chunk, have) != (ssize_t)have) {
			n = -1;
			errno = ENOSPC;
		}
		have = 0;
		if (n <= 0)
			break;
	}
	free(chunk);
	if (n < 0)
		return chunk ? -errno : -ENOMEM;
	return lseek(to, 0, SEEK_SET) < 0 ? -errno : 0;
}

int opener_copy_kallsyms(struct opener *opener, int *fd)
{
	int from = -1, to, err;

	if (!opener->own)
		return -ENOENT;
	err = make_folder(opener->own);
	if (err)
		return err;
	to = open(opener->own, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	err = opener_kallsyms(opener, &from);
	if (!err) {
		err = copy_all(from, to);
		(void)close(from);
	}
	if (err)
		(void)close(to);
	else
		*fd = to;
	return err;
}

/* Where our copy for this kernel is, and a name for it while it is being put there. */
static int own_path(const struct opener *opener, const struct uw_build_id *id, const char *suffix,
		    char *path, size_t room)
{
	char hex[2 * UW_BUILD_ID_MAX + 1] = "";

	if (!opener->own || !id->size)
		return -ENOENT;
	for (size_t i = 0; i < id->size; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", id->bytes[i]);
	if ((size_t)snprintf(path, room, "%s/kallsyms-%s%s", opener->own, hex, suffix) >= room)
		return -ENAMETOOLONG;
	return 0;
}

void opener_keep_kallsyms(struct opener *opener, const struct uw_build_id *id, int fd)
{
	char path[4096], fresh[4096], suffix[32], link[64];

	(void)snprintf(suffix, sizeof(suffix), ".%d", (int)getpid());
	if (own_path(opener, id, "", path, sizeof(path)) ||
	    own_path(opener, id, suffix, fresh, sizeof(fresh)))
		return;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, link, AT_FDCWD, fresh, AT_SYMLINK_FOLLOW))
		return;
	if (rename(fresh, path))
		(void)unlink(fresh);
}

int opener_kept_kallsyms(struct opener *opener, const struct uw_build_id *id, unsigned int *next,
			 int *fd)
{
	char path[4096];
	int err = -ENOENT;

	while (err && *next < 2) {
		if ((*next)++ == 0)
			err = places_open_cached(opener, id, "kallsyms", fd);
		else
			err = own_path(opener, id, "", path, sizeof(path));
		if (!err && *next == 2)
			err = places_open(path, fd);
	}
	return err ? -ENOENT : 0;
}

int opener_vdso(const struct opener *opener, const void **image, size_t *size)
{
	const uint8_t *start = (const uint8_t *)getauxval(AT_SYSINFO_EHDR);
	Elf64_Ehdr header;

	(void)opener;
	if (!start)
		return -ENOENT;
	memcpy(&header, start, sizeof(header));
	/* The section headers end the image; the kernel made it, so it is taken at its word. */
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || !header.e_shoff)
		return -ENOENT;
	*image = start;
	*size = header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
	return 0;
}

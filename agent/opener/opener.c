#include "agent/opener/opener.h"

#include "agent/opener/fetcher.h"
#include "agent/opener/places.h"
#include "agent/opener/symfs.h"
#include "agent/opener/user.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
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
	opener->other_host = options->other_host;
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
	symfs_free(opener->below);
	free(opener->symfs);
	free(opener->exe);
	free(opener->beside);
	free(opener->debug_dir);
	free(opener->cache);
	free(opener->own);
	free(opener);
}

/* Return 0 if the file behind an O_PATH descriptor is a regular one, which everybody may read if public is set. */
static int check_path(int path_fd, bool public)
{
	struct stat st;

	if (fstat(path_fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL; /* a device or a pipe might block or do something */
	return public && !(st.st_mode & S_IROTH) ? -EACCES : 0;
}

/* Open what an O_PATH descriptor names with this thread's rights as they are, and take the descriptor over. */
static int reopen(int path_fd, bool public, int *fd)
{
	char link[64];
	int err = check_path(path_fd, public), opened = -1;

	if (!err) {
		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
		/* Whoever has a lease on it would be asked first, and may take 45 s to answer. */
		opened = open(link, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (opened < 0)
			err = -errno;
	}
	(void)close(path_fd);
	if (err)
		return err;
	*fd = opened;
	return 0;
}

int places_open(const char *path, const struct opener_user *user, int *fd)
{
	return places_open_at(AT_FDCWD, path, LINKS_FOLLOWED, user, fd);
}

static int open_how(int root, const char *path, const struct open_how *how)
{
	if (root == AT_FDCWD)
		return open(path, (int)how->flags);
	return (int)syscall(SYS_openat2, root, path, how, sizeof(*how));
}

/* Open a regular file a second time by its name, where there is no /proc to open it by a descriptor. */
static int open_again(int root, const char *path, const struct open_how *how,
		      const struct stat *was, int *fd)
{
	struct open_how again = *how;
	struct stat st;
	int opened;

	again.flags = (how->flags & ~(uint64_t)O_PATH) | O_RDONLY | O_NOCTTY | O_NONBLOCK;
	opened = open_how(root, path, &again);
	if (opened < 0)
		return -errno;
	if (fstat(opened, &st) || st.st_dev != was->st_dev || st.st_ino != was->st_ino) {
		(void)close(opened);
		return -ESTALE; /* another file has the name by now */
	}
	*fd = opened;
	return 0;
}

int places_open_at(int root, const char *path, enum place_links links,
		   const struct opener_user *user, int *fd)
{
	struct stat was;
	struct open_how how = { .flags = O_PATH | O_CLOEXEC,
				.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
	struct user_left left;
	int path_fd, err;
	bool public;

	if (links != LINKS_FOLLOWED) /* the link itself is opened then, and is no regular file */
		how.flags |= O_NOFOLLOW;
	if (links == NO_LINKS)
		how.resolve |= RESOLVE_NO_SYMLINKS;
	err = user_enter(user, &left, &public);
	if (err)
		return err;
	path_fd = open_how(root, path, &how);
	err = path_fd < 0 ? -errno : 0;
	if (!err && fstat(path_fd, &was))
		err = -errno;
	if (!err)
		err = reopen(path_fd, public, fd);
	else if (path_fd >= 0)
		(void)close(path_fd);
	if (err == -ENOENT && path_fd >= 0 && access("/proc/self/fd", F_OK))
		err = open_again(root, path, &how, &was, fd);
	user_leave(&left);
	return err;
}

int places_open_below(const char *root, const char *path, int *fd)
{
	int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), err;

	if (dir < 0)
		return -errno;
	err = places_open_at(dir, path, LINKS_FOLLOWED, NULL, fd);
	(void)close(dir);
	return err;
}

int places_process(const struct opener *opener, uint32_t pid, struct place_process *out)
{
	char path[32];
	int dir, err;

	*out = (struct place_process){ .root = -1 };
	if (!opener->live || !pid)
		return -ESRCH;
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32, pid);
	dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	/* The root comes first: whose it is may be less by then, but not more, but for root itself. */
	out->root = openat(dir, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	err = user_of(dir, &out->user);
	(void)close(dir);
	if (err)
		places_process_close(out);
	return err;
}

void places_process_close(struct place_process *process)
{
	if (process->root >= 0)
		(void)close(process->root);
	process->root = -1;
}

void opener_user_of(const struct opener *opener, uint32_t pid, struct opener_user *out)
{
	struct place_process process;

	(void)places_process(opener, pid, &process);
	places_process_close(&process);
	*out = process.user;
}

const struct opener_user *places_user(const struct opener *opener, const struct opener_file *file,
				      const struct place_process *process)
{
	static const struct opener_user unknown = { .known = false };

	if (!opener->live)
		return NULL;
	if (process->user.known)
		return &process->user;
	return file->user ? file->user : &unknown;
}

/*
 * Without a build-id, a file that was put in place after the recording ended is
 * told by its change time, beside another inode than the one recorded (which
 * alone proves nothing: overlayfs shows others than the kernel records).
 */
static int check_age(const struct opener *opener, const struct opener_file *file, int fd)
{
	struct stat st;

	if (opener->other_host && !file->build_id.size)
		return -EREMOTE;
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

int places_id_path(const struct uw_build_id *id, const char *suffix, char *out, size_t room)
{
	static const char digits[] = "0123456789abcdef";

	if (id->size < 2)
		return -ENOENT;
	if (room < sizeof(".build-id//") + 2 * (size_t)id->size + strlen(suffix))
		return -ENAMETOOLONG;
	out = stpcpy(out, ".build-id/");
	for (size_t i = 0; i < id->size; i++) {
		*out++ = digits[id->bytes[i] >> 4];
		*out++ = digits[id->bytes[i] & 15];
		if (!i)
			*out++ = '/';
	}
	(void)strcpy(out, suffix);
	return 0;
}

int places_open_cached(const struct opener *opener, const struct uw_build_id *id, const char *name,
		       const struct opener_user *user, int *fd)
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
	return places_open(path, user, fd);
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
int places_open_inode(const struct opener_file *file, int *fd)
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
	return err ? err : reopen(opened, false, fd);
}

/* The file that is mapped there, with the rights of user; NULL: this program's. */
static int open_mapped(const struct opener_file *file, const struct opener_user *user, int *fd)
{
	struct user_left left;
	int path_fd, err;
	char path[96];
	bool public;

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/map_files/%llx-%llx", file->pid,
		       (unsigned long long)file->start, (unsigned long long)file->end);
	path_fd = open(path, O_PATH | O_CLOEXEC);
	if (path_fd < 0)
		return -errno;
	err = places_is_served(file->pid, path_fd) ? -EREMOTEIO : user_enter(user, &left, &public);
	if (err) {
		(void)close(path_fd);
		return err;
	}
	err = reopen(path_fd, public, fd);
	user_leave(&left);
	return err;
}

/*
 * Return whether an open file is the one that the kernel mapped, by all the numbers it told.  Where a record with the
 * inode was lost, the build-id decides, which the reader compares: nobody knows that of a file he cannot read.
 */
static bool is_mapped(const struct opener_file *file, int fd)
{
	struct stat st;
	long generation = 0;

	if (!file->inode)
		return file->build_id.size >= 16;
	return !fstat(fd, &st) && st.st_ino == file->inode && major(st.st_dev) == file->major &&
	       minor(st.st_dev) == file->minor &&
	       (!file->inode_generation || ioctl(fd, FS_IOC_GETVERSION, &generation) ||
		(uint32_t)generation == (uint32_t)file->inode_generation);
}

/*
 * Open a file by its path in a process's root or in this program's (AT_FDCWD): with the rights of user, or, where those
 * do not suffice, with this program's if it is the very file that the kernel mapped.  The process may have ended, so
 * that nobody knows any more whose it was.
 */
static int open_path(int root, const struct opener_file *file, const struct opener_user *user,
		     int *fd)
{
	int opened, err = places_open_at(root, file->path, LINKS_FOLLOWED, user, &opened);

	if (err == -EACCES && user && !file->named) {
		if (places_open_at(root, file->path, LINKS_FOLLOWED, NULL, &opened))
			return err;
		if (is_mapped(file, opened))
			err = 0;
		else
			(void)close(opened);
	}
	if (!err)
		*fd = opened;
	return err;
}

enum candidate {
	EXE,
	BESIDE,
	MAP_FILES,
	PROCESS_ROOT,
	INODE,
	SYMFS,
	SYMFS_NAME, /* a few files that were copied there without their folders */
	SYMFS_ID,   /* as debug roots, distributions and perf's cache lay out files by build-id */
	SYMFS_DEBUG_ID,
	SYMFS_CACHE_ID,
	PATH,
	CACHE,
	N_CANDIDATES /* files below symfs with the same base name follow */
};

/* Open the file of that build-id below symfs: DIR/.build-id/ab/cdef…SUFFIX. */
static int open_by_id(const struct opener *opener, const struct uw_build_id *id, const char *dir,
		      const char *suffix, int *fd)
{
	char path[sizeof("/usr/lib/debug/.build-id//elf") + 2 * UW_BUILD_ID_MAX];
	size_t used = strlen(dir) + 1;
	int err = -ENOENT;

	if (opener->symfs && used < sizeof(path)) {
		(void)sprintf(path, "%s/", dir);
		err = places_id_path(id, suffix, path + used, sizeof(path) - used);
	}
	if (err)
		return err;
	return places_open_below(opener->symfs, path, fd);
}

/* Open file number i below symfs that has the recorded file's base name.  -ENXIO: there are no more. */
static int open_namesake(struct opener *opener, const struct opener_file *file, size_t i, int *fd)
{
	const char *path;

	/* Only a build-id tells which of several is the one. */
	if (!opener->symfs || !file->build_id.size || file->deleted ||
	    (!opener->below && symfs_new(opener->symfs, &opener->below)))
		return -ENXIO;
	path = symfs_find(opener->below, file->path, i);
	return path ? places_open_below(opener->symfs, path, fd) : -ENXIO;
}

static int open_candidate(struct opener *opener, const struct opener_file *file,
			  const struct place_process *process, enum candidate candidate, int *fd)
{
	bool named = file->path[0] == '/' && !file->deleted;
	const struct opener_user *user = file->compared ? NULL : places_user(opener, file, process);
	int err;

	switch (candidate) {
	case EXE:
		return opener->exe && file->main_program ? places_open(opener->exe, NULL, fd)
							 : -ENOENT;
	case BESIDE:
		return opener->beside && !file->deleted
			       ? open_beside(opener->beside, file->path, fd)
			       : -ENOENT;
	case MAP_FILES: /* the very file, be it deleted, replaced or in another mount namespace */
		if (!opener->live || !file->pid)
			return -ENOENT;
		return open_mapped(file, file->named ? user : NULL, fd);
	case PROCESS_ROOT:
		if (process->root < 0 || !named)
			return -ENOENT;
		return open_path(process->root, file, user, fd);
	case INODE:
		return opener->live && !file->named ? places_open_inode(file, fd) : -ENOENT;
	case SYMFS:
		return opener->symfs && !file->deleted
			       ? places_open_below(opener->symfs, file->path, fd)
			       : -ENOENT;
	case SYMFS_NAME:
		return opener->symfs && !file->deleted && strchr(file->path + 1, '/')
			       ? open_beside(opener->symfs, file->path, fd)
			       : -ENOENT;
	case SYMFS_ID:
		return open_by_id(opener, &file->build_id, "", "", fd);
	case SYMFS_DEBUG_ID:
		return open_by_id(opener, &file->build_id, "/usr/lib/debug", "", fd);
	case SYMFS_CACHE_ID:
		return open_by_id(opener, &file->build_id, "", "/elf", fd);
	case PATH:
		/* Of another machine's recording, only a build-id proves that this machine has the file. */
		if (opener->beside || !named || (opener->symfs && !file->build_id.size))
			return -ENOENT;
		err = open_path(AT_FDCWD, file, user, fd);
		if (!err)
			err = check_age(opener, file, *fd);
		if (err == -ESTALE || err == -EREMOTE)
			(void)close(*fd);
		return err;
	case CACHE:
		return places_open_cached(opener, &file->build_id, "elf", user, fd);
	case N_CANDIDATES:
		break;
	}
	return -ENOENT;
}

int opener_open(struct opener *opener, const struct opener_file *file, unsigned int *next, int *fd)
{
	struct place_process process = { .root = -1 };
	bool asked = false;
	int worst = -ENOENT;

	if (opener->live && opener_device_is_served(file->pid, file->major, file->minor)) {
		*next = N_CANDIDATES;
		return -EREMOTEIO;
	}
	while (worst) {
		enum candidate candidate = (enum candidate)(*next)++;
		int opened, err;

		if (candidate >= N_CANDIDATES) {
			err = open_namesake(opener, file, candidate - N_CANDIDATES, fd);
			if (err == -ENXIO)
				break;
			if (!err)
				worst = 0;
			continue;
		}

		/* The mapped file itself comes first, and needs nobody's rights. */
		if (!asked && (candidate > MAP_FILES || file->named)) {
			(void)places_process(opener, file->pid, &process);
			asked = true;
		}
		err = open_candidate(opener, file, &process, candidate, &opened);
		if (!err) {
			*fd = opened;
			worst = 0;
			continue;
		}
		/* Nor is its path to be looked up. */
		if (err == -EREMOTEIO) {
			*next = N_CANDIDATES;
			worst = err;
			break;
		}
		/* A process that is gone is no reason; that a file is no longer the one is. */
		if (err != -ENOENT && err != -ESRCH && worst != -ESTALE)
			worst = err;
	}
	places_process_close(&process);
	return worst;
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
			err = places_open_cached(opener, id, "kallsyms", NULL, fd);
		else
			err = own_path(opener, id, "", path, sizeof(path));
		if (!err && *next == 2)
			err = places_open(path, NULL, fd);
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

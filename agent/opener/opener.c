/*
 * agent/opener/opener.c: opens the files of other processes: candidate places, rights and checks.
 */
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
	if (caches && *caches == '/') { /* the XDG specification says to ignore relative paths */
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

/*
 * Return 0 if the file behind an O_PATH descriptor is a regular file and, if public is set,
 * everybody may read it.
 */
static int check_path(int path_fd, bool public)
{
	struct stat st;

	if (fstat(path_fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL; /* a device or a pipe might block or do something */
	return public && !(st.st_mode & S_IROTH) ? -EACCES : 0;
}

/*
 * Open for reading what an O_PATH descriptor refers to, with this thread's current rights. Closes
 * path_fd in any case.
 */
static int reopen(int path_fd, bool public, int *fd)
{
	char link[64];
	int err = check_path(path_fd, public), opened = -1;

	if (!err) {
		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
		/*
		 * Without O_NONBLOCK, open would wait for a holder of a lease on the file, up to 45
		 * s (fcntl(2)).
		 */
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

/*
 * Open path below root with the flags and resolve rules of how. A path below AT_FDCWD is opened by
 * open(2), without the resolve rules.
 */
static int open_how(int root, const char *path, const struct open_how *how)
{
	if (root == AT_FDCWD)
		return open(path, (int)how->flags);
	return (int)syscall(SYS_openat2, root, path, how, sizeof(*how));
}

/*
 * Open a regular file a second time by its name, for systems where no /proc is mounted. was is the
 * result of the first fstat; -ESTALE if the name belongs to another file by now.
 */
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

	if (links != LINKS_FOLLOWED) /* opens a link itself, which is not a regular file */
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
	/*
	 * Open the root first. The user read after it may have fewer rights than the one the root
	 * belongs to, but not more, unless it is root itself.
	 */
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
 * Check whether a file without a build-id can be the recorded one. A file that was put in place
 * after the recording ended shows this by its modification time, or by its change time together
 * with an inode other than the recorded one. A different inode alone proves nothing: overlayfs
 * shows other inodes than the kernel records. -EREMOTE: the recording is of another machine;
 * -ESTALE: another file.
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

/*
 * Open a file by its base name below folder. A base name of ".." or a link cannot lead out of
 * folder.
 */
static int open_beside(const char *folder, const char *path, int *fd)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;

	return *base ? places_open_below(folder, base, fd) : -ENOENT;
}

/* Decode \ooo in place: proc(5) writes spaces, tabs, newlines and backslashes of a path so. Return the path. */
static const char *unescaped(char *path)
{
	char *to = path;

	for (const char *from = path; *from;) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' &&
		    from[2] <= '7' && from[3] >= '0' && from[3] <= '7') {
			*to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 |
				       (from[3] - '0'));
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
	return path;
}

/*
 * Open a mount of the file system that the file is on. Any mount of the whole or of a part of the
 * file system will do, because file handles are relative to the file system itself.
 */
static int open_mount(const struct opener_file *file, int *fd)
{
	FILE *mounts;
	char *line = NULL, where[4096];
	size_t room = 0;
	struct stat root;
	int found = -1;

	/* In a chroot the root need not be a mount point, so mountinfo may have no line for it. */
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

		/* proc(5): mount ID, parent ID, device, root, mount point, … */
		if (sscanf(line, "%*s %*s %u:%u %*s %4095s", &major, &minor, where) == 3 &&
		    major == file->major && minor == file->minor)
			found = open(unescaped(where), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	free(line);
	(void)fclose(mounts);
	if (found < 0)
		return -ENOENT;
	*fd = found;
	return 0;
}

/*
 * Types of file handles: the generic form for file systems that define no other
 * (include/linux/exportfs.h, FILEID_INO32_GEN), and the form of XFS for large inode numbers.
 */
enum { HANDLE_INO32_GEN = 1, HANDLE_XFS_INO64_GEN = 0x81 };

/*
 * Open the very file, even if its process has ended and its path is unknown here, as long as the
 * file exists.
 */
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
	/* ESTALE: the file does not exist any more. */
	err = opened >= 0 ? 0 : errno == ESTALE ? -ENOENT : -errno;
	(void)close(mount);
	return err ? err : reopen(opened, false, fd);
}

/* Open the file behind file's mapping with the rights of user; NULL: with this program's rights. */
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
 * Return whether an open file is the one that the kernel mapped, by all the numbers that the kernel
 * reported. If the record with the inode was lost, accept a file with a build-id of at least 16
 * bytes: the reader compares the build-id, and a stranger cannot know the build-id of a file that
 * he cannot read.
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
 * Open a file by its path in a process's root or in this program's root (AT_FDCWD), with the rights
 * of user. If those rights do not suffice, open it with this program's rights, but only accept the
 * very file that the kernel mapped. This is needed when the process has ended and its user is not
 * known any more.
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
	SYMFS_NAME, /* a few files that were copied there without their directories */
	SYMFS_ID,   /* the build-id layouts of debug roots, distributions and perf's cache */
	SYMFS_DEBUG_ID,
	SYMFS_CACHE_ID,
	PATH,
	CACHE,
	N_CANDIDATES /* larger numbers: files below symfs with the same base name */
};

/* Open the file of this build-id below symfs: DIR/.build-id/ab/cdef…SUFFIX. */
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

/*
 * Open file number i below symfs that has the recorded file's base name. -ENXIO: there are no more.
 */
static int open_namesake(struct opener *opener, const struct opener_file *file, size_t i, int *fd)
{
	const char *path;

	/* Several files can have the name; only a build-id can tell which one is right. */
	if (!opener->symfs || !file->build_id.size || file->deleted ||
	    (!opener->below && symfs_new(opener->symfs, &opener->below)))
		return -ENXIO;
	path = symfs_find(opener->below, file->path, i);
	return path ? places_open_below(opener->symfs, path, fd) : -ENXIO;
}

/* Open one candidate. Each way of finding the file chooses the rights itself: see opener_open. */
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
	case MAP_FILES: /* the very file, even if deleted, replaced or in another mount namespace */
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
		/*
		 * For a recording of another machine, only a build-id proves that this machine has
		 * the file.
		 */
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

		/*
		 * The mapped file comes first and needs no user's rights, so read the process only
		 * after it.
		 */
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
		/*
		 * Another user's program serves the file: its path must not be looked up, either.
		 */
		if (err == -EREMOTEIO) {
			*next = N_CANDIDATES;
			worst = err;
			break;
		}
		/*
		 * Report the most useful error: not that the process has ended, but -ESTALE before
		 * all others.
		 */
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

/*
 * Create a directory for this user alone, and its parent in the same way. The grandparent (usually
 * the home directory) must exist.
 */
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

/*
 * Copy all bytes from one descriptor to the other and rewind the copy. Return 0 or a negative code.
 */
static int copy_all(int from, int to)
{
	enum { CHUNK = 64 << 10 };
	char *chunk = malloc(CHUNK);
	size_t have = 0; /* the kernel returns one page for each read */
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

/*
 * Write the path of our kallsyms copy for this kernel. suffix makes the temporary name that the
 * copy has before it is renamed.
 */
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

/* Candidate 0 is perf's copy, candidate 1 is our own. */
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
	/*
	 * The section headers are the last part of the image. The kernel made the image, so trust
	 * it.
	 */
	if (header.e_ident[EI_CLASS] != ELFCLASS64 || !header.e_shoff)
		return -ENOENT;
	*image = start;
	*size = header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
	return 0;
}

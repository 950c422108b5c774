/*
 * agent/opener/opener.c: opens the files of other processes: one candidate after another.
 */
#include "agent/opener/opener.h"

#include "agent/opener/fetcher.h"
#include "agent/opener/places.h"
#include "agent/opener/request.h"
#include "agent/opener/symfs.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The paths below HOME and XDG_CACHE_HOME are optional: without memory for one, it is not used. */
int opener_new(const struct opener_options *options, struct opener **out)
{
	struct opener *opener = calloc(1, sizeof(*opener));
	const char *home = getenv("HOME"), *caches = getenv("XDG_CACHE_HOME");
	int err;

	if (!opener)
		return -ENOMEM;
	err = request_new(options, &opener->number);
	if (err) {
		free(opener);
		return err;
	}
	opener->live = options->live;
	opener->irreplaceable = options->irreplaceable;
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

/*
 * Open a file by its base name below directory. A base name of ".." or a link cannot lead out of
 * directory.
 */
static int open_beside(const char *directory, const char *path, int *fd)
{
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;

	return *base ? places_open_below(directory, base, fd) : -ENOENT;
}

bool places_is_mapped(const struct opener_file *file, int fd)
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
		if (places_is_mapped(file, opened))
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
		return places_open_mapped(opener, file, file->named ? user : NULL, fd);
	case PROCESS_ROOT:
		if (process->root < 0 || !named)
			return -ENOENT;
		return opener->irreplaceable ? places_open_known(process->root, file, user, fd)
					     : open_path(process->root, file, user, fd);
	case INODE:
		return opener->live && !file->named ? places_open_inode(file, fd) : -ENOENT;
	case SYMFS:
		return opener->symfs && !file->deleted
			       ? places_open_below(opener->symfs, file->path, fd)
			       : -ENOENT;
	case SYMFS_NAME:
		return opener->symfs && !file->deleted && *file->path && strchr(file->path + 1, '/')
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
		if (opener->beside || !named || opener->irreplaceable ||
		    (opener->symfs && !file->build_id.size))
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

/* Return whether the file must not be opened, because a program serves it. */
static bool is_served(const struct opener *opener, const struct opener_file *file)
{
	return opener->irreplaceable
		       ? opener_device_is_fuse(file->pid, file->major, file->minor)
		       : opener->live &&
				 opener_device_is_served(file->pid, file->major, file->minor);
}

int opener_open(struct opener *opener, const struct opener_file *file, unsigned int *next, int *fd)
{
	struct place_process process = { .root = -1 };
	bool asked = false;
	int worst = -ENOENT;

	if (opener->number)
		return request_file(&(struct request){ .what = REQUEST_OPEN,
						       .opener = opener->number,
						       .file = *file,
						       .fd = -1 },
				    next, fd);
	if (is_served(opener, file)) {
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

/*
 * agent/opener/places.c: opens regular files by path, mapping or inode, with a chosen user's rights.
 */
#include "agent/opener/places.h"

#include "agent/opener/request.h"
#include "agent/opener/user.h"
#include "agent/source/procfs.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

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

/*
 * Open with O_PATH first, which has no effect on devices and pipes; reopen then opens regular files
 * only. Without /proc, open_again does the same by the path.
 */
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

int places_known(int root, const char *path, int flags)
{
	struct open_how how = { .flags = (unsigned int)flags | O_PATH | O_CLOEXEC,
				.resolve =
					RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_CACHED };
	int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));

	/* Before Linux 5.12 there is no such flag; nor can users mount overlays, whose layers can be another's program. */
	if (fd < 0 && errno == EINVAL) {
		how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
		fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
	}
	return fd < 0 ? -errno : fd;
}

int places_open_known(int root, const struct opener_file *file, const struct opener_user *user,
		      int *fd)
{
	struct user_left left;
	int path_fd, err;
	bool public;

	err = user_enter(user, &left, &public);
	if (err)
		return err;
	path_fd = places_known(root, file->path, 0);
	if (path_fd < 0) {
		err = path_fd;
	} else if (places_is_fuse(file->pid, path_fd)) {
		(void)close(path_fd);
		err = -EREMOTEIO;
	} else {
		err = reopen(path_fd, public, fd);
	}
	user_leave(&left);
	return err;
}

int places_root(uint32_t pid, int *fd)
{
	int process, err = places_process_directory(pid, &process);

	if (err)
		return err;
	err = places_process_open(process, "root", O_PATH | O_DIRECTORY, fd);
	(void)close(process);
	return err;
}

int opener_known_directory(uint32_t pid, const char *path, uint32_t major, uint32_t minor, int *fd)
{
	int root, found, err = places_root(pid, &root);
	struct statx st;

	if (err)
		return err;
	found = places_known(root, path, O_DIRECTORY);
	(void)close(root);
	if (found < 0)
		return found;
	if (statx(found, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) ||
	    st.stx_dev_major != major || st.stx_dev_minor != minor) {
		(void)close(found);
		return -ENOENT;
	}
	*fd = found;
	return 0;
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
	int dir, err;

	*out = (struct place_process){ .root = -1 };
	if (!opener->live || !pid)
		return -ESRCH;
	err = places_process_directory(pid, &dir);
	if (err)
		return err;
	/*
	 * Open the root first. The user read after it may have fewer rights than the one the root
	 * belongs to, but not more, unless it is root itself.
	 */
	(void)places_process_open(dir, "root", O_PATH | O_DIRECTORY, &out->root);
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

	if (opener->number && opener->live) {
		struct request request = {
			.what = REQUEST_USER_OF, .opener = opener->number, .pid = pid, .fd = -1
		};
		struct reply reply;

		(void)request_call(&request, &reply);
		*out = reply.user;
		return;
	}
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

int places_id_path(const struct uw_build_id *id, const char *suffix, char *out, size_t room)
{
	char hex[2 * UW_BUILD_ID_MAX + 1];

	if (id->size < 2)
		return -ENOENT;
	(void)textbuf_build_id(id, hex);
	if ((size_t)snprintf(out, room, ".build-id/%.2s/%s%s", hex, hex + 2, suffix) >= room)
		return -ENAMETOOLONG;
	return 0;
}

int places_open_cached(const struct opener *opener, const struct uw_build_id *id, const char *name,
		       const struct opener_user *user, int *fd)
{
	char path[4096], hex[2 * UW_BUILD_ID_MAX + 1];

	if (!opener->cache || id->size < 2)
		return -ENOENT;
	(void)textbuf_build_id(id, hex);
	if ((size_t)snprintf(path, sizeof(path), "%s/%.2s/%s/%s", opener->cache, hex, hex + 2,
			     name) >= sizeof(path))
		return -ENAMETOOLONG;
	return places_open(path, user, fd);
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
			found = open(procfs_mount_path(where), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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

int places_open_mapped(const struct opener *opener, const struct opener_file *file,
		       const struct opener_user *user, int *fd)
{
	struct user_left left;
	int path_fd, err;
	bool public, served;

	err = places_mapped_link(file, &path_fd);
	if (err)
		return err;
	served = opener->irreplaceable ? places_is_fuse(file->pid, path_fd)
				       : places_is_served(file->pid, path_fd);
	err = served ? -EREMOTEIO : user_enter(user, &left, &public);
	if (err) {
		(void)close(path_fd);
		return err;
	}
	err = reopen(path_fd, public, fd);
	user_leave(&left);
	return err;
}

/* agent/live/system/cgroup.c: cgroups of the cgroup2 hierarchy: ids and paths. */
#include "agent/live/system/cgroup.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 64

/* include/linux/exportfs.h, FILEID_KERNFS: the handle is the 64-bit inode number. */
#define HANDLE_KERNFS 0xfe
#define ROOT_INODE    1 /* of the hierarchy: the first that kernfs gives */

struct hierarchy {
	char root[PATH_MAX];  /* the part that is mounted: "/", except in a cgroup namespace */
	char mount[PATH_MAX]; /* the mount point */
};

/* Return whether a path has a component "..". */
static bool goes_up(const char *path)
{
	size_t length = strlen(path);

	return strstr(path, "/../") || (length >= 3 && !strcmp(path + length - 3, "/.."));
}

/* Find the mount of the cgroup2 hierarchy. -ENOENT: there is none. */
static int find_hierarchy(struct hierarchy *h)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char *line = NULL, format[64];
	int err = -ENOENT;
	size_t room = 0;
	struct stat st;

	if (!file)
		return -errno;
	_Static_assert(PATH_MAX == 4096, "as in the format");
	while (err && getline(&line, &room, file) > 0) {
		const char *type = strstr(line, " - ");

		/*
		 * proc(5): spaces are written as \040. They are not decoded: nobody mounts cgroup2
		 * at such a place.
		 */
		if (type && sscanf(type, " - %63s", format) == 1 && !strcmp(format, "cgroup2") &&
		    sscanf(line, "%*s %*s %*s %4095s %4095s", h->root, h->mount) == 2)
			err = 0;
	}
	free(line);
	(void)fclose(file);
	/*
	 * cgroup_namespaces(7): the root of a mount from outside of the namespace, such as a volume of a
	 * container, is "/..", "/../.." and so on.
	 */
	if (!err && goes_up(h->root) && !stat(h->mount, &st) && st.st_ino == ROOT_INODE)
		(void)strcpy(h->root, "/");
	return err;
}

/* Return what follows the directory in a path, "" or from its slash on, or NULL if the path lies elsewhere. */
static const char *rest_below(const char *path, const char *directory)
{
	size_t length = strlen(directory);

	if (strncmp(path, directory, length) != 0 || (path[length] != '/' && path[length]))
		return NULL;
	return path + length;
}

/*
 * Take paths with and without the mount point. In a cgroup namespace, the root that
 * /proc/self/mountinfo states is a part of the path, too.
 */
int live_cgroup_name(const char *path, char *name, size_t size)
{
	struct hierarchy *h = malloc(sizeof(*h));
	int err = h ? find_hierarchy(h) : -ENOMEM, n = 0;

	if (!err) {
		const char *rest = rest_below(path, h->mount);
		const char *root = strcmp(h->root, "/") != 0 ? h->root : "";

		if (rest)
			path = rest;
		rest = *root ? rest_below(path, root) : NULL;
		if (rest)
			path = rest;
		while (*path == '/')
			path++;
		n = snprintf(name, size, "%s/%s", root, path);
		while (n > 1 && (size_t)n < size && name[n - 1] == '/')
			name[--n] = '\0';
	}
	if (!err && (size_t)n >= size)
		err = -ENAMETOOLONG;
	if (!err && goes_up(name))
		err = -EINVAL;
	free(h);
	return err;
}

struct walk {
	live_cgroup_fn fn;
	void *ctx;
	char path[PATH_MAX]; /* of the current cgroup; "": the root */
};

/*
 * Report a cgroup and those below it. fd is the cgroup's directory, and is closed here. A cgroup that
 * is removed meanwhile is left out.
 */
static int walk(struct walk *w, int fd, uint64_t id, int depth)
{
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	size_t length = strlen(w->path);
	struct dirent *entry;
	int err;

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return 0;
	}
	err = w->fn(w->ctx, id, length ? w->path : "/");
	while (!err && depth < DEPTH_MAX && (entry = readdir(dir))) {
		if (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
		    length + strlen(entry->d_name) + 2 > sizeof(w->path))
			continue;
		(void)snprintf(w->path + length, sizeof(w->path) - length, "/%s", entry->d_name);
		err = walk(w, openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
			   entry->d_ino, depth + 1);
		w->path[length] = '\0';
	}
	(void)closedir(dir);
	return err;
}

int live_cgroup_each(live_cgroup_fn fn, void *ctx)
{
	struct hierarchy *h = malloc(sizeof(*h));
	struct walk *w = calloc(1, sizeof(*w));
	int fd = -1, err = h && w ? find_hierarchy(h) : -ENOMEM;
	struct stat st;

	if (!err) {
		fd = open(h->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st)) {
			err = -errno;
			if (fd >= 0)
				(void)close(fd);
		}
	}
	if (!err) {
		w->fn = fn;
		w->ctx = ctx;
		if (strcmp(h->root, "/") != 0)
			strcpy(w->path, h->root);
		err = walk(w, fd, st.st_ino, 0);
	}
	free(h);
	free(w);
	return err;
}

/* ---- ids to paths ------------------------------------------------------------------ */

struct live_cgroup_paths {
	struct hierarchy hierarchy;
	int fd;
	/*
	 * The ids of the cgroups whose path was asked for last. When the newer ones are as many as they
	 * may be, they become the older ones, which are forgotten then. An id that is asked for again moves
	 * to the newer ones.
	 */
	struct asked {
		uint64_t *ids;
		size_t n, room;
		struct uw_hash_index by_id;
	} newer, older;
	size_t most; /* of each */
};

/* Of a cgroup that is forgotten here, the path is reported again; a worker remembers more of them. */
#define ASKED_PART 8

/*
 * The directory stays open: open_by_handle_at(2) needs a descriptor in the hierarchy's file system.
 */
int live_cgroup_paths_new(struct live_cgroup_paths **out)
{
	struct live_cgroup_paths *paths = calloc(1, sizeof(*paths));
	int err = paths ? find_hierarchy(&paths->hierarchy) : -ENOMEM;

	if (!err) {
		paths->most = (size_t)limits.cgroups / ASKED_PART;
		paths->fd = open(paths->hierarchy.mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (paths->fd < 0)
			err = -errno;
	}
	if (err) {
		free(paths);
		return err;
	}
	*out = paths;
	return 0;
}

static void asked_fini(struct asked *asked)
{
	uw_hash_fini(&asked->by_id);
	free(asked->ids);
}

void live_cgroup_paths_free(struct live_cgroup_paths *paths)
{
	if (!paths)
		return;
	(void)close(paths->fd);
	asked_fini(&paths->newer);
	asked_fini(&paths->older);
	free(paths);
}

static bool was_asked(const struct asked *asked, uint64_t id)
{
	return UW_HASH_FIND(i, &asked->by_id, hash_u64(0, id), asked->ids[i] == id) != UW_HASH_NONE;
}

/* Add a cgroup to those that were asked for. -EEXIST: it was among them; -ENOMEM. */
static int note_asked(struct live_cgroup_paths *paths, uint64_t id)
{
	struct asked *newer = &paths->newer;
	bool known;

	if (was_asked(newer, id))
		return -EEXIST;
	known = was_asked(&paths->older, id);
	if (newer->n == paths->most) {
		asked_fini(&paths->older);
		paths->older = *newer;
		*newer = (struct asked){ .n = 0 };
	}
	if (array_grow(newer->ids, newer->n, newer->room) ||
	    uw_hash_add(&newer->by_id, hash_u64(0, id), (uint32_t)newer->n))
		return -ENOMEM;
	newer->ids[newer->n++] = id;
	return known ? -EEXIST : 0;
}

int live_cgroup_path(const struct live_cgroup_paths *paths, uint64_t id, char *path, size_t size)
{
	union {
		struct file_handle handle;
		char bytes[sizeof(struct file_handle) + sizeof(id)];
	} handle = { .handle = { .handle_bytes = sizeof(id), .handle_type = HANDLE_KERNFS } };
	const struct hierarchy *h = &paths->hierarchy;
	size_t used = 0;
	const char *rest;
	char link[64], found[PATH_MAX];
	ssize_t n;
	int fd;

	memcpy(handle.handle.f_handle, &id, sizeof(id));
	fd = open_by_handle_at(paths->fd, &handle.handle, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, found, sizeof(found) - 1);
	(void)close(fd);
	if (n < 0)
		return -errno;
	found[n] = '\0';
	rest = rest_below(found, h->mount);
	if (!rest)
		return -ENOENT; /* outside of the mounted part */
	if (strcmp(h->root, "/") != 0)
		used = strlen(h->root);
	if (used + strlen(rest) + 2 > size)
		return -ENAMETOOLONG;
	(void)snprintf(path, size, "%s%s", used ? h->root : "", *rest || used ? rest : "/");
	return 0;
}

int live_cgroup_path_once(struct live_cgroup_paths *paths, uint64_t id, char *path, size_t size)
{
	int err = note_asked(paths, id);

	if (err)
		return err;
	return live_cgroup_path(paths, id, path, size) ? -ENOENT : 0;
}

/* agent/opener/debug.c: where debug files are looked for, and what those name. */
#include "agent/opener/fetcher.h"
#include "agent/opener/places.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char usual[] = "/usr/lib/debug";

/* ".build-id/ab/cdef….debug" */
static int id_path(const struct uw_build_id *id, char *out, size_t room)
{
	static const char digits[] = "0123456789abcdef";

	if (id->size < 2)
		return -ENOENT;
	if (room < sizeof(".build-id//.debug") + 2 * (size_t)id->size)
		return -ENAMETOOLONG;
	out = stpcpy(out, ".build-id/");
	for (size_t i = 0; i < id->size; i++) {
		*out++ = digits[id->bytes[i] >> 4];
		*out++ = digits[id->bytes[i] & 15];
		if (!i)
			*out++ = '/';
	}
	(void)strcpy(out, ".debug");
	return 0;
}

enum root { OF_PROCESS, OF_SYMFS, OF_SYSTEM, N_ROOTS };

static bool has_root(const struct opener *opener, enum root root, uint32_t pid)
{
	return root == OF_PROCESS ? opener->live && pid : root != OF_SYMFS || opener->symfs;
}

/* path as that root, which there is, has it. */
static int open_in(struct opener *opener, enum root root, uint32_t pid, const char *path, int *fd)
{
	char process[32];

	switch (root) {
	case OF_PROCESS:
		(void)snprintf(process, sizeof(process), "/proc/%u/root", pid);
		return places_open_below(process, path, fd);
	case OF_SYMFS:
		return places_open_below(opener->symfs, path, fd);
	default:
		return places_open(path, fd);
	}
}

/* What a path is without its last part; "" without any. */
static void folder_of(const char *path, char *out, size_t room)
{
	const char *slash = strrchr(path, '/');

	(void)snprintf(out, room, "%.*s", slash ? (int)(slash - path) : 0, path);
}

enum way { BY_ID, BESIDE, IN_DEBUG, BY_PATH, N_WAYS };

static int open_way(struct opener *opener, enum root root, enum way way, const char *dir,
		    const struct opener_file *file, const char *link, int *fd)
{
	char path[PATH_MAX], folder[PATH_MAX], id[PATH_MAX / 8];
	int n = -1;

	if (!has_root(opener, root, file->pid) ||
	    (way != BY_ID && (!link || strchr(link, '/') || file->path[0] != '/')))
		return -ENOENT;
	folder_of(file->path, folder, sizeof(folder));
	switch (way) {
	case BY_ID:
		if (id_path(&file->build_id, id, sizeof(id)))
			return -ENOENT;
		n = snprintf(path, sizeof(path), "%s/%s", dir, id);
		break;
	case BESIDE:
		n = snprintf(path, sizeof(path), "%s/%s", folder, link);
		break;
	case IN_DEBUG:
		n = snprintf(path, sizeof(path), "%s/.debug/%s", folder, link);
		break;
	case BY_PATH:
		n = snprintf(path, sizeof(path), "%s%s/%s", dir, folder, link);
		break;
	case N_WAYS:
		break;
	}
	return n < 0 || (size_t)n >= sizeof(path) ? -ENAMETOOLONG
						  : open_in(opener, root, file->pid, path, fd);
}

/* --debug-dir is the system's, whatever root the file is sought in. */
enum { IN_OWN_DIR = N_WAYS * N_ROOTS, IN_OWN_BY_PATH, IN_CACHE, IN_BESIDE, N_CANDIDATES };

static int open_candidate(struct opener *opener, const struct opener_file *file, const char *link,
			  unsigned int candidate, bool *linked, int *fd)
{
	enum way way = (enum way)(candidate / N_ROOTS);

	*linked = candidate < N_WAYS * N_ROOTS && way != BY_ID;
	switch (candidate) {
	case IN_OWN_DIR:
		return opener->debug_dir ? open_way(opener, OF_SYSTEM, BY_ID, opener->debug_dir,
						    file, link, fd)
					 : -ENOENT;
	case IN_OWN_BY_PATH:
		*linked = true;
		return opener->debug_dir ? open_way(opener, OF_SYSTEM, BY_PATH, opener->debug_dir,
						    file, link, fd)
					 : -ENOENT;
	case IN_CACHE:
		return places_open_cached(opener, &file->build_id, "debug", fd);
	case IN_BESIDE:
		*linked = true;
		return opener->beside && link && !strchr(link, '/')
			       ? places_open_below(opener->beside, link, fd)
			       : -ENOENT;
	default:
		return open_way(opener, (enum root)(candidate % N_ROOTS), way, usual, file, link,
				fd);
	}
}

int opener_open_debug(struct opener *opener, const struct opener_file *file, const char *link,
		      unsigned int *next, bool *linked, int *fd)
{
	/* What the user names comes first. */
	static const unsigned int order[] = { IN_OWN_DIR, IN_OWN_BY_PATH };
	enum { FIRST = sizeof(order) / sizeof(order[0]) };

	while (*next < FIRST + N_CANDIDATES) {
		unsigned int at = (*next)++;
		unsigned int candidate = at < FIRST ? order[at] : at - FIRST;

		if (at >= FIRST && (candidate == IN_OWN_DIR || candidate == IN_OWN_BY_PATH))
			continue;
		if (!open_candidate(opener, file, link, candidate, linked, fd))
			return 0;
	}
	return -ENOENT;
}

void opener_fetch(struct opener *opener, struct store *store)
{
	if (!opener->fetcher && fetcher_new(store, &opener->fetcher))
		opener->fetcher = NULL;
}

bool opener_fetches(const struct opener *opener)
{
	return opener->fetcher;
}

void opener_want_debug(struct opener *opener, const struct opener_file *file)
{
	unsigned int next = 0;
	bool linked;
	int fd;

	if (!opener->fetcher)
		return;
	if (!opener_open_debug(opener, file, NULL, &next, &linked, &fd))
		(void)close(fd);
	else
		fetcher_want(opener->fetcher, &file->build_id);
}

int opener_fetched_debug(struct opener *opener, const struct uw_build_id *build_id, int *fd)
{
	return fetcher_take(opener->fetcher, build_id, fd);
}

/* The folder of an open file, or the file itself; a deleted one has none. */
static int path_of(int fd, char *out, size_t room)
{
	char link[64];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, out, room - 1);
	if (n <= 0 || out[0] != '/')
		return -ENOENT;
	out[n] = '\0';
	return 0;
}

int opener_open_named(struct opener *opener, int from, const char *folder, const char *name,
		      const struct uw_build_id *build_id, int *fd)
{
	char path[PATH_MAX], base[PATH_MAX], id[PATH_MAX / 8];
	const char *dirs[] = { opener->debug_dir, usual };
	int err = -ENOENT, n;

	for (size_t i = 0; build_id && i < 2; i++) {
		if (!dirs[i] || id_path(build_id, id, sizeof(id)))
			continue;
		n = snprintf(path, sizeof(path), "%s/%s", dirs[i], id);
		if (n < 0 || (size_t)n >= sizeof(path))
			continue;
		err = opener->symfs && dirs[i] == usual ? places_open_below(opener->symfs, path, fd)
							: places_open(path, fd);
		if (!err)
			return 0;
	}
	if (name[0] == '/') {
		if (opener->symfs && !places_open_below(opener->symfs, name, fd))
			return 0;
		return places_open(name, fd);
	}
	if (folder && *folder == '/') {
		n = snprintf(path, sizeof(path), "%s/%s", folder, name);
		if (n > 0 && (size_t)n < sizeof(path)) {
			if (opener->symfs && !places_open_below(opener->symfs, path, fd))
				return 0;
			if (!places_open(path, fd))
				return 0;
		}
	}
	/* Beside the file, where nobody moved them apart. */
	if (path_of(from, base, sizeof(base)))
		return -ENOENT;
	*strrchr(base, '/') = '\0';
	n = snprintf(path, sizeof(path), "%s/%s", base, name);
	return n > 0 && (size_t)n < sizeof(path) ? places_open(path, fd) : -ENAMETOOLONG;
}

int opener_open_suffixed(struct opener *opener, int from, const char *suffix, int *fd)
{
	char path[PATH_MAX];

	(void)opener;
	if (path_of(from, path, sizeof(path) - 16) || strlen(suffix) > 15)
		return -ENOENT;
	memcpy(path + strlen(path), suffix, strlen(suffix) + 1);
	return places_open(path, fd);
}

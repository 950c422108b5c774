/* agent/opener/debug_files.c: looks for debug files, and for files that debug files name. */
#include "agent/opener/fetcher.h"
#include "agent/opener/places.h"
#include "agent/opener/request.h"
#include "agent/store/store.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char usual[] = PLACES_DEBUG;

/* OF_USER: a directory that the user of this program named; opened with this program's rights. */
enum root { OF_SYMFS, OF_SYSTEM, OF_PROCESS, N_ROOTS, OF_USER };

/* Open path in one of the roots. -ENOENT also if there is no such root. */
static int open_in(struct opener *opener, enum root root, const struct opener_file *file,
		   const struct place_process *process, const char *path, int *fd)
{
	switch (root) {
	case OF_PROCESS:
		return process->root >= 0 ? places_open_at(process->root, path, LINKS_FOLLOWED,
							   &process->user, fd)
					  : -ENOENT;
	case OF_SYMFS:
		return opener->symfs ? places_open_below(opener->symfs, path, fd) : -ENOENT;
	case OF_USER:
		return places_open(path, NULL, fd);
	default:
		return places_open(path, places_user(opener, file, process), fd);
	}
}

/* Write the directory part of a path, without the last slash; "" if the path has no slash. */
static void directory_of(const char *path, char *out, size_t room)
{
	const char *slash = strrchr(path, '/');

	(void)snprintf(out, room, "%.*s", slash ? (int)(slash - path) : 0, path);
}

enum way { BY_ID, BESIDE, IN_DEBUG, BY_PATH, N_WAYS };

/*
 * Open the debug file in one root in one way: by build-id below dir, or by link beside the file, in
 * .debug beside it, or under dir with the file's path.
 */
static int open_way(struct opener *opener, enum root root, enum way way, const char *dir,
		    const struct opener_file *file, const struct place_process *process,
		    const char *link, int *fd)
{
	char path[PATH_MAX], directory[PATH_MAX], id[PATH_MAX / 8];
	int n = -1;

	if (way != BY_ID && (!link || strchr(link, '/') || file->path[0] != '/'))
		return -ENOENT;
	directory_of(file->path, directory, sizeof(directory));
	switch (way) {
	case BY_ID:
		if (places_id_path(&file->build_id, ".debug", id, sizeof(id)))
			return -ENOENT;
		n = snprintf(path, sizeof(path), "%s/%s", dir, id);
		break;
	case BESIDE:
		n = snprintf(path, sizeof(path), "%s/%s", directory, link);
		break;
	case IN_DEBUG:
		n = snprintf(path, sizeof(path), "%s/.debug/%s", directory, link);
		break;
	case BY_PATH:
		n = snprintf(path, sizeof(path), "%s%s/%s", dir, directory, link);
		break;
	case N_WAYS:
		break;
	}
	return n < 0 || (size_t)n >= sizeof(path) ? -ENAMETOOLONG
						  : open_in(opener, root, file, process, path, fd);
}

/* --debug-dir is a directory of this system, whichever root the file is in. */
enum { IN_OWN_DIR = N_WAYS * N_ROOTS, IN_OWN_BY_PATH, IN_CACHE, IN_BESIDE, N_CANDIDATES };

/* Open one candidate. *linked is set if the candidate is found by its name alone. */
static int open_candidate(struct opener *opener, const struct opener_file *file,
			  const struct place_process *process, const char *link,
			  unsigned int candidate, bool *linked, int *fd)
{
	enum way way = (enum way)(candidate / N_ROOTS);

	*linked = candidate < N_WAYS * N_ROOTS && way != BY_ID;
	switch (candidate) {
	case IN_OWN_DIR:
		return opener->debug_dir ? open_way(opener, OF_USER, BY_ID, opener->debug_dir, file,
						    process, link, fd)
					 : -ENOENT;
	case IN_OWN_BY_PATH:
		*linked = true;
		return opener->debug_dir ? open_way(opener, OF_USER, BY_PATH, opener->debug_dir,
						    file, process, link, fd)
					 : -ENOENT;
	case IN_CACHE:
		return places_open_cached(opener, &file->build_id, "debug",
					  places_user(opener, file, process), fd);
	case IN_BESIDE:
		*linked = true;
		return opener->beside && link && !strchr(link, '/')
			       ? places_open_below(opener->beside, link, fd)
			       : -ENOENT;
	default:
		return open_way(opener, (enum root)(candidate % N_ROOTS), way, usual, file, process,
				link, fd);
	}
}

/* Open the process's root, but only if debug files from there may be used. */
static void hold_process(const struct opener *opener, const struct opener_file *file,
			 struct place_process *process)
{
	(void)places_process(opener, file->pid, process);
	/* Since it had this view, the process may have changed its root or user. */
	if (!file->view || opener_view(opener, file->pid, true) != file->view)
		places_process_close(process);
}

/* Ask the opener's process for the next candidate. */
static int debug_elsewhere(const struct opener *opener, const struct opener_file *file,
			   const char *link, unsigned int *next, bool *linked, int *fd)
{
	struct request request = { .what = REQUEST_OPEN_DEBUG,
				   .opener = opener->number,
				   .file = *file,
				   .link = link,
				   .next = *next,
				   .fd = -1 };
	struct reply reply;
	int err = request_call(&request, &reply);

	*next = (unsigned int)reply.number;
	*linked = reply.linked;
	if (!err)
		*fd = reply.fd;
	/* A file that is no ELF file is no debug file: as if it did not exist. */
	return err == -ENOTSUP ? -ENOENT : err;
}

int opener_open_debug(struct opener *opener, const struct opener_file *file, const char *link,
		      unsigned int *next, bool *linked, int *fd)
{
	/* The directory that the user named comes first. */
	static const unsigned int order[] = { IN_OWN_DIR, IN_OWN_BY_PATH };
	enum { FIRST = sizeof(order) / sizeof(order[0]) };
	struct place_process process;
	int err = -ENOENT;

	if (opener->number)
		return debug_elsewhere(opener, file, link, next, linked, fd);
	hold_process(opener, file, &process);
	while (err && *next < FIRST + N_CANDIDATES) {
		unsigned int at = (*next)++;
		unsigned int candidate = at < FIRST ? order[at] : at - FIRST;

		if (at >= FIRST && (candidate == IN_OWN_DIR || candidate == IN_OWN_BY_PATH))
			continue;
		err = open_candidate(opener, file, &process, link, candidate, linked, fd);
	}
	places_process_close(&process);
	return err ? -ENOENT : 0;
}

int opener_debug_path(const struct uw_build_id *build_id, char *out, size_t room)
{
	size_t n = strlen(usual) + 1;

	if ((size_t)snprintf(out, room, "%s/", usual) >= room)
		return -ENAMETOOLONG;
	return places_id_path(build_id, ".debug", out + n, room - n);
}

/*
 * Look in this program's own root first (view 0): what exists there is used, and the process's root
 * does not matter.
 */
bool opener_has_own_debug(struct opener *opener, const struct opener_file *file, const char *link)
{
	struct opener_file hosts = *file;
	unsigned int next = 0;
	bool linked;
	int fd;

	if (opener->number) {
		struct request request = { .what = REQUEST_HAS_OWN_DEBUG,
					   .opener = opener->number,
					   .file = *file,
					   .link = link,
					   .fd = -1 };
		struct reply reply;

		return !request_call(&request, &reply) && reply.number;
	}
	hosts.view = 0;
	if (!opener_open_debug(opener, &hosts, link, &next, &linked, &fd)) {
		(void)close(fd);
		return false;
	}
	next = 0;
	if (opener_open_debug(opener, file, link, &next, &linked, &fd))
		return false;
	(void)close(fd);
	return true;
}

void opener_fetch(struct opener *opener, struct store *store)
{
	opener->store = store;
	/* The opener's process has the same environment: do not ask it for nothing. */
	if (opener->number)
		opener->fetches = fetcher_is_configured() && request_fetch(opener->number);
	else if (!opener->fetcher && fetcher_new(&opener->fetcher))
		opener->fetcher = NULL;
}

bool opener_fetches(const struct opener *opener)
{
	return opener->number ? opener->fetches : opener->fetcher != NULL;
}

void opener_want_debug(struct opener *opener, const struct opener_file *file)
{
	unsigned int next = 0;
	bool linked;
	int fd;

	if (!opener_fetches(opener) || store_is_missing(opener->store, &file->build_id))
		return;
	if (opener->number) {
		struct request request = { .what = REQUEST_WANT_DEBUG,
					   .opener = opener->number,
					   .file = *file,
					   .fd = -1 };
		struct reply reply;

		(void)request_call(&request, &reply);
		return;
	}
	if (!opener_open_debug(opener, file, NULL, &next, &linked, &fd))
		(void)close(fd);
	else
		fetcher_want(opener->fetcher, &file->build_id);
}

int opener_fetched_debug(struct opener *opener, const struct uw_build_id *build_id, int *fd)
{
	int err;

	if (!opener_fetches(opener) || store_is_missing(opener->store, build_id))
		return -ENOENT;
	if (opener->number) {
		struct request request = { .what = REQUEST_FETCHED_DEBUG,
					   .opener = opener->number,
					   .id = *build_id,
					   .fd = -1 };

		err = request_file(&request, NULL, fd);
	} else {
		err = fetcher_take(opener->fetcher, build_id, fd);
	}
	if (err == -ENODATA)
		store_missing(opener->store, build_id);
	return err;
}

/* Write the path of an open file. -ENOENT: the kernel has none. */
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

/* Open a file that a debug file names: see opener_open_named. */
static int open_named(const struct opener *opener, const struct opener_user *user, int from,
		      const char *directory, const char *name, const struct uw_build_id *build_id,
		      int *fd)
{
	char path[PATH_MAX], base[PATH_MAX], id[PATH_MAX / 8];
	const char *dirs[] = { opener->debug_dir, usual };
	int err = -ENOENT, n;

	for (size_t i = 0; build_id && i < 2; i++) {
		bool own = dirs[i] == usual;

		if (!dirs[i] || places_id_path(build_id, ".debug", id, sizeof(id)))
			continue;
		n = snprintf(path, sizeof(path), "%s/%s", dirs[i], id);
		if (n < 0 || (size_t)n >= sizeof(path))
			continue;
		err = opener->symfs && own ? places_open_below(opener->symfs, path, fd)
					   : places_open(path, own ? user : NULL, fd);
		if (!err)
			return 0;
	}
	if (name[0] == '/') {
		if (opener->symfs && !places_open_below(opener->symfs, name, fd))
			return 0;
		return places_open(name, user, fd);
	}
	if (directory && *directory == '/') {
		n = snprintf(path, sizeof(path), "%s/%s", directory, name);
		if (n > 0 && (size_t)n < sizeof(path)) {
			if (opener->symfs && !places_open_below(opener->symfs, path, fd))
				return 0;
			if (!places_open(path, user, fd))
				return 0;
		}
	}
	/* Look beside the file, where both lie unless they were moved. */
	if (path_of(from, base, sizeof(base)))
		return -ENOENT;
	*strrchr(base, '/') = '\0';
	n = snprintf(path, sizeof(path), "%s/%s", base, name);
	return n > 0 && (size_t)n < sizeof(path) ? places_open(path, user, fd) : -ENAMETOOLONG;
}

int opener_open_named(struct opener *opener, const struct opener_file *file, int from,
		      const char *directory, const char *name, const struct uw_build_id *build_id,
		      int *fd)
{
	struct place_process process;
	int err;

	if (opener->number) {
		struct request request = { .what = REQUEST_OPEN_NAMED,
					   .opener = opener->number,
					   .file = *file,
					   .directory = directory,
					   .name = name,
					   .flag = build_id != NULL,
					   .fd = from };

		if (build_id)
			request.id = *build_id;
		return request_file(&request, NULL, fd);
	}
	(void)places_process(opener, file->pid, &process);
	err = open_named(opener, places_user(opener, file, &process), from, directory, name,
			 build_id, fd);
	places_process_close(&process);
	return err;
}

int opener_open_suffixed(struct opener *opener, const struct opener_file *file, int from,
			 const char *suffix, int *fd)
{
	struct place_process process;
	char path[PATH_MAX];
	int err;

	if (opener->number) {
		struct request request = { .what = REQUEST_OPEN_SUFFIXED,
					   .opener = opener->number,
					   .file = *file,
					   .name = suffix,
					   .fd = from };

		return request_file(&request, NULL, fd);
	}
	if (path_of(from, path, sizeof(path) - 16) || strlen(suffix) > 15)
		return -ENOENT;
	memcpy(path + strlen(path), suffix, strlen(suffix) + 1);
	(void)places_process(opener, file->pid, &process);
	err = places_open(path, places_user(opener, file, &process), fd);
	places_process_close(&process);
	return err;
}

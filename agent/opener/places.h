/* agent/opener/places.h: where files are looked for; shared by the sources of this folder. */
#ifndef AGENT_OPENER_PLACES_H
#define AGENT_OPENER_PLACES_H

#include "agent/opener/opener.h"

/* Where distributions put debug files. */
#define PLACES_DEBUG "/usr/lib/debug"

struct opener {
	bool live;
	char *symfs, *exe, *beside, *debug_dir;
	struct symfs *below; /* what lies below symfs; NULL: nobody asked */
	uint64_t until_ns;
	bool other_host;
	char *cache;		 /* perf's build-id cache: $HOME/.debug/.build-id, or NULL */
	char *own;		 /* our cache of this user's, or NULL */
	struct fetcher *fetcher; /* owned; NULL: nobody is asked */
};

/* A process that lives, held by its directory in /proc, so that it stays the same one. */
struct place_process {
	int root; /* its root directory; -1: it has none */
	struct opener_user user;
};
int places_process(const struct opener *opener, uint32_t pid, struct place_process *out);
void places_process_close(struct place_process *process);

/*
 * Regular files only, which neither block nor do anything when they are opened.  All of these open with the rights of
 * user; NULL: with this program's own.
 */
int places_open(const char *path, const struct opener_user *user, int *fd);
/* Links inside path are resolved as if root were "/", so they cannot lead out of it. */
int places_open_below(const char *root, const char *path, int *fd);
enum place_links { LINKS_FOLLOWED, NO_LINK_LAST, NO_LINKS };
/* The same from an open directory. */
int places_open_at(int root, const char *path, enum place_links links,
		   const struct opener_user *user, int *fd);
/* By inode and generation, on a file system that this process has mounted; -ENOENT: it is gone. */
int places_open_inode(const struct opener_file *file, int *fd);
/* Write ".build-id/ab/cdef…" and suffix, as debug roots lay out files.  -ENOENT: no such id; -ENAMETOOLONG. */
int places_id_path(const struct uw_build_id *id, const char *suffix, char *out, size_t room);
/* From perf's cache. */
int places_open_cached(const struct opener *opener, const struct uw_build_id *id, const char *name,
		       const struct opener_user *user, int *fd);
/* With whose rights what is found in this program's own root is opened for a process. */
const struct opener_user *places_user(const struct opener *opener, const struct opener_file *file,
				      const struct place_process *process);

/* As opener_device_is_served, of the file system that an open O_PATH descriptor leads to. */
bool places_is_served(uint32_t pid, int fd);

#endif

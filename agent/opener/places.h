/* agent/opener/places.h: where files are looked for; shared by the sources of this directory. */
#ifndef AGENT_OPENER_PLACES_H
#define AGENT_OPENER_PLACES_H

#include "agent/opener/opener.h"

/* The directory where distributions put debug files. */
#define PLACES_DEBUG "/usr/lib/debug"

struct opener {
	uint64_t number; /* of the opener in its own process; 0: this one opens the files */
	bool live, irreplaceable; /* as in opener_options */
	char *symfs, *exe, *beside, *debug_dir;
	struct symfs *below; /* index of the files below symfs; NULL: not built yet */
	uint64_t until_ns;
	bool other_host;
	char *cache;		 /* perf's build-id cache: $HOME/.debug/.build-id, or NULL */
	char *own;		 /* offwind's own cache directory of this user, or NULL */
	struct fetcher *fetcher; /* owned; NULL: no server is asked */
	bool fetches;		 /* the opener's process has a fetcher */
	struct store *store;	 /* remembers what servers do not have; borrowed; NULL: none */
};

/* A living process, held by an open root directory, so that a reused pid cannot replace it. */
struct place_process {
	int root; /* its root directory; -1: not available */
	struct opener_user user;
};
/*
 * Open the root directory of process pid and read its user. -ESRCH: the opener does not look at
 * living processes. On failure out->root is -1 and out->user.known is false. The caller closes out
 * with places_process_close.
 */
int places_process(const struct opener *opener, uint32_t pid, struct place_process *out);
void places_process_close(struct place_process *process);

/*
 * Open a file with the rights of user; NULL: with this program's own rights. Like the functions
 * below, this opens only regular files: opening one neither blocks nor has side effects.
 */
int places_open(const char *path, const struct opener_user *user, int *fd);
/*
 * Open path below the directory root. Links inside path are resolved as if root were "/", so they
 * cannot lead out of it.
 */
int places_open_below(const char *root, const char *path, int *fd);
enum place_links { LINKS_FOLLOWED, NO_LINK_LAST, NO_LINKS };
/*
 * Open a path below the open directory root, in which links stay, with these flags, if the kernel knows it: no file system
 * is asked for a name. Return a descriptor; -EAGAIN: the kernel does not know it.
 */
int places_known(int root, const char *path, int flags);
/* Open path below the open directory root (AT_FDCWD: as any path), with the rights of user. */
int places_open_at(int root, const char *path, enum place_links links,
		   const struct opener_user *user, int *fd);
/*
 * Open a file by inode and generation, on a file system that this process has mounted. -ENOENT: it
 * is gone.
 */
int places_open_inode(const struct opener_file *file, int *fd);
/* Open the directory of a process in /proc (O_PATH). This waits for nothing. */
int places_process_directory(uint32_t pid, int *fd);
/*
 * Open a link, or another file that waits for locks of the process, in that directory, by opener_errand. -EBUSY: that takes more
 * than OPENER_MEMORY_MS, or is not tried.
 */
int places_process_open(int process, const char *name, int flags, int *fd);
/* The same by another function, which gets the directory and returns a descriptor or a negative code. */
int places_process_by(int (*open)(int process, const char *name, int flags), int process,
		      const char *name, int flags, int *fd);
/* Open the root directory of a process (O_PATH), by places_process_open. */
int places_root(uint32_t pid, int *fd);
/* Open the link to a mapping's file in /proc/PID/map_files (O_PATH), by places_process_open. */
int places_mapped_link(const struct opener_file *file, int *fd);
/*
 * Open the file behind file's mapping with the rights of user; NULL: with this program's rights.
 * -EREMOTEIO: another user's program serves the file.
 */
int places_open_mapped(const struct opener *opener, const struct opener_file *file,
		       const struct opener_user *user, int *fd);
/*
 * Open a file by its path below the open directory root of the file's process, with the rights of user, as
 * opener_options.irreplaceable says.
 */
int places_open_known(int root, const struct opener_file *file, const struct opener_user *user,
		      int *fd);
/*
 * Return whether an open file is the one that the kernel mapped, by all the numbers that the kernel
 * reported. If the record with the inode was lost, accept a file with a build-id of at least 16
 * bytes: the reader compares the build-id, and a stranger cannot know the build-id of a file that
 * he cannot read.
 */
bool places_is_mapped(const struct opener_file *file, int fd);
/*
 * Write ".build-id/ab/cdef…" and suffix, the layout of debug directories. -ENOENT: no build-id;
 * -ENAMETOOLONG: room is too small.
 */
int places_id_path(const struct uw_build_id *id, const char *suffix, char *out, size_t room);
/* Open the file called name for this build-id in perf's cache. */
int places_open_cached(const struct opener *opener, const struct uw_build_id *id, const char *name,
		       const struct opener_user *user, int *fd);
/*
 * Return the user with whose rights to open, for a process, what is found in this program's own
 * root. NULL: this program's own rights. The result is borrowed from file or process, or static.
 */
const struct opener_user *places_user(const struct opener *opener, const struct opener_file *file,
				      const struct place_process *process);

/* Return whether a mapping's name in /proc/PID/maps is that of a process context. */
bool places_is_context(const char *name);

/*
 * Do the same as opener_device_is_served and opener_device_is_fuse, for the file system that an open O_PATH
 * descriptor leads to.
 */
bool places_is_served(uint32_t pid, int fd);
bool places_is_fuse(uint32_t pid, int fd);
/*
 * Return whether a program of a user other than root and this one serves a file system, or that is not known: then an
 * overlay that another user may have mounted can show its files.
 */
bool places_others_serve(void);

#endif

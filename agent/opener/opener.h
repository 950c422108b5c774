/*
 * agent/opener/opener.h: the one place where files of other processes are opened.
 *
 * It turns what an event says of a mapping into descriptors and reads no
 * contents: whether a file is the right one by build-id, its reader decides,
 * and asks for the next candidate where it is not.  Parsers get descriptors and
 * never see a path, so that this role can move to a process of its own.
 */
#ifndef AGENT_OPENER_OPENER_H
#define AGENT_OPENER_OPENER_H

#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stdint.h>

struct opener_options {
	bool live;	       /* the processes may be there: look through /proc/PID first */
	const char *symfs;     /* look for files below this folder, or by base name in it; NULL */
	const char *exe;       /* the program that ran; NULL: where its mapping says */
	const char *beside;    /* a folder that has the files by their base names; NULL: none */
	const char *debug_dir; /* debug files are sought there, too, before /usr/lib/debug; NULL */
	uint64_t
		until_ns; /* CLOCK_REALTIME: files changed later are not those recorded; 0: unknown */
};

struct opener;

int opener_new(const struct opener_options *options, struct opener **out);
void opener_free(struct opener *opener); /* NULL is fine */

struct opener_file {	     /* what is known of the file behind a mapping */
	uint32_t pid;	     /* a process that has it mapped */
	uint64_t start, end; /* where */
	const char *path;
	uint32_t major, minor;
	uint64_t inode, inode_generation; /* 0: not told */
	bool deleted;
	bool main_program;	     /* for opener_options.exe */
	struct uw_build_id build_id; /* size 0: not told */
};

/*
 * Opens candidate number *next, or the first after it that exists, and steps
 * *next past it; begin with 0.  Candidates are regular files, opened read-only
 * without following a process's own links out of its root.  -ENOENT: no
 * (further) candidate; -ESTALE: the only file of that name is provably another
 * one; else what opening said last (-EACCES, -EIO, …).
 */
int opener_open(struct opener *opener, const struct opener_file *file, unsigned int *next, int *fd);

/*
 * Opens candidate number *next, or the first after it that exists, for the debug file of such a
 * file, as opener_open does: by build-id below --debug-dir and /usr/lib/debug, and in perf's cache;
 * then by link, the name that the file states, NULL: none, beside the file, in .debug there and
 * under the folders' copies of its path.  All of it first as the process saw files, if it lives,
 * and below symfs.  *linked: this one was found by its name alone.
 */
int opener_open_debug(struct opener *opener, const struct opener_file *file, const char *link,
		      unsigned int *next, bool *linked, int *fd);
/*
 * From now on debuginfod servers are asked, if the user has set any; store remembers what they do
 * not have, and must outlive the opener.
 */
struct store;
void opener_fetch(struct opener *opener, struct store *store);
bool opener_fetches(const struct opener *opener); /* there is somebody to ask */
/* Asks for the debug file of that build-id, unless one is here.  Never waits. */
void opener_want_debug(struct opener *opener, const struct opener_file *file);
/* Waits for the answer, for some seconds at most.  -ENOENT, -ETIMEDOUT. */
int opener_fetched_debug(struct opener *opener, const struct uw_build_id *build_id, int *fd);
/*
 * A file that a debug file names (dwz's, a .dwo): relative to folder, NULL: to where the file open
 * as from is.  With a build-id, below the folders of debug files, too.
 */
int opener_open_named(struct opener *opener, int from, const char *folder, const char *name,
		      const struct uw_build_id *build_id, int *fd);
/* What stands beside the file open as from, with that suffix: a package of .dwo files. */
int opener_open_suffixed(struct opener *opener, int from, const char *suffix, int *fd);

/*
 * /tmp/perf-PID.map, in which a process says what it generated, of a process or of one that has
 * just ended; ns_pid: as it knows itself, 0: as pid.  A regular file of at most 256 MiB that belongs
 * to uid, the process's, or to root; no link, and under no second name.
 */
int opener_perf_map(struct opener *opener, uint32_t pid, uint32_t ns_pid, uint32_t uid, int *fd);
/*
 * For recordings and processes of which the above was not kept: dump, the jitdump file it has
 * mapped, NULL: none; else /tmp/perf-PID.map, in its root if it lives.  A regular file with one
 * name, reached over no link, of this user, of root or of the process's own user: nobody else can
 * lay one there.
 */
int opener_open_jit(struct opener *opener, uint32_t pid, const char *dump, int *fd);

/* /proc/kallsyms of the running kernel. */
int opener_kallsyms(struct opener *opener, int *fd);
/*
 * The same as a file without a name, which opener_keep_kallsyms can give one; *fd is at its start.
 * It costs the copying; -ENOENT, -EOPNOTSUPP, …: no place for it, try the above.
 */
int opener_copy_kallsyms(struct opener *opener, int *fd);
/*
 * Keeps that copy for this user as the one of the kernel with this build-id, in place of an elder
 * one, in $XDG_CACHE_HOME/offwind or $HOME/.cache/offwind.  It only saves time: failing is no error.
 */
void opener_keep_kallsyms(struct opener *opener, const struct uw_build_id *id, int fd);
/*
 * Opens candidate number *next, or the first after it that exists, as opener_open does: copies of
 * kallsyms kept for the kernel of this build-id by perf record or by us.  They are from any boot,
 * with that one's addresses and modules.
 */
int opener_kept_kallsyms(struct opener *opener, const struct uw_build_id *id, unsigned int *next,
			 int *fd);

/* The running kernel's vDSO, mapped into this process for its life; -ENOENT: it has none. */
int opener_vdso(const struct opener *opener, const void **image, size_t *size);

#endif

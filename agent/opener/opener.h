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
	bool live; /* the processes may be there: look through /proc/PID first */
	/*
	 * Look for files below this directory before the host's: at their paths, by their base names,
	 * by build-id; NULL.  The host's own serve where a build-id was told, which proves them.
	 */
	const char *symfs;
	bool other_host;       /* what ran had other files: take this machine's by build-id alone */
	const char *exe;       /* the program that ran; NULL: where its mapping says */
	const char *beside;    /* a folder that has the files by their base names; NULL: none */
	const char *debug_dir; /* debug files are sought there, too, before /usr/lib/debug; NULL */
	uint64_t
		until_ns; /* CLOCK_REALTIME: files changed later are not those recorded; 0: unknown */
};

struct opener;

#define OPENER_GROUPS_MAX 32
struct opener_user {	/* with whose rights files are opened that a process names */
	bool known;	/* false: it had ended; only what everybody may read is opened */
	bool reads_all; /* root with its capabilities, in this user namespace */
	uint32_t uid, gid;
	uint32_t n_groups;
	uint32_t groups[OPENER_GROUPS_MAX];
};

int opener_new(const struct opener_options *options, struct opener **out);
void opener_free(struct opener *opener); /* NULL is fine */

struct opener_file {	     /* what is known of the file behind a mapping */
	uint32_t pid;	     /* a process that has it mapped */
	uint64_t start, end; /* where */
	const char *path;
	uint32_t major, minor;
	uint64_t inode, inode_generation; /* 0: not told */
	bool deleted;
	bool main_program; /* for opener_options.exe */
	bool named;	   /* it is sought for its name: being mapped is no reason to open it */
	/*
	 * Of opener_view: debug files are looked for in the process's root, too, if it still has this view; 0: only in
	 * this program's own root.
	 */
	uint64_t view;
	bool compared; /* its device and inode are compared with the mapping's afterwards */
	const struct opener_user
		*user; /* of a process that had it mapped, for when that has ended; or NULL */
	struct uw_build_id build_id; /* size 0: not told */
};

/* Read whose process this is, if the opener looks at living processes and it is one. */
void opener_user_of(const struct opener *opener, uint32_t pid, struct opener_user *out);

/*
 * Return a number for the tree of files that a process sees, other than this program's own: a container, a chroot, or
 * a mount namespace with its own directory of debug files.  0: it sees what this program sees, or has ended.  strict:
 * any other mount namespace has a number, whatever it has there.
 */
uint64_t opener_view(const struct opener *opener, uint32_t pid, bool strict);
/* Return whether there is a debug file for such a file in its process's root, and none in this program's own. */
bool opener_has_own_debug(struct opener *opener, const struct opener_file *file, const char *link);

/*
 * Opens candidate number *next, or the first after it that exists, and steps
 * *next past it; begin with 0.  Candidates are regular files, opened read-only
 * without following a process's own links out of its root.  Where processes live, only the file that the
 * kernel mapped, and what the user of this program named, is opened with this program's rights; whatever is found
 * by a name is opened with those of the process's user (docs/security.md).  -ENOENT: no
 * (further) candidate; -ESTALE: the only file of that name is provably another
 * one; -EREMOTE: it is this machine's, and nothing tells that it is the same; -EREMOTEIO: a stranger's program
 * serves it (FUSE) and need not answer, so that it is not opened; else what opening said last (-EACCES, -EIO, …).
 */
int opener_open(struct opener *opener, const struct opener_file *file, unsigned int *next, int *fd);

/*
 * Return whether the file system on that device, as process pid has it, is a program of another user than root
 * and this one (FUSE).  It may never answer whoever asks for a name or a byte.  Asks only the kernel.
 */
bool opener_device_is_served(uint32_t pid, uint32_t major, uint32_t minor);

/*
 * Open the very file that a process has mapped, or had (by its inode and generation), if it lies on
 * a local file system; -ENOENT: not there.  No other process can make this wait: no path of
 * theirs is looked up, no file server asked, no lease awaited.
 */
struct opener_mappings;
int opener_mappings_new(struct opener_mappings **out);	     /* -ENOMEM */
void opener_mappings_free(struct opener_mappings *mappings); /* NULL is fine */
int opener_mappings_open(struct opener_mappings *mappings, const struct opener_file *file, int *fd);

/*
 * Opens candidate number *next, or the first after it that exists, for the debug file of such a
 * file, as opener_open does: by build-id below --debug-dir and /usr/lib/debug, and in perf's cache;
 * then by link, the name that the file states, NULL: none, beside the file, in .debug there and
 * under the folders' copies of its path.  All of it first below symfs and in this program's root, then
 * as the process sees files, if file.view says so.  *linked: this one was found by its name alone.
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
 * A file that a debug file of that file names (dwz's, a .dwo): relative to folder, NULL: to where the file open
 * as from is.  With a build-id, below the folders of debug files, too.
 */
int opener_open_named(struct opener *opener, const struct opener_file *file, int from,
		      const char *folder, const char *name, const struct uw_build_id *build_id,
		      int *fd);
/* What stands beside the file open as from, with that suffix: a package of .dwo files. */
int opener_open_suffixed(struct opener *opener, const struct opener_file *file, int from,
			 const char *suffix, int *fd);

/*
 * /tmp/perf-PID.map, in which a process says what it generated, of a process or of one that has
 * just ended; ns_pid: as it knows itself, 0: as pid.  A regular file of at most 256 MiB that belongs
 * to the process's user or to root, and that this user may read; no link, and under no second name.  user: as
 * opener_user_of said while the process lived.
 */
int opener_perf_map(struct opener *opener, uint32_t pid, uint32_t ns_pid,
		    const struct opener_user *user, int *fd);
/*
 * For recordings and processes of which the above was not kept: dump, the jitdump file it has
 * mapped, NULL: none; else /tmp/perf-PID.map, in its root if it lives.  A regular file with one
 * name, reached over no link, of root or of the process's own user, or, in a recording, of this user:
 * nobody else can lay one there.  user: as above.
 */
int opener_open_jit(struct opener *opener, uint32_t pid, const struct opener_user *user,
		    const char *dump, int *fd);

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

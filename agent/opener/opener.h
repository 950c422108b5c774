/*
 * agent/opener/opener.h: the only place where the agent opens files of other processes.
 *
 * The opener turns what an event says about a mapping into file descriptors. It does not read the
 * contents of the files. The reader of a file checks its build-id, and asks for the next candidate
 * if the file is the wrong one. Parsers get descriptors and never see a path, so the opener can
 * move to a process of its own later.
 */
#ifndef AGENT_OPENER_OPENER_H
#define AGENT_OPENER_OPENER_H

#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stdint.h>

struct event_mapping;

struct opener_options {
	bool live; /* processes may still exist: look through /proc/PID first */
	/*
	 * Look for files below this directory before the host's own paths: at their recorded paths,
	 * by their base names, and by build-id. NULL: no such directory. With symfs, a file at the
	 * host's own path is used only if its build-id was recorded, because the build-id proves
	 * that it is the same.
	 */
	const char *symfs;
	bool other_host;    /* recorded elsewhere: use this machine's files by build-id only */
	const char *exe;    /* the program that ran; NULL: the file that its mapping names */
	const char *beside; /* a directory that holds the files by their base names; NULL: none */
	const char *debug_dir; /* searched for debug files before /usr/lib/debug; NULL: none */
	uint64_t until_ns;     /* CLOCK_REALTIME: a file changed later is another one; 0: unknown */
	/*
	 * For a process that nobody replaces when it waits for ever: open nothing that a program may serve, whoever's it
	 * is (opener_device_is_fuse), and look up no path that the kernel does not know yet in a process's root.
	 */
	bool irreplaceable;
};

struct opener;

#define OPENER_GROUPS_MAX 32
struct opener_user {	/* the user whose rights apply to files that a process names */
	bool known;	/* false: the process had ended; open only files that everybody may read */
	bool reads_all; /* root with its capabilities, in this user namespace */
	uint32_t uid, gid;
	uint32_t n_groups;
	uint32_t groups[OPENER_GROUPS_MAX];
};

int opener_new(const struct opener_options *options, struct opener **out);
void opener_free(struct opener *opener); /* NULL is fine */

struct opener_file {	     /* what is known about the file behind a mapping */
	uint32_t pid;	     /* a process that has the file mapped */
	uint64_t start, end; /* run-time addresses of the mapping */
	const char *path;
	uint32_t major, minor;
	uint64_t inode, inode_generation; /* 0: not reported */
	bool deleted;
	bool main_program; /* opener_options.exe applies to this file */
	bool named;	   /* looked up by name only: a mapping does not justify opening it */
	/*
	 * From opener_view. If the process still has this view, look for debug files in the
	 * process's root, too. 0: look only in this program's own root.
	 */
	uint64_t view;
	bool compared; /* the caller compares device and inode with the mapping's after the open */
	/* event_mapping.elf_off; only an opener in a process of its own looks at it */
	uint64_t elf_off;
	/* of a process that had it mapped, if that has ended; or NULL */
	const struct opener_user *user;
	struct uw_build_id build_id; /* size 0: not reported */
};

/*
 * Read the user of process pid. out->known is false if the opener does not look at living processes
 * or the process has ended.
 */
void opener_user_of(const struct opener *opener, uint32_t pid, struct opener_user *out);

/*
 * Copy the name that /etc/passwd of this program's own root has for a user. No other sources of names are
 * asked: they may be servers. -ENOENT: there is none.
 */
#define OPENER_USER_NAME 64
int opener_user_name(const struct opener *opener, uint32_t uid, char name[OPENER_USER_NAME]);

/*
 * Return a number that identifies the file tree that a process sees, if that tree differs from this
 * program's own: a container, a chroot, or a mount namespace with its own directory of debug files.
 * Return 0 if the process sees the same files as this program, or has ended. With strict, every
 * other mount namespace gets a number, whether or not it has its own directory of debug files.
 */
uint64_t opener_view(const struct opener *opener, uint32_t pid, bool strict);
/*
 * The views of the processes that were asked for last, by the low bits of the pid. All zero: none. A view
 * is looked up once for each program that a process runs, because that costs more than all the rest of
 * a mapping. A process that changes its view while it runs keeps its first one; before a debug file is
 * opened, the view is compared again.
 */
#define OPENER_VIEWS 1024 /* a power of two */
struct opener_views {
	struct {
		uint32_t pid; /* 0: none */
		bool own;
		uint64_t view;
	} of[OPENER_VIEWS];
};
/* Return the view of a process, as opener_view does without strict. */
uint64_t opener_views_get(struct opener_views *views, const struct opener *opener, uint32_t pid);
/* Return whether opener_views_get saw, without asking another process, that this one has this program's own view. */
bool opener_views_own(const struct opener_views *views, uint32_t pid);
/* Forget the view of a process: it was forked, ended, or runs another program. */
void opener_views_forget(struct opener_views *views, uint32_t pid);
/*
 * Return whether a debug file for this file exists in its process's root, but not in this program's
 * own root.
 */
bool opener_has_own_debug(struct opener *opener, const struct opener_file *file, const char *link);

/*
 * Open candidate number *next, or the first after it that exists, and set *next to the number after
 * that one. Begin with *next = 0.
 *
 * Candidates are regular files. They are opened read-only, and a process's own links cannot lead
 * out of its root. When the processes are alive, only two kinds of files are opened with this
 * program's rights: the file that the kernel mapped, and files that the user of this program named.
 * Files that are found by a name are opened with the rights of the process's user
 * (docs/security.md).
 *
 * Return 0, or
 * -ENOENT    no candidate is left;
 * -ESTALE    the only file of that name is provably another file;
 * -EREMOTE   the file is on this machine, but nothing proves that it is the recorded one;
 * -EREMOTEIO another user's program serves the file (FUSE) and may never answer: not opened;
 * otherwise the error of the last attempt to open a candidate (-EACCES, -EIO, …).
 */
int opener_open(struct opener *opener, const struct opener_file *file, unsigned int *next, int *fd);

/*
 * Return whether the file system on this device, as process pid sees it, is served by a program of
 * a user other than root and this one (FUSE), or is an overlay that such a user may have mounted over one. Such a
 * program may never answer a request for a name or a byte. This function asks only the kernel, so it never blocks.
 */
bool opener_device_is_served(uint32_t pid, uint32_t major, uint32_t minor);
/* The same, but whoever's program it is: for a process that nobody replaces when it waits for ever. */
bool opener_device_is_fuse(uint32_t pid, uint32_t major, uint32_t minor);
/*
 * Open a directory (O_PATH) by its path in the root of a process, if it is on this device. No program that serves a file
 * system is asked: -EAGAIN if the kernel does not know the path. -ENOENT: it is on another device.
 */
int opener_known_directory(uint32_t pid, const char *path, uint32_t major, uint32_t minor, int *fd);

/*
 * Run an errand (agent/errand.h) that waits for a lock of a process: that of its mappings, or the one that execve holds,
 * which whoever opens a link in /proc/PID, its maps or its mem waits for. A program that serves files can keep processes of its user in
 * a system call that holds such a lock, for ever. So a thread waits, wait_ns at most, and is left behind then. process is
 * open on /proc/PID.
 *
 * Return 0, or -ETIMEDOUT: the thread is left behind, as of errand_run. In all other cases nothing was begun: -ESRCH,
 * -ENOMEM, or -EBUSY: a thread is left behind for a process of the same user, or for four users of the same kind. Root is
 * one, users with ids below 100,000 are another, and those with other ids, of which one user may have thousands.
 */
struct errand;
int opener_errand(int process, const struct errand *errand, uint64_t wait_ns);

/*
 * Open the very file that a process has mapped, or had mapped (found by its inode and generation),
 * if the file is on a local file system. Return -ENOENT if there is no such file. No other process
 * can make this call block: it looks up no path of theirs, asks no file server, and waits for no
 * lease.
 */
struct opener_mappings;
int opener_mappings_new(struct opener_mappings **out);	     /* -ENOMEM */
void opener_mappings_free(struct opener_mappings *mappings); /* NULL is fine */
int opener_mappings_open(struct opener_mappings *mappings, const struct opener_file *file, int *fd);

/*
 * Open candidate number *next, or the first after it that exists, for the debug file of this file,
 * in the same way as opener_open. The candidates are: by build-id below --debug-dir and
 * /usr/lib/debug, and in perf's cache; then by link, the name from .gnu_debuglink (NULL: the file
 * has none): beside the file, in .debug there, and under the copy of its path below the debug
 * directories. All are looked up below symfs first, then in this program's root, and, if file.view
 * says so, in the root of the process. *linked is set if the candidate was found by its name alone.
 * Return -ENOENT if no candidate is left.
 */
int opener_open_debug(struct opener *opener, const struct opener_file *file, const char *link,
		      unsigned int *next, bool *linked, int *fd);
/*
 * Write the path that a debug file has by its build-id: /usr/lib/debug/.build-id/ab/cdef….debug. -ENOENT: no
 * build-id; -ENAMETOOLONG: room is too small.
 */
int opener_debug_path(const struct uw_build_id *build_id, char *out, size_t room);
/*
 * Ask debuginfod servers from now on, if the user has configured any. The store remembers which
 * debug files the servers do not have. The store must outlive the opener.
 */
struct store;
void opener_fetch(struct opener *opener, struct store *store);
bool opener_fetches(const struct opener *opener); /* whether there is a server to ask */
/* Request the debug file of this build-id, unless one is already here. Never blocks. */
void opener_want_debug(struct opener *opener, const struct opener_file *file);
/*
 * Wait for the answer, for some seconds at most. Return -ENODATA if the servers say that they do not
 * have it, -ENOENT if they could not be asked, or -ETIMEDOUT.
 */
int opener_fetched_debug(struct opener *opener, const struct uw_build_id *build_id, int *fd);
/*
 * Open a file that a debug file of this file names (dwz's common file, a .dwo). The name is
 * relative to directory, or, if directory is NULL, to the directory of the file open as from. With
 * a build-id, the debug directories are searched, too.
 */
int opener_open_named(struct opener *opener, const struct opener_file *file, int from,
		      const char *directory, const char *name, const struct uw_build_id *build_id,
		      int *fd);
/*
 * Open the file beside the file open as from whose name has this suffix added: a package of .dwo
 * files.
 */
int opener_open_suffixed(struct opener *opener, const struct opener_file *file, int from,
			 const char *suffix, int *fd);

/*
 * Open /tmp/perf-PID.map, in which a process describes the code that it generated. The process may
 * have ended just now. ns_pid is the pid in the process's own namespace; 0: the same as pid. The
 * file must be a regular file of at most 256 MiB that belongs to the process's user or to root and
 * that this user may read. It must not be a link and must have only one name. user is the result of
 * opener_user_of while the process was alive.
 */
int opener_perf_map(struct opener *opener, uint32_t pid, uint32_t ns_pid,
		    const struct opener_user *user, int *fd);
/*
 * Open a file that describes generated code, for recordings and for processes whose perf map was
 * not read while they were alive. Use dump, the jitdump file that the process has mapped (NULL:
 * none); otherwise /tmp/perf-PID.map, in the process's root if it is alive. The file must be a
 * regular file with one name, reached without any link, that belongs to root or the process's own
 * user or, in a recording, to this user. So nobody else can plant such a file. user is as above.
 */
int opener_open_jit(struct opener *opener, uint32_t pid, const struct opener_user *user,
		    const char *dump, int *fd);

/*
 * Return whether a mapping shows the code of an interpreter, by the name of its file. Its memory leads to the
 * names of interpreted code (agent/runtime).
 */
bool opener_is_interpreter(const struct event_mapping *mapping);
/* Return whether a file is node, which has V8, or its library, by its path. V8 interprets code even where it generates none. */
bool opener_is_v8(const char *path);
/*
 * Open the memory of a living process for reading, if the process generates code, that is, has executable
 * memory that no file on a disk holds, or if it runs an interpreter or node, by the name of its file. Offsets in the file are addresses. It stays the memory of the
 * program that runs now: nothing can be read from it any more when the process has ended or executed
 * another program. -EACCES: the process does neither; -EBUSY: as of opener_errand, within OPENER_MEMORY_MS.
 */
int opener_memory(struct opener *opener, uint32_t pid, int *fd);
/*
 * Read that memory. -EFAULT: not all of it can be read. The program decides what its memory is: a page
 * of a file whose server never answers keeps the reader waiting for ever, and nothing can end it. So
 * the opener's process reads. -ETIMEDOUT: it has not answered within OPENER_MEMORY_MS.
 */
#define OPENER_MEMORY_MS 200
#define OPENER_MEMORY_NS (UINT64_C(1000000) * OPENER_MEMORY_MS)
struct opener_wait {
	uint64_t ns; /* waited for the opener's process; 0: this process read */
	size_t late; /* of -ETIMEDOUT, for opener_is_late */
};
int opener_read_memory(struct opener *opener, int memory, uint64_t addr, void *out, size_t size,
		       struct opener_wait *wait);
/*
 * Read several pieces of that memory, each of at most OPENER_PART_MAX bytes: one answer of the opener's process, which
 * takes 10 µs, is for many. part.err says whether all of a piece was read. Returns 0, or the error of the opener's
 * process; then no piece has to be there.
 */
#define OPENER_PART_MAX ((size_t)24 << 10)
struct opener_part {
	uint64_t addr;
	void *out;
	size_t size;
	int err; /* 0 or -EFAULT */
};
int opener_read_parts(struct opener *opener, int memory, struct opener_part *parts, size_t n,
		      struct opener_wait *wait);
/* Return whether that process still reads, and was not replaced. While it does, one less request can be made. */
bool opener_is_late(size_t late);

/*
 * Copy the process context that a program publishes (agent/process/otel_context.h), if it is another one
 * than that of the time known_ns: else n is 0. -ENOENT: there is none; -EAGAIN: it is being changed;
 * -ENOTSUP: of another version; -E2BIG: larger than the limit context-bytes; -EFAULT: not all of it can be
 * read; -ETIMEDOUT: as of opener_read_memory.
 */
#define OPENER_CONTEXT_MAX ((size_t)16 << 10)
struct opener_context {
	uint64_t published_ns; /* the program's time stamp; never 0 */
	size_t n;
	uint8_t bytes[OPENER_CONTEXT_MAX];
};
int opener_context(struct opener *opener, uint32_t pid, uint64_t known_ns,
		   struct opener_context *out, struct opener_wait *wait);

/* Open /proc/kallsyms of the running kernel. */
int opener_kallsyms(struct opener *opener, int *fd);
/*
 * Copy /proc/kallsyms into a file without a name, which opener_keep_kallsyms can give a name. *fd
 * is at the start of the copy. The copying takes time. -ENOENT, -EOPNOTSUPP, …: there is no place
 * for the copy; use opener_kallsyms instead.
 */
int opener_copy_kallsyms(struct opener *opener, int *fd);
/*
 * Store that copy for this user as the kallsyms of the kernel with this build-id, in
 * $XDG_CACHE_HOME/offwind or $HOME/.cache/offwind. It replaces an older copy. The copy only saves
 * time later, so a failure is not an error.
 */
void opener_keep_kallsyms(struct opener *opener, const struct uw_build_id *id, int fd);
/*
 * Open candidate number *next, or the first after it that exists, as opener_open does. The
 * candidates are copies of kallsyms that perf record or offwind stored for the kernel with this
 * build-id. A copy can be from any boot, and has the addresses and modules of that boot.
 */
int opener_stored_kallsyms(struct opener *opener, const struct uw_build_id *id, unsigned int *next,
			   int *fd);

/* Return the running kernel's vDSO, mapped into this process for its life. -ENOENT: it has none. */
int opener_vdso(const struct opener *opener, const void **image, size_t *size);

#endif

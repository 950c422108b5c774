/*
 * agent/history/history.h: where time went on this machine, window by window, in a SQLite database
 * (docs/history.md).
 *
 * A window has the samples of some seconds, with times, threads, labels and stacks, and counts what was
 * lost. Stacks are stored once: what differs between windows is mostly a few numbers a sample. Names are
 * stored apart from addresses, so that they can be replaced.
 *
 * A history may be used by one thread at a time. Several processes can have it open: one writes, and
 * readers see complete windows.
 */
#ifndef AGENT_HISTORY_HISTORY_H
#define AGENT_HISTORY_HISTORY_H

#include "agent/export/profile/stacks.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct history;

/* The label of a sample in a profile that history_add takes: when it was taken, in ns since 1970. */
#define HISTORY_TIME_LABEL "end_timestamp_ns"

/*
 * Open a history to write it; it is created or upgraded if necessary. For reading it must exist.
 * Errors are reported. The path of the history that belongs to a store's database is
 * history_path(): "/var/lib/offwind/offwind.db" has "/var/lib/offwind/offwind-history.db".
 */
int history_open(const char *path, bool write, struct history **out);
void history_close(struct history *history); /* NULL is fine */
/*
 * From now on, let this process have no descriptor through which a database could be written: it opens a
 * history, and the store of tables (NULL: none), for reading only, with the files of their write-ahead logs. What
 * is missing of these is made first. Errors are reported.
 */
int history_write_nothing(const char *path, const char *store);
/*
 * Lock a history for a daemon, by an empty file beside it: PATH-lock. Wait for another one's end, but not
 * longer than wait_ms. The lock ends when all copies of the descriptor *out are closed, in processes that were forked, too. Those who do not lock are not
 * kept out. Errors are reported; -EBUSY: another process has the lock.
 */
int history_lock(const char *path, unsigned int wait_ms, int *out);
/* Return whether a file is a history, by its first bytes. */
bool history_is(const char *path);
/*
 * Return the connection of a history that is open for reading, to ask SQL, with the virtual table samples
 * and the functions stack and function (docs/history.md). It is borrowed.
 */
struct sqlite3 *history_connection(struct history *history);
/* Return the path for a store's path; the caller frees it. NULL: no memory. */
char *history_path(const char *store_path);

struct history_counter {
	const char *what, *reason; /* as in the table counters */
	int64_t n;
};

struct history_window {
	uint64_t start_ns, end_ns; /* since 1970 */
	const struct history_counter *counters;
	size_t n_counters;
};

/*
 * Add a window with the samples of a profile, in one transaction. -EBADMSG: a sample has no time.
 * Errors are reported; then the history is as it was.
 */
int history_add(struct history *history, const struct stacks *stacks,
		const struct history_window *window);

/* The function that stands for stacks which are too small to be told apart. */
#define HISTORY_CUT "[smaller stacks]"

struct history_query {
	uint64_t from_ns, to_ns; /* since 1970; to_ns is not included */
	bool labels;		 /* keep labels, threads and processes; else only stacks differ */
	bool no_threads;	 /* but no threads and processes */
	bool times;		 /* keep the time of each sample, as a label */
	bool base;		 /* as samples of the base to compare with */
	int64_t window;		 /* only of the window with this id; 0: of all */
	/*
	 * Functions with less than one of so many parts of all, in their callers' place in the tree, become one with
	 * their like, HISTORY_CUT; 0: none do. All sums are kept.
	 */
	uint32_t parts;
};

struct history_found {
	uint64_t start_ns, end_ns; /* of the windows that there are in this time; 0: none */
	uint64_t n_windows, n_samples;
	uint64_t n_damaged;	   /* windows that are left out, because they are damaged */
	uint64_t n_damaged_labels; /* damaged rows of labels, whose samples have no labels */
};

/*
 * Add the samples of a range of time to a profile. Of a merged window that reaches beyond the range, each stack has the
 * share that lies in it, as if its samples were spread over the window; with times, all do that begin in the range. Errors are
 * reported; -EFBIG: there are more than 4 million different samples. Damaged windows are counted and left out, with a warning, and so are
 * damaged labels, whose samples are there; if names or stacks are damaged, the whole fails.
 */
int history_read(struct history *history, const struct history_query *query, struct stacks *stacks,
		 struct history_found *found);

/* One or several samples of one thread and one stack. */
struct history_point {
	uint64_t start_ns,
		end_ns; /* since 1970: equal for one sample; else those of a merged window, in the range */
	uint64_t labels, node; /* ids of rows */
	uint32_t pid, tid;
	uint64_t n;    /* samples */
	int64_t value; /* of the type asked for */
	/*
	 * If the value is how long threads waited, of one sample: when the wait began and ended, or the part of it
	 * that was blocked, or ready to run. 0: the value is none. It may have begun before the range of time.
	 */
	uint64_t began_ns, ended_ns;
};

/*
 * Take a point; NULL: forget all points so far, because some came from a window that is damaged, and all others come again.
 * A result other than 0 ends the scan with it.
 */
typedef int (*history_point_fn)(void *ctx, const struct history_point *point);

/*
 * Call fn for all samples of a range of time, window by window, with their values of one sample type;
 * NULL: CPU time, else the second type. *type and *unit (NULL: not wanted) are set to its
 * names, which the history owns. Damaged windows are left out. -ENOENT: there is no such type. Errors of the
 * database are reported.
 */
int history_scan(struct history *history, uint64_t from_ns, uint64_t to_ns, const char *type,
		 history_point_fn fn, void *ctx, const char **type_name, const char **unit);

/*
 * Write the value of a label into out, "" if the labels of that id have none. Return 0 or a negative
 * code.
 */
int history_label(struct history *history, uint64_t labels, const char *key, char *out,
		  size_t size);

/*
 * Call fn for each key of the newest 20,000 sets of labels, in their order by name; pid and tid, which all
 * samples have, are not among them. Errors of the database are reported.
 */
typedef void (*history_key_fn)(void *ctx, const char *key);
int history_label_keys(struct history *history, history_key_fn fn, void *ctx);
/* The same for the names of all sample types, in the order in which they came. */
int history_type_names(struct history *history, history_key_fn fn, void *ctx);

/* An address of code whose names follow from its file, and the mapping that it lies in. */
struct history_address {
	const char *path, *build_id; /* borrowed until the call returns; build_id in hexadecimal */
	uint64_t off, start, limit;  /* of the mapping, as in the table modules */
	uint64_t address;
};

/*
 * Call fn for all such addresses in the stacks of a range of time, file by file; from 0 to UINT64_MAX: for all
 * that the history has. A result other than 0 ends this with it. Errors are reported.
 */
typedef int (*history_address_fn)(void *ctx, const struct history_address *address);
int history_addresses(struct history *history, uint64_t from_ns, uint64_t to_ns,
		      history_address_fn fn, void *ctx);

struct history_renamed { /* numbers of addresses */
	uint64_t named;	 /* have a function's name, and had none */
	uint64_t better; /* have other names or lines than before */
	uint64_t same;
	uint64_t not_replaced; /* they have names that say more */
};

/*
 * Give the addresses that are locations of a profile the names that they have there, in one transaction, and
 * add to *out what came of it. Addresses that the history does not have are left out. Windows do not
 * change. Errors are reported; then the history is as it was.
 */
int history_rename(struct history *history, const struct stacks *stacks,
		   struct history_renamed *out);

/* Sums of the counters of a range of time. fn is called for each reason. */
typedef void (*history_counter_fn)(void *ctx, const struct history_counter *counter);
int history_counters(struct history *history, uint64_t from_ns, uint64_t to_ns,
		     history_counter_fn fn, void *ctx);

/* The same for all windows that there ever were; "windows" is their number. */
int history_totals(struct history *history, history_counter_fn fn, void *ctx);

/* How far somebody got who takes all windows one after the other. */
struct history_place {
	int64_t id;	 /* of the window that was taken last, of those that are not merged */
	uint64_t end_ns; /* the latest end of those that were taken, since 1970 */
	uint64_t passed; /* samples that all windows had that are taken or gone (history_passed) */
};

struct history_entry {
	int64_t id;
	uint64_t start_ns, end_ns, n_samples;
	bool merged; /* of several windows */
};

/*
 * Find the window to take after those until a place: in the order in which they were added, whatever the
 * clock was; those that were merged meanwhile, which are new rows, before what came after them. A merged
 * window may begin before the place's end; then some of it was taken. -ENOENT: there is none. Errors of
 * the database are reported.
 */
int history_next(struct history *history, const struct history_place *after,
		 struct history_entry *out);
/* Let a place be behind a window that was taken. */
void history_take(struct history_place *place, const struct history_entry *entry);
/*
 * Give how many samples (the counter unwound) all windows had that ever were, but for those that history_next will
 * give after the place. Errors of the database are reported.
 */
int history_passed(struct history *history, const struct history_place *place, uint64_t *out);
/* Call fn for the counters of one window. Errors of the database are reported. */
int history_window_counters(struct history *history, int64_t window, history_counter_fn fn,
			    void *ctx);
/* Give the place behind all windows that there are. Errors of the database are reported. */
int history_end_place(struct history *history, struct history_place *out);

/* When the window that was added last ended, in ns since 1970; 0: there is none. */
uint64_t history_newest(struct history *history);
/* How many bytes the database has. */
uint64_t history_size(struct history *history);
/* How long windows are kept, and how exactly. 0: the default. */
struct history_limits {
	uint64_t times_ns;   /* samples have times for so long; then windows of 10 minutes; 6 h */
	uint64_t threads_ns; /* and threads for so long; then windows of 1 hour; 2 days */
	uint64_t age_ns;     /* then windows are deleted; 30 days */
	uint64_t bytes;	     /* of the database: beyond, the oldest windows are deleted; 4 GiB */
};

#define HISTORY_BYTES_MIN ((uint64_t)1 << 20)
#define HISTORY_AGE_MAX	  ((uint64_t)INT64_MAX / 2)

/* Give the limits that the history has. Errors are reported. */
int history_get_limits(struct history *h, struct history_limits *out);
/* Return -EINVAL if times are kept longer than threads, or threads longer than windows, else 0. */
int history_check_limits(const struct history_limits *limits);
/*
 * Set the limits that history_get_limits gives from now on. -EINVAL as history_check_limits; other errors
 * are reported.
 */
int history_set_limits(struct history *h, const struct history_limits *limits);

/*
 * Return a time for history_keep that a clock which is wrong for a short time does not change much: now_ns,
 * but not more than the end of the 90th window from the newest. 0: there are fewer, or it cannot be read.
 */
uint64_t history_steady_time(struct history *h, uint64_t now_ns);

/*
 * Do a bounded piece of what keeps a history within limits: merge windows, which loses no sums, delete
 * old ones, delete stacks and names that no window refers to, and return space to the file system. now_ns:
 * the time, since 1970. Return 1 if there may be more to do, 0 if there is not, or a negative code; errors
 * are reported. The history must be open to be written.
 */
int history_keep(struct history *h, const struct history_limits *limits, uint64_t now_ns);

#endif

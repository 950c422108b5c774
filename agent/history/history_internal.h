/* agent/history/history_internal.h: the connection that the files of this folder share, and its statements. */
#ifndef AGENT_HISTORY_HISTORY_INTERNAL_H
#define AGENT_HISTORY_HISTORY_INTERNAL_H

#include "agent/history/history.h"
#include "agent/history/history_frames.h"
#include "agent/history/history_nodes.h"
#include "agent/history/history_rows.h"
#include "agent/history/samples.h"
#include "agent/store/db.h"
#include "proto/arena.h"

extern const struct db_kind history_kind;

/* What a row is found by: 31 bits of a SHA-256 hash. Texts come from anybody: they cannot be chosen so that many have one. */
struct sha256_ctx;
int64_t history_hash_end(struct sha256_ctx *ctx);
int64_t history_text_hash(const char *text);
int history_prepare_upgrade(sqlite3 *db); /* as db_kind.prepare */

enum history_statement {
	FIND_MODULE,
	ADD_MODULE,
	WIDEN_MODULE,
	FIND_FUNCTION,
	ADD_FUNCTION,
	FIND_FRAMES,
	INDEX_FRAME,
	UNINDEX_FRAME,
	LAST_FRAME_PAGE,
	WRITE_FRAMES,
	DELETE_FRAMES,
	LAST_NODE_PAGE,
	WRITE_NODES,
	DELETE_NODES,
	FIND_LABELS,
	ADD_LABELS,
	FIND_TYPE,
	ADD_TYPE,
	ADD_WINDOW,
	ADD_COUNTER,
	ADD_TOTAL,
	READ_TOTALS,
	READ_WINDOWS,
	READ_NODES,
	READ_FRAMES,
	READ_ALL_FRAMES,
	READ_FUNCTIONS,
	READ_MODULE,
	READ_FILES,
	READ_LABELS,
	READ_TYPES,
	READ_TYPE,
	LAST_TYPE,
	READ_LABEL,
	CHECK_LABELS,
	READ_LABEL_KEYS,
	READ_COUNTERS,
	READ_NEWEST,
	NEXT_WINDOW,
	NEXT_MERGED,
	LAST_WINDOW,
	PASSED,
	WINDOW_COUNTERS,
	READ_SETTING,
	SET_SETTING,
	DELETE_SETTING,
	STEADY_END,
	FIRST_END,
	DELETE_WINDOWS,
	DELETE_WINDOW,
	WINDOW_BYTES,
	WINDOW_SIZES,
	USED_BYTES,
	UNUSED_PAGES,
	ALL_PAGES,
	FIRST_BELOW,
	MERGE_WINDOWS,
	MERGE_COUNTERS,
	SWEEP_WINDOWS,
	SWEEP_NODES,
	SWEEP_NEW_NODES,
	SWEEP_MODULES,
	SWEEP_FUNCTIONS,
	SWEEP_LABELS,
	SWEEP_MODULE,
	SWEEP_FUNCTION,
	SWEEP_LABEL,
	HISTORY_STATEMENTS
};

/* Settings beside the limits. */
#define HISTORY_UNSWEPT "unswept"  /* windows were deleted since the last sweep began */
#define HISTORY_SWEPT	"swept_ns" /* when the last sweep ended, since 1970 */

#define HISTORY_RENAMED	   "renamed"	/* how often frames got other names */
#define HISTORY_LAST_NODE  "last_node"	/* the id of the last node that there ever was */
#define HISTORY_LAST_FRAME "last_frame" /* the same for frames */
#define HISTORY_DELETIONS  "deletions"	/* how often nodes were deleted */

struct history_sweep;
struct history_merge;

struct history {
	sqlite3 *db;
	char *path;
	sqlite3_stmt *statements[HISTORY_STATEMENTS];
	char type[64], unit[64]; /* of the last scan */
	struct history_rows nodes, frames, functions;
	struct arena names;	     /* lines of frames, and texts of functions */
	const char *last_file;	     /* of the function that was read last */
	struct history_known known;  /* nodes, for a writer */
	int64_t renamed;	     /* of HISTORY_RENAMED when frames were cached */
	struct history_sweep *sweep; /* NULL: none is going on */
	struct history_merge *merge; /* as sweep */
	size_t sums_max;	     /* different samples that a profile can have */
	uint64_t
		thread_after; /* samples that a reading counts before it begins a thread for that */
	uint64_t step_ns;     /* how long a step of these may take */
	int64_t delete_before_ns; /* windows that ended before it go because space is needed */
};

/* Return the prepared statement, ready for binding. On failure return NULL and set *err. */
sqlite3_stmt *history_statement(struct history *h, enum history_statement which, int *err);
/* Report what a step could not do, unless it is 0. Return err. */
int history_failed(const struct history *h, const char *doing, int err);

/* End a transaction: undo it if err is negative. Return err, or why it could not be committed. */
int history_end(struct history *h, int err);

/* Give the number that a statement without parameters gives. -ENOENT: it gives none. */
int history_value(struct history *h, enum history_statement which, int64_t *out);
/* Give a setting that is a number. It is left as it was if it is not set. */
int history_number(struct history *h, const char *name, int64_t *out);
/* 0: it is not set. */
int history_set_number(struct history *h, const char *name, int64_t value);

/*
 * Return the time of a sample, which was taken so long after its window's start. Clocks of CPUs differ a
 * little: a sample that seems to be of just after its window belongs to the window's end.
 */
static inline uint64_t history_sample_time(uint64_t start_ns, uint64_t end_ns, uint64_t after_ns)
{
	return start_ns < end_ns && after_ns < end_ns - start_ns ? start_ns + after_ns : end_ns - 1;
}

/* Return how much of n samples' value those from one rank to another have. All together have the value. */
static inline int64_t history_share(int64_t value, uint64_t from, uint64_t to, uint64_t n)
{
	if (to - from == n)
		return value;
	return (int64_t)((__int128)value * to / n - (__int128)value * from / n);
}

/* Those of a group's samples, in the order of their times, that belong to a range of time. */
struct history_part {
	uint64_t from, to, n; /* to is not included; n is how many the group has */
};

/*
 * Give the part of a merged window's group that belongs to the range from from_ns to to_ns, which lies in the window.
 * When its samples were taken is not known: they are spread over the window. The parts of ranges that
 * follow each other are the whole.
 */
struct history_part history_part_of(const struct history_sample *g, uint64_t start_ns,
				    uint64_t end_ns, uint64_t from_ns, uint64_t to_ns);

/* What the samples of windows can refer to. */
struct history_bounds {
	uint64_t node, type; /* the highest ids */
};

int history_read_bounds(struct history *h, struct history_bounds *out);
/* Return whether what a sample refers to can be there. */
bool history_is_within(const struct history_sample *sample, const struct history_bounds *bounds);
/*
 * Begin to read the samples of a window. Return 1, or 0 if they are damaged, wherever that is: such a
 * window is left out as a whole.
 */
int history_open_samples(const void *blob, size_t size, const struct history_bounds *bounds,
			 struct samples_reader *out);
/* Warn about damaged windows that were left out, if there were any. */
void history_warn(const struct history *h, uint64_t n_damaged);
/*
 * Look why the labels of a row could not be read. Return 0 if the row is damaged, after a warning that names it: its
 * samples have no labels. Else return err.
 */
int history_labels_failed(struct history *h, int64_t row, int err);

/* A row of the table windows. */
struct history_row {
	int64_t start_ns, end_ns, level, n_samples;
	const struct history_bytes *samples;
};

void history_merge_free(struct history_merge *merge); /* NULL is fine */

int history_add_window(struct history *h, const struct history_row *row, int64_t *id);

#endif

/*
 * agent/history/history_keep.c: merges windows and deletes old ones, so that a history stays within its
 * limits.
 */
#include "agent/history/history_internal.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/history/history_sweep.h"
#include "agent/history/samples.h"
#include "agent/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS ((uint64_t)1000000000)
#define HOUR_NS	  (3600 * SECOND_NS)
#define DAY_NS	  (24 * HOUR_NS)

static const struct history_limits defaults = { .times_ns = 6 * HOUR_NS,
						.threads_ns = 2 * DAY_NS,
						.age_ns = 30 * DAY_NS,
						.bytes = (uint64_t)4 << 30 };

/* How long a merged window is at most. It begins at a multiple of this since 1970. */
static const uint64_t period_ns[HISTORY_LEVELS] = {
	[HISTORY_THREADS] = 600 * SECOND_NS, [HISTORY_TOGETHER] = HOUR_NS
};

#define VACUUM_PAGES 128 /* at once */
#define TEXT_OF(x)   #x
#define TEXT(x)	     TEXT_OF(x)

enum {
	DELETE_AT_ONCE = 16, /* windows */
	FREE_PAGES = 64,     /* fewer stay in the file: they will be used again soon */
};

/* ---- limits ------------------------------------------------------------------------------ */

static const char *const limit_names[] = { "times_ns", "threads_ns", "age_ns", "bytes" };

enum { LIMITS = sizeof(limit_names) / sizeof(limit_names[0]) };

static uint64_t *limit_at(struct history_limits *limits, size_t i)
{
	uint64_t *const at[LIMITS] = { &limits->times_ns, &limits->threads_ns, &limits->age_ns,
				       &limits->bytes };

	return at[i];
}

/* Put the defaults where no limit is set. */
static void complete(struct history_limits *limits)
{
	struct history_limits d = defaults;

	for (size_t i = 0; i < LIMITS; i++)
		if (!*limit_at(limits, i))
			*limit_at(limits, i) = *limit_at(&d, i);
}

int history_get_limits(struct history *h, struct history_limits *out)
{
	struct history_limits limits = { .bytes = 0 };
	int err = 0;

	for (size_t i = 0; i < LIMITS && !err; i++) {
		int64_t value = 0;

		err = history_number(h, limit_names[i], &value);
		*limit_at(&limits, i) = value > 0 ? (uint64_t)value : 0;
	}
	complete(&limits);
	if (!err)
		*out = limits;
	return history_failed(h, "be read", err);
}

int history_check_limits(const struct history_limits *limits)
{
	struct history_limits all = *limits;

	complete(&all);
	return all.times_ns > all.threads_ns || all.threads_ns > all.age_ns ||
			       all.age_ns > INT64_MAX || all.bytes > INT64_MAX
		       ? -EINVAL
		       : 0;
}

int history_set_limits(struct history *h, const struct history_limits *limits)
{
	struct history_limits given = *limits;
	int err = history_check_limits(limits);

	if (err)
		return err;
	err = db_exec(h->db, "BEGIN IMMEDIATE");
	for (size_t i = 0; i < LIMITS && !err; i++)
		err = history_set_number(h, limit_names[i], (int64_t)*limit_at(&given, i));
	return history_failed(h, "set its limits", history_end(h, err));
}

/* ---- deleting ---------------------------------------------------------------------------- */

/* Delete some windows that ended before a time. Return 1 if there were any, 0 or a negative code. */
static int delete_before(struct history *h, int64_t before_ns)
{
	int64_t first;
	int err = history_value(h, FIRST_END, &first);
	sqlite3_stmt *stmt;

	if (err || first >= before_ns)
		return err == -ENOENT ? 0 : err;
	err = db_exec(h->db, "BEGIN IMMEDIATE");
	stmt = err ? NULL : history_statement(h, DELETE_WINDOWS, &err);
	if (stmt) {
		db_bind_numbers(stmt, (const int64_t[]){ before_ns, DELETE_AT_ONCE }, 2);
		err = db_step(stmt);
		db_release(stmt);
	}
	if (!err)
		err = history_set_number(h, HISTORY_UNSWEPT, 1);
	err = history_end(h, err);
	return err ? err : 1;
}

/* Find when the windows with the first tenth of all samples' bytes end. 0: there is only one window. */
static int find_tenth(struct history *h, int64_t *out)
{
	int64_t all, bytes = 0, end = 0;
	int err = history_value(h, WINDOW_BYTES, &all);
	sqlite3_stmt *stmt = err ? NULL : history_statement(h, WINDOW_SIZES, &err);

	if (!stmt)
		return err;
	while ((err = db_step(stmt)) == 1 && bytes <= all / 10) {
		end = sqlite3_column_int64(stmt, 0);
		bytes += sqlite3_column_int64(stmt, 1);
	}
	db_release(stmt);
	if (err >= 0) /* 1: there are windows behind these */
		*out = err ? end + 1 : 0;
	return err < 0 ? err : 0;
}

/* Keep the database small enough. What windows refer to goes with a sweep. Return as history_keep. */
static int shrink(struct history *h, uint64_t limit)
{
	int64_t bytes;
	int err = history_value(h, USED_BYTES, &bytes);

	if (err || (uint64_t)bytes <= limit)
		return err;
	err = find_tenth(h, &h->delete_before_ns);
	return err ? err : h->delete_before_ns != 0;
}

/* Return free pages to the file system, if many are free. Return as history_keep. */
static int vacuum(struct history *h)
{
	int64_t pages = 0, unused, after = 0;
	int err = history_value(h, UNUSED_PAGES, &unused);

	if (!err)
		err = history_value(h, ALL_PAGES, &pages);
	if (err || unused < FREE_PAGES || unused < pages / 8)
		return err;
	err = db_exec(h->db, "PRAGMA incremental_vacuum(" TEXT(VACUUM_PAGES) ")");
	if (!err)
		err = history_value(h, UNUSED_PAGES, &after);
	return err ? err : after < unused;
}

/* ---- merging ----------------------------------------------------------------------------- */

/*
 * Windows that become one. That takes several steps, and others may add and delete windows between them;
 * but a window does not change.
 */
struct history_merge {
	enum history_level level;
	int64_t *ids;
	struct uw_bytes *blobs; /* owned copies */
	size_t n, room_ids, room_blobs;
	struct samples_merging *samples;
	int64_t start_ns, end_ns, n_samples;
};

void history_merge_free(struct history_merge *m)
{
	if (!m)
		return;
	samples_merging_free(m->samples);
	for (size_t i = 0; i < m->n; i++)
		free((void *)m->blobs[i].pos);
	free(m->ids);
	free(m->blobs);
	free(m);
}

/* Remember the window of a row. */
static int take_window(struct history_merge *m, sqlite3_stmt *row)
{
	int64_t start_ns = sqlite3_column_int64(row, 1), end_ns = sqlite3_column_int64(row, 2);
	size_t size = (size_t)sqlite3_column_bytes(row, 4);
	uint8_t *copy;
	int err = array_grow(m->ids, m->n, m->room_ids);

	if (!err)
		err = array_grow(m->blobs, m->n, m->room_blobs);
	copy = err ? NULL : malloc(size + 1);
	if (!copy)
		return -ENOMEM;
	if (size)
		memcpy(copy, sqlite3_column_blob(row, 4), size);
	if (!m->n || start_ns < m->start_ns)
		m->start_ns = start_ns;
	if (!m->n || end_ns > m->end_ns)
		m->end_ns = end_ns;
	m->n_samples = stacks_sum(m->n_samples, sqlite3_column_int64(row, 3));
	m->ids[m->n] = sqlite3_column_int64(row, 0);
	m->blobs[m->n++] = uw_bytes_of(copy, size);
	return 0;
}

/* Take the windows that begin in a period, up to a level. */
static int take_windows(struct history *h, int64_t period, struct history_merge *m)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, MERGE_WINDOWS, &err);

	if (!stmt)
		return err;
	db_bind_numbers(
		stmt, (const int64_t[]){ period, period + (int64_t)period_ns[m->level], m->level },
		3);
	while ((err = db_step(stmt)) == 1) {
		err = take_window(m, stmt);
		if (err)
			break;
	}
	db_release(stmt);
	return err ? err : m->n ? 0 : -EBADMSG;
}

/* Run a statement with two parameters. */
static int run(struct history *h, enum history_statement which, int64_t one, int64_t two)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, which, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, (const int64_t[]){ one, two }, sqlite3_bind_parameter_count(stmt));
	err = db_step(stmt);
	db_release(stmt);
	return err < 0 ? err : 0;
}

/* Put one window in the place of those that were merged. -ESTALE: one of them is not there any more. */
static int replace(struct history *h, const struct history_merge *m)
{
	int64_t id;
	int err = history_add_window(h,
				     &(struct history_row){ m->start_ns, m->end_ns, m->level,
							    m->n_samples,
							    samples_merged(m->samples) },
				     &id);

	for (size_t i = 0; i < m->n && !err; i++) {
		err = run(h, MERGE_COUNTERS, id, m->ids[i]);
		if (!err)
			err = run(h, DELETE_WINDOW, m->ids[i], 0);
		if (!err && sqlite3_changes(h->db) != 1)
			err = -ESTALE;
	}
	return err;
}

/* Delete the windows that cannot be merged because they are damaged: nobody can read them. */
static int delete_damaged(struct history *h, const struct history_merge *m)
{
	int err = 0;

	for (size_t i = 0; i < m->n && !err; i++) {
		struct history_bytes one = { .bytes = NULL };

		err = samples_merge(&m->blobs[i], 1, m->level, &one);
		free(one.bytes);
		if (err == -EBADMSG || err == -ENOTSUP) {
			log_error("%s: window %lld is damaged: it is deleted", h->path,
				  (long long)m->ids[i]);
			err = run(h, DELETE_WINDOW, m->ids[i], 0);
		}
	}
	return err;
}

/* Begin to merge the windows of a period. */
static int begin_merge(struct history *h, int64_t period, enum history_level level)
{
	int err;

	h->merge = calloc(1, sizeof(*h->merge));
	if (!h->merge)
		return -ENOMEM;
	h->merge->level = level;
	err = take_windows(h, period, h->merge);
	if (!err)
		err = samples_merging_new(h->merge->blobs, h->merge->n, level, &h->merge->samples);
	if (err) {
		history_merge_free(h->merge);
		h->merge = NULL;
	}
	return err;
}

/* Go on merging until a step's time is over, or write what was merged. Return as history_keep. */
static int go_on_merging(struct history *h)
{
	int merged = samples_merging_go(h->merge->samples, now_ns() + h->step_ns), err;

	if (merged == 1)
		return 1;
	err = db_exec(h->db, "BEGIN IMMEDIATE");
	if (!err && !merged)
		err = replace(h, h->merge);
	else if (!err)
		err = merged == -EBADMSG || merged == -ENOTSUP ? delete_damaged(h, h->merge)
							       : merged;
	err = history_end(h, err);
	history_merge_free(h->merge);
	h->merge = NULL;
	/* If another process merged or deleted windows meanwhile, the next step begins anew. */
	return err && err != -ESTALE ? err : 1;
}

/*
 * Merge the windows of the first period that is old enough and has windows below a level. Return as
 * history_keep.
 */
static int merge(struct history *h, enum history_level level, int64_t before_ns)
{
	int64_t start_ns, period = (int64_t)period_ns[level];
	int err;
	sqlite3_stmt *stmt = history_statement(h, FIRST_BELOW, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, level);
	err = db_step(stmt);
	start_ns = err == 1 ? sqlite3_column_int64(stmt, 0) : 0;
	db_release(stmt);
	if (err != 1)
		return err;
	start_ns -= start_ns % period;
	if (start_ns > before_ns - period)
		return 0;
	err = begin_merge(h, start_ns, level);
	return err ? err : go_on_merging(h);
}

/* ---- all of it --------------------------------------------------------------------------- */

/* Return the time that is so long before another one; 0 if that is before 1970. */
static int64_t before(uint64_t now, uint64_t ns)
{
	return now > ns ? (int64_t)(now - ns) : 0;
}

/* Give whether there is something to sweep, and either space is needed or a day has passed. */
static int is_sweep_due(struct history *h, const struct history_limits *limits, uint64_t now,
			bool *due)
{
	int64_t is = 0, swept_ns = 0, bytes = 0;
	int err = history_number(h, HISTORY_UNSWEPT, &is);

	if (!err)
		err = history_number(h, HISTORY_SWEPT, &swept_ns);
	if (!err)
		err = history_value(h, USED_BYTES, &bytes);
	*due = is && ((uint64_t)bytes > limits->bytes || swept_ns <= before(now, DAY_NS) ||
		      (uint64_t)swept_ns > now);
	return err;
}

/* Find something to do, and do a piece of it. */
static int keep(struct history *h, const struct history_limits *limits, uint64_t now)
{
	int64_t old = before(now, limits->age_ns);
	bool due = false;
	int err;

	if (h->merge)
		return go_on_merging(h);
	err = delete_before(h, old > h->delete_before_ns ? old : h->delete_before_ns);
	if (err)
		return err;
	h->delete_before_ns = 0; /* all are gone */
	err = is_sweep_due(h, limits, now, &due);
	if (!err && (due || h->sweep)) {
		err = history_sweep(h, now);
		return err ? err : 1;
	}
	if (!err)
		err = shrink(h, limits->bytes);
	if (!err)
		err = vacuum(h);
	if (!err)
		err = merge(h, HISTORY_THREADS, before(now, limits->times_ns));
	if (!err)
		err = merge(h, HISTORY_TOGETHER, before(now, limits->threads_ns));
	return err;
}

uint64_t history_steady_time(struct history *h, uint64_t now)
{
	int64_t end_ns = 0;
	int err = history_value(h, STEADY_END, &end_ns);

	return err || end_ns < 0 ? 0 : (uint64_t)end_ns < now ? (uint64_t)end_ns : now;
}

int history_keep(struct history *h, const struct history_limits *limits, uint64_t now)
{
	struct history_limits all = *limits;
	int err;

	complete(&all);
	err = now > INT64_MAX ? -EINVAL : keep(h, &all, now);
	if (err < 0)
		(void)history_failed(h, "merge or delete windows", err);
	return err;
}

/* agent/history/history_read.c: reads the samples of a range of time into a profile. */
#include "agent/history/history_reading.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* A window whose samples are added. */
struct window {
	uint64_t start_ns, end_ns;
	uint64_t from_ns, to_ns; /* what of it lies in the range of time */
	bool whole;		 /* it lies in the range of time */
	bool merged;		 /* its samples have no times */
};

/* Add those of a group's samples that lie in the range of time, all together or each. */
static int add_times(struct reading *r, const struct window *w, struct history_group *g)
{
	struct sum_part share = { .n = g->n_times };
	uint64_t time_ns;
	int err = 0;

	for (uint64_t i = 0; !err && samples_time(g, &time_ns); i++) {
		time_ns = history_sample_time(w->start_ns, w->end_ns, time_ns);
		if (time_ns < r->q->from_ns || time_ns >= r->q->to_ns)
			continue;
		if (!share.to || r->q->times)
			share.from = i;
		share.to = i + 1;
		share.time_ns = r->q->times ? time_ns : 0;
		r->found->n_samples++;
		if (r->q->times)
			err = history_sum_add(r, g->sample, &share);
	}
	return err || r->q->times || !share.to ? err : history_sum_add(r, g->sample, &share);
}

/* Add what the range of time has of a merged window's group, or all if samples have times, which is the window's start then. */
static int add_merged(struct reading *r, const struct window *w, const struct history_group *g)
{
	struct sum_part share = { .to = 1, .n = 1, .time_ns = r->q->times ? w->start_ns : 0 };

	if (!w->whole) {
		const struct history_part part =
			history_part_of(g->sample, w->start_ns, w->end_ns, w->from_ns, w->to_ns);

		share.from = part.from;
		share.to = part.to;
		share.n = part.n;
	}
	return share.to > share.from ? history_sum_add(r, g->sample, &share) : 0;
}

static int add_group(struct reading *r, const struct window *w, struct history_group *g)
{
	struct sum_part all = { .to = 1, .n = 1 };

	if (!g->n_times)
		return add_merged(r, w, g);
	if (!w->whole || r->q->times)
		return add_times(r, w, g);
	r->found->n_samples += g->n_times;
	return history_sum_add(r, g->sample, &all);
}

/* Return 1 if all that a sample refers to is there, 0 if it is not, or a negative code. */
static int is_sound(struct reading *r, const struct history_sample *g)
{
	int err;

	for (uint32_t i = 0; i < g->n_values; i++)
		if (g->values[i].type >= r->n_types || !r->type_of[g->values[i].type])
			return 0;
	err = g->node ? history_check_stack(r, (int64_t)g->node) : 0;
	return err == -EBADMSG ? 0 : err ? err : 1;
}

/*
 * Begin to read the samples of a window. Return 1, 0 if they are damaged, or a negative code. Not careful: only their
 * beginning is looked at.
 */
static int open_samples(struct reading *r, sqlite3_stmt *stmt, struct samples_reader *out)
{
	const void *blob = sqlite3_column_blob(stmt, 3);
	size_t size = (size_t)sqlite3_column_bytes(stmt, 3);
	struct history_group group;
	struct samples_reader samples;
	int err;

	if (!r->careful)
		return !samples_open(blob, size, out);
	if (!history_open_samples(blob, size, &r->bounds, &samples))
		return 0;
	*out = samples;
	while ((err = samples_next(&samples, &group)) == 1) {
		err = is_sound(r, group.sample);
		if (err != 1)
			return err;
	}
	return err ? err : 1;
}

/* Return how many of a merged window's n samples lie in the range of time. */
static uint64_t samples_of(const struct window *w, uint64_t n)
{
	const uint64_t span = w->end_ns - w->start_ns;

	return w->end_ns > w->start_ns && w->to_ns - w->from_ns < span
		       ? (uint64_t)((unsigned __int128)n * (w->to_ns - w->from_ns) / span)
		       : n;
}

/* Add the samples of a window. -EAGAIN: they are damaged, and some may have been added. */
static int add_window(struct reading *r, sqlite3_stmt *stmt)
{
	struct window w = { .start_ns = (uint64_t)sqlite3_column_int64(stmt, 0),
			    .end_ns = (uint64_t)sqlite3_column_int64(stmt, 1) };
	struct samples_reader reader;
	struct history_group group;
	int err;

	err = open_samples(r, stmt, &reader);
	if (err != 1) {
		r->found->n_damaged += !err;
		return err;
	}
	w.whole = w.start_ns >= r->q->from_ns && w.end_ns <= r->q->to_ns;
	w.merged = reader.level != HISTORY_TIMES;
	if (w.merged && r->q->times && w.start_ns < r->q->from_ns)
		return 0;
	w.from_ns = w.start_ns > r->q->from_ns ? w.start_ns : r->q->from_ns;
	w.to_ns = w.end_ns < r->q->to_ns || (w.merged && r->q->times) ? w.end_ns : r->q->to_ns;
	if (w.merged)
		r->found->n_samples += samples_of(&w, (uint64_t)sqlite3_column_int64(stmt, 2));
	if (!r->found->n_windows++ || w.from_ns < r->found->start_ns)
		r->found->start_ns = w.from_ns;
	r->found->end_ns = w.to_ns;
	while ((err = samples_next(&reader, &group)) == 1) {
		if (!r->careful && !history_is_within(group.sample, &r->bounds))
			return -EAGAIN;
		err = add_group(r, &w, &group);
		if (err)
			return err;
	}
	return err && !r->careful ? -EAGAIN : err;
}

static int64_t sql_time(uint64_t ns)
{
	return ns > INT64_MAX ? INT64_MAX : (int64_t)ns;
}

static int read_windows(struct reading *r)
{
	const int64_t range[] = { sql_time(r->q->from_ns), sql_time(r->q->to_ns) };
	int err = history_read_bounds(r->h, &r->bounds);
	sqlite3_stmt *stmt = err ? NULL : history_statement(r->h, READ_WINDOWS, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, range, 2);
	while ((err = db_step(stmt)) == 1) {
		if (r->q->window && r->q->window != sqlite3_column_int64(stmt, 4))
			continue;
		err = add_window(r, stmt);
		if (err)
			break;
	}
	db_release(stmt);
	return err ? err : history_sum_pending(r);
}

/* Read the sums of all windows, and make their tree. */
static int read_sums(struct reading *r, struct history_tree *t)
{
	int err = read_windows(r);

	if (!err && r->q->parts)
		err = history_cut(r);
	return err ? err : history_tree_make(r, t);
}

/*
 * A damaged window is left out as a whole, also if only what its stacks consist of is. Looking for damage first takes as
 * long as reading, so it is only done once there is some.
 */
static int read_samples(struct reading *r)
{
	struct history_tree t = { .next = NULL };
	int err = read_sums(r, &t);

	/* What was wrong may be in a window that is left out. */
	if (err == -EAGAIN || err == -EBADMSG || err == -EFBIG) {
		history_tree_free(&t);
		t = (struct history_tree){ .next = NULL };
		history_sums_forget(r);
		r->careful = true;
		err = read_sums(r, &t);
	}
	if (!err)
		err = history_tree_add(r, &t);
	history_tree_free(&t);
	return err;
}

/* Let the profile say that windows, or labels, are left out. */
static int note_damage(struct stacks *s, const struct history_found *found)
{
	const uint64_t n = found->n_damaged, n_labels = found->n_damaged_labels;
	char text[80];
	int err = 0;

	(void)snprintf(text, sizeof(text), "%" PRIu64 " damaged window%s left out", n,
		       n == 1 ? " is" : "s are");
	if (n)
		err = stacks_add_comment(s, text);
	(void)snprintf(text, sizeof(text),
		       "%" PRIu64 " row%s of labels %s damaged: samples have none", n_labels,
		       n_labels == 1 ? "" : "s", n_labels == 1 ? "is" : "are");
	return err || !n_labels ? err : stacks_add_comment(s, text);
}

static void fini(struct reading *r)
{
	history_sums_fini(r);
	history_load_fini(r);
	history_limit_rows(r->h);
}

int history_read(struct history *h, const struct history_query *query, struct stacks *stacks,
		 struct history_found *found)
{
	struct reading r = { .h = h, .q = query, .s = stacks, .found = found };
	int err;

	*found = (struct history_found){ .n_windows = 0 };
	r.pending = r.few;
	r.most_pending = PENDING;
	/* One transaction: names and stacks that windows refer to are there. */
	err = db_exec(h->db, "BEGIN");
	if (!err) {
		err = history_check_names(h);
		if (!err)
			err = history_make_labels(&r);
		if (!err)
			err = history_load_types(&r);
		stacks->compared |= query->base;
		if (!err)
			err = read_samples(&r);
		if (!err)
			err = note_damage(stacks, found);
		if (!err && found->n_windows && !query->base)
			stacks_add_time(stacks, (int64_t)found->start_ns,
					(int64_t)(found->end_ns - found->start_ns), 0);
		history_warn(h, found->n_damaged);
		(void)history_failed(h, "be read", err);
		(void)db_exec(h->db, "COMMIT");
	} else {
		(void)history_failed(h, "be read", err);
	}
	fini(&r);
	return err;
}

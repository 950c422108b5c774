/* agent/history/history_scan.c: goes through single samples, labels and counters of a range of time. */
#include "agent/history/history_internal.h"

#include "agent/history/samples.h"
#include "agent/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int history_read_bounds(struct history *h, struct history_bounds *out)
{
	int64_t page = -1, type = 0;
	int err = history_value(h, LAST_NODE_PAGE, &page);

	if (!err)
		err = history_value(h, LAST_TYPE, &type);
	out->node = ((uint64_t)page + 1) * NODES_IN_PAGE;
	out->type = (uint64_t)type;
	return err;
}

bool history_is_within(const struct history_sample *s, const struct history_bounds *bounds)
{
	for (uint32_t i = 0; i < s->n_values; i++)
		if (s->values[i].type > bounds->type)
			return false;
	return s->node <= bounds->node;
}

int history_open_samples(const void *blob, size_t size, const struct history_bounds *bounds,
			 struct samples_reader *out)
{
	struct history_group group;
	struct samples_reader r;
	int err = samples_open(blob, size, &r);

	while (!err && (err = samples_next(&r, &group)) == 1)
		err = history_is_within(group.sample, bounds) ? 0 : -EBADMSG;
	return err ? 0 : !samples_open(blob, size, out);
}

void history_warn(const struct history *h, uint64_t n_damaged)
{
	if (n_damaged)
		log_warning("%s: %" PRIu64 " damaged window%s left out", h->path, n_damaged,
			    n_damaged == 1 ? " is" : "s are");
}

enum { PARTS_MAX = 1 << 20 }; /* of a group; more say nothing */

/*
 * Return how many of n samples are before a time since the window's start, if one follows the other after an n-th of the
 * window. first / n is how much of that time the first one lacks.
 */
static uint64_t rank_at(uint64_t n, uint64_t after_ns, uint64_t first, uint64_t span)
{
	return (uint64_t)(((unsigned __int128)n * after_ns + first) / span);
}

struct history_part history_part_of(const struct history_sample *g, uint64_t start_ns,
				    uint64_t end_ns, uint64_t from_ns, uint64_t to_ns)
{
	const uint64_t span = end_ns > start_ns ? end_ns - start_ns : 0;
	uint64_t n = PARTS_MAX, hash, first;

	if (!span || (from_ns <= start_ns && to_ns >= end_ns))
		return (struct history_part){ .to = 1, .n = 1 };
	/* Counts are the smallest values: no sample is divided. */
	for (uint32_t i = 0; i < g->n_values; i++)
		if (g->values[i].value > 0 && (uint64_t)g->values[i].value < n)
			n = (uint64_t)g->values[i].value;
	/* The same in each process. */
	hash = uw_hash_u64(g->node ^
			   uw_hash_u64(g->labels ^ uw_hash_u64(((uint64_t)g->pid << 32) | g->tid)));
	/* A single sample may be anywhere in the window, several follow each other at equal distances. */
	first = (uint64_t)((unsigned __int128)(hash >> 32) * span >> 32);
	return (struct history_part){ .from = rank_at(n, from_ns - start_ns, first, span),
				      .to = rank_at(n, to_ns - start_ns, first, span),
				      .n = n };
}

int history_labels_failed(struct history *h, int64_t row, int err)
{
	int why;
	sqlite3_stmt *stmt = history_statement(h, CHECK_LABELS, &why);
	bool damaged = false;

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, row);
	damaged = db_step(stmt) == 1 && !sqlite3_column_int64(stmt, 0);
	db_release(stmt);
	if (damaged)
		log_warning("%s: row %" PRId64 " of labels is damaged: its samples have no labels",
			    h->path, row);
	return damaged ? 0 : err;
}

struct scanning {
	uint64_t from_ns, to_ns;
	uint32_t type, count_type; /* the one asked for, and "samples" */
	/* Those of waits; 0: there is none. */
	struct {
		uint32_t n, whole, blocked, runnable, wall;
	} off_cpu;
	history_point_fn fn;
	void *ctx;
	struct history_bounds bounds;
	bool careful; /* go through each window before it is used: one is damaged */
	uint64_t n_damaged;
};

/* SQLite has signed numbers: a time beyond them is never reached. */
static int64_t clip(uint64_t time_ns)
{
	return time_ns > INT64_MAX ? INT64_MAX : (int64_t)time_ns;
}

static int64_t value_of(const struct history_sample *s, uint32_t type)
{
	int64_t value = 0;

	for (uint32_t i = 0; i < s->n_values; i++)
		if (s->values[i].type == type)
			value = stacks_sum(value, s->values[i].value);
	return value;
}

/* How long a wait took until a sample, and the part at its end in which the thread was ready to run. */
struct wait {
	uint64_t whole_ns, runnable_ns;
};

/* Return the length of the waits that a group has, or of the part that was asked for; 0: the value is none. */
static struct wait wait_of(const struct scanning *s, const struct history_sample *g)
{
	const int64_t n = value_of(g, s->off_cpu.n), whole = value_of(g, s->off_cpu.whole);
	const int64_t runnable = value_of(g, s->off_cpu.runnable);
	const bool any = s->type == s->off_cpu.whole || s->type == s->off_cpu.blocked ||
			 s->type == s->off_cpu.runnable || s->type == s->off_cpu.wall;

	/* A sample may stand for several waits like its own. */
	if (!any || n <= 0 || whole <= 0 || runnable < 0 || runnable > whole)
		return (struct wait){ 0 };
	return (struct wait){ (uint64_t)(whole / n), (uint64_t)(runnable / n) };
}

/* Set when what the value of a wait's sample says began and ended. */
static void set_span(const struct scanning *s, const struct wait *wait, struct history_point *p)
{
	const uint64_t time_ns = p->end_ns,
		       whole = wait->whole_ns < time_ns ? wait->whole_ns : time_ns;
	const uint64_t ready = time_ns - (wait->runnable_ns < whole ? wait->runnable_ns : whole);

	p->began_ns = s->type == s->off_cpu.runnable ? ready : time_ns - whole;
	p->ended_ns = s->type == s->off_cpu.blocked ? ready : time_ns;
}

/* Call fn for what the range of time has of a merged window's group, as one point. */
static int scan_merged(const struct scanning *s, const struct history_group *g, uint64_t start_ns,
		       uint64_t end_ns)
{
	const uint64_t from = start_ns > s->from_ns ? start_ns : s->from_ns;
	const uint64_t to = end_ns < s->to_ns ? end_ns : s->to_ns;
	const struct history_part part = history_part_of(g->sample, start_ns, end_ns, from, to);
	const struct history_point p = {
		.start_ns = from,
		.end_ns = to > from ? to : from,
		.labels = g->sample->labels,
		.node = g->sample->node,
		.pid = g->sample->pid,
		.tid = g->sample->tid,
		.n = (uint64_t)history_share(value_of(g->sample, s->count_type), part.from, part.to,
					     part.n),
		.value = history_share(value_of(g->sample, s->type), part.from, part.to, part.n),
	};

	return part.to > part.from ? s->fn(s->ctx, &p) : 0;
}

static int scan_group(const struct scanning *s, struct history_group *g, uint64_t start_ns,
		      uint64_t end_ns)
{
	struct history_point p = { .start_ns = start_ns,
				   .end_ns = end_ns,
				   .labels = g->sample->labels,
				   .node = g->sample->node,
				   .pid = g->sample->pid,
				   .tid = g->sample->tid,
				   .n = 1,
				   .value = value_of(g->sample, s->type) };
	const int64_t value = p.value;
	const struct wait wait = wait_of(s, g->sample);
	uint64_t time_ns;
	int err = 0;

	for (uint64_t i = 0; !err && samples_time(g, &time_ns); i++) {
		p.start_ns = p.end_ns = history_sample_time(start_ns, end_ns, time_ns);
		p.value = history_share(value, i, i + 1, g->n_times);
		if (wait.whole_ns)
			set_span(s, &wait, &p);
		if (p.start_ns >= s->from_ns && p.start_ns < s->to_ns)
			err = s->fn(s->ctx, &p);
	}
	return err;
}

/* Return -EAGAIN if the samples are damaged; fn may have had some. Careful: they are counted and left out. */
static int scan_window(struct scanning *s, sqlite3_stmt *window)
{
	const void *blob = sqlite3_column_blob(window, 3);
	const size_t size = (size_t)sqlite3_column_bytes(window, 3);
	uint64_t start_ns = (uint64_t)sqlite3_column_int64(window, 0);
	uint64_t end_ns = (uint64_t)sqlite3_column_int64(window, 1);
	struct samples_reader reader;
	struct history_group group;
	int err = 0, next;

	if (s->careful && !history_open_samples(blob, size, &s->bounds, &reader)) {
		s->n_damaged++;
		return 0;
	}
	if (!s->careful && samples_open(blob, size, &reader))
		return -EAGAIN;
	while (!err && (next = samples_next(&reader, &group))) {
		if (next < 0 || !history_is_within(group.sample, &s->bounds))
			return -EAGAIN;
		err = group.n_times ? scan_group(s, &group, start_ns, end_ns)
				    : scan_merged(s, &group, start_ns, end_ns);
	}
	return err;
}

static int scan_windows(struct scanning *s, struct history *h)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_WINDOWS, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, (const int64_t[]){ clip(s->from_ns), clip(s->to_ns) }, 2);
	while ((err = db_step(stmt)) == 1) {
		err = scan_window(s, stmt);
		if (err)
			break;
	}
	db_release(stmt);
	return err;
}

/* Find the sample type. */
static int find_type(struct history *h, const char *type, uint32_t *out)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_TYPE, &err);

	if (!stmt)
		return err;
	if (type)
		(void)sqlite3_bind_text(stmt, 1, type, -1, SQLITE_STATIC);
	err = db_step(stmt);
	if (err == 1) {
		*out = (uint32_t)sqlite3_column_int64(stmt, 0);
		(void)snprintf(h->type, sizeof(h->type), "%s", sqlite3_column_text(stmt, 1));
		(void)snprintf(h->unit, sizeof(h->unit), "%s", sqlite3_column_text(stmt, 2));
	}
	db_release(stmt);
	return err == 1 ? 0 : err ? err : -ENOENT;
}

/* Find the sample types of waits, if there are any. */
static int find_off_cpu(struct history *h, struct scanning *s)
{
	const struct {
		const char *type;
		uint32_t *to;
	} types[] = { { "off_cpu_samples", &s->off_cpu.n },
		      { "off_cpu", &s->off_cpu.whole },
		      { "blocked", &s->off_cpu.blocked },
		      { "runnable", &s->off_cpu.runnable },
		      { "wall", &s->off_cpu.wall } };
	int err = 0;

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]) && (!err || err == -ENOENT); i++)
		err = find_type(h, types[i].type, types[i].to);
	return err == -ENOENT ? 0 : err;
}

int history_scan(struct history *h, uint64_t from_ns, uint64_t to_ns, const char *type,
		 history_point_fn fn, void *ctx, const char **type_name, const char **unit)
{
	struct scanning s = { .from_ns = from_ns, .to_ns = to_ns, .fn = fn, .ctx = ctx };
	int err = find_off_cpu(h, &s);

	if (!err)
		err = find_type(h, "samples", &s.count_type);
	if (!err || err == -ENOENT)
		err = find_type(h, type, &s.type);
	if (err)
		return err == -ENOENT ? err : history_failed(h, "be read", err);
	if (type_name)
		*type_name = h->type;
	if (unit)
		*unit = h->unit;
	err = history_read_bounds(h, &s.bounds);
	if (!err)
		err = scan_windows(&s, h);
	/* Looking for damage first takes as long as the scan, so it is only done once there is some. */
	if (err == -EAGAIN || err == -EBADMSG || err == -E2BIG || err == -ENOMEM) {
		s.careful = true;
		err = fn(ctx, NULL);
		if (!err)
			err = scan_windows(&s, h);
	}
	history_warn(h, s.n_damaged);
	return history_failed(h, "be read", err);
}

int history_label(struct history *h, uint64_t labels, const char *key, char *out, size_t size)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_LABEL, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, (int64_t)labels);
	(void)sqlite3_bind_text(stmt, 2, key, -1, SQLITE_STATIC);
	err = db_step(stmt);
	(void)snprintf(out, size, "%s", err == 1 ? (const char *)sqlite3_column_text(stmt, 0) : "");
	db_release(stmt);
	return err < 0 ? history_labels_failed(h, (int64_t)labels, err) : 0;
}

/* Call fn for each text in a column of a statement without parameters. */
static int each_text(struct history *h, enum history_statement which, int column, history_key_fn fn,
		     void *ctx)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, which, &err);

	if (!stmt)
		return history_failed(h, "be read", err);
	while ((err = db_step(stmt)) == 1)
		fn(ctx, (const char *)sqlite3_column_text(stmt, column));
	db_release(stmt);
	return history_failed(h, "be read", err);
}

int history_label_keys(struct history *h, history_key_fn fn, void *ctx)
{
	return each_text(h, READ_LABEL_KEYS, 0, fn, ctx);
}

int history_type_names(struct history *h, history_key_fn fn, void *ctx)
{
	return each_text(h, READ_TYPES, 1, fn, ctx);
}

/* Call fn for each row of a statement that was bound. */
static int each_counter(struct history *h, sqlite3_stmt *stmt, history_counter_fn fn, void *ctx)
{
	int err;

	while ((err = db_step(stmt)) == 1)
		fn(ctx,
		   &(struct history_counter){ .what = (const char *)sqlite3_column_text(stmt, 0),
					      .reason = (const char *)sqlite3_column_text(stmt, 1),
					      .n = sqlite3_column_int64(stmt, 2) });
	db_release(stmt);
	return history_failed(h, "be read", err);
}

int history_counters(struct history *h, uint64_t from_ns, uint64_t to_ns, history_counter_fn fn,
		     void *ctx)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_COUNTERS, &err);

	if (!stmt)
		return history_failed(h, "be read", err);
	db_bind_numbers(stmt, (const int64_t[]){ clip(from_ns), clip(to_ns) }, 2);
	return each_counter(h, stmt, fn, ctx);
}

int history_totals(struct history *h, history_counter_fn fn, void *ctx)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_TOTALS, &err);

	return stmt ? each_counter(h, stmt, fn, ctx) : history_failed(h, "be read", err);
}

uint64_t history_newest(struct history *h)
{
	uint64_t newest = 0;
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_NEWEST, &err);

	if (stmt && db_step(stmt) == 1)
		newest = (uint64_t)sqlite3_column_int64(stmt, 0);
	if (stmt)
		db_release(stmt);
	return newest;
}

/* Give the window that a statement finds. Return 1, 0 if there is none, or a negative code. */
static int find_window(struct history *h, enum history_statement which,
		       const struct history_place *after, struct history_entry *out)
{
	const int64_t place[] = { after->id,
				  after->end_ns > INT64_MAX ? INT64_MAX : (int64_t)after->end_ns };
	int err;
	sqlite3_stmt *stmt = history_statement(h, which, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, place, 2);
	err = db_step(stmt);
	if (err == 1)
		*out = (struct history_entry){
			.id = sqlite3_column_int64(stmt, 0),
			.start_ns = (uint64_t)sqlite3_column_int64(stmt, 1),
			.end_ns = (uint64_t)sqlite3_column_int64(stmt, 2),
			.n_samples = (uint64_t)sqlite3_column_int64(stmt, 3),
			.merged = sqlite3_column_int64(stmt, 4) > 0,
		};
	db_release(stmt);
	return err;
}

int history_next(struct history *h, const struct history_place *after, struct history_entry *out)
{
	struct history_entry next = { .id = 0 }, merged = { .id = 0 };
	int err = find_window(h, NEXT_WINDOW, after, &next);

	if (err >= 0)
		err = find_window(h, NEXT_MERGED, after, &merged);
	if (err < 0)
		return history_failed(h, "be read", err);
	if (merged.merged && (!next.id || merged.end_ns <= next.start_ns))
		*out = merged;
	else if (next.id)
		*out = next;
	else
		return -ENOENT;
	return 0;
}

void history_take(struct history_place *place, const struct history_entry *entry)
{
	if (!entry->merged)
		place->id = entry->id;
	if (entry->end_ns > place->end_ns)
		place->end_ns = entry->end_ns;
}

int history_passed(struct history *h, const struct history_place *place, uint64_t *out)
{
	const int64_t where[] = { place->id,
				  place->end_ns > INT64_MAX ? INT64_MAX : (int64_t)place->end_ns };
	int err;
	sqlite3_stmt *stmt = history_statement(h, PASSED, &err);

	if (stmt) {
		db_bind_numbers(stmt, where, 2);
		err = db_step(stmt);
		if (err == 1)
			*out = (uint64_t)sqlite3_column_int64(stmt, 0);
		db_release(stmt);
	}
	return err == 1 ? 0 : history_failed(h, "be read", err ? err : -EBADMSG);
}

int history_window_counters(struct history *h, int64_t window, history_counter_fn fn, void *ctx)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, WINDOW_COUNTERS, &err);

	if (!stmt)
		return history_failed(h, "be read", err);
	(void)sqlite3_bind_int64(stmt, 1, window);
	while ((err = db_step(stmt)) == 1) {
		const struct history_counter c = {
			.what = (const char *)sqlite3_column_text(stmt, 0),
			.reason = (const char *)sqlite3_column_text(stmt, 1),
			.n = sqlite3_column_int64(stmt, 2),
		};

		if (c.what && c.reason)
			fn(ctx, &c);
	}
	db_release(stmt);
	return history_failed(h, "be read", err);
}

int history_end_place(struct history *h, struct history_place *out)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, LAST_WINDOW, &err);

	if (stmt) {
		err = db_step(stmt);
		if (err == 1)
			*out = (struct history_place){
				.id = sqlite3_column_int64(stmt, 0),
				.end_ns = (uint64_t)sqlite3_column_int64(stmt, 1),
			};
		db_release(stmt);
	}
	return err == 1 ? 0 : history_failed(h, "be read", err ? err : -EBADMSG);
}

uint64_t history_size(struct history *h)
{
	return (uint64_t)db_number(h->db, "SELECT page_count * page_size FROM pragma_page_count,"
					  " pragma_page_size");
}

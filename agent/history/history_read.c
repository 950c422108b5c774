/* agent/history/history_read.c: reads the samples of a range of time into a profile. */
#include "agent/history/history_internal.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/history/samples.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HISTORY_TYPES = 1024 }; /* sample types that a history can have */

/* A row whose contents are in the profile already. */
struct loaded {
	int64_t row;
	uint32_t index;	 /* in the profile; of a node: of its location */
	uint32_t parent; /* of a node: index in nodes; UW_HASH_NONE: outermost */
};

struct loaded_rows {
	struct loaded *rows;
	size_t n, room;
	struct uw_hash_index by_row;
};

/* Samples that are counted together. */
struct sum {
	uint64_t labels, node, time_ns;
	uint32_t pid, tid;
	size_t first_value; /* in values */
};

struct reading {
	struct history *h;
	const struct history_query *q;
	struct stacks *s;
	struct history_found *found;
	int64_t *type_of; /* by row in types: index + 1 in the profile; 0: there is no such row */
	size_t n_types;	  /* room of type_of */
	struct sum *sums;
	size_t n_sums, room_sums;
	int64_t *values; /* n_types of the profile for each sum */
	size_t room_values;
	struct uw_hash_index by_sum;
	struct loaded_rows nodes, frames, modules, functions;
	uint32_t *ids; /* of one sample */
	size_t room_ids;
	struct stacks_line *lines; /* of one location */
	size_t room_lines;
};

/* ---- rows -------------------------------------------------------------------------------- */

static struct loaded *find_row(const struct loaded_rows *r, int64_t row)
{
	uint32_t at =
		UW_HASH_FIND(i, &r->by_row, hash_u64(0, (uint64_t)row), r->rows[i].row == row);

	return at == UW_HASH_NONE ? NULL : &r->rows[at];
}

static int keep_row(struct loaded_rows *r, const struct loaded *new)
{
	int err = array_grow(r->rows, r->n, r->room);

	if (!err)
		err = uw_hash_add(&r->by_row, hash_u64(0, (uint64_t) new->row), (uint32_t)r->n);
	if (!err)
		r->rows[r->n++] = *new;
	return err;
}

static void free_rows(struct loaded_rows *r)
{
	free(r->rows);
	uw_hash_fini(&r->by_row);
}

/* Begin to read the row with that id. Release *out if there is one. -EBADMSG: there is no such row. */
static int read_row(struct reading *r, enum history_statement which, int64_t row,
		    sqlite3_stmt **out)
{
	int err;
	sqlite3_stmt *stmt = history_statement(r->h, which, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, row);
	err = db_step(stmt);
	if (err != 1) {
		db_release(stmt);
		return err ? err : -EBADMSG;
	}
	*out = stmt;
	return 0;
}

static const char *text_column(struct reading *r, sqlite3_stmt *stmt, int column)
{
	return stacks_text(r->s, (const char *)sqlite3_column_text(stmt, column));
}

static int load_module(struct reading *r, int64_t row, uint32_t *index)
{
	const struct loaded *known = find_row(&r->modules, row);
	struct stacks_module m = { .start = 0 };
	sqlite3_stmt *stmt;
	int err;

	if (known) {
		*index = known->index;
		return 0;
	}
	err = read_row(r, READ_MODULE, row, &stmt);
	if (err)
		return err;
	m.path = text_column(r, stmt, 0);
	m.build_id = text_column(r, stmt, 1);
	m.off = (uint64_t)sqlite3_column_int64(stmt, 2);
	m.start = (uint64_t)sqlite3_column_int64(stmt, 3);
	m.limit = (uint64_t)sqlite3_column_int64(stmt, 4);
	db_release(stmt);
	/* Without a path and bounds: an address that lay in no mapping. */
	*index = m.path && m.build_id ? (*m.path || m.limit ? stacks_module(r->s, &m) : 0)
				      : UW_HASH_NONE;
	if (*index == UW_HASH_NONE)
		return -ENOMEM;
	return keep_row(&r->modules, &(struct loaded){ .row = row, .index = *index });
}

static int load_function(struct reading *r, int64_t row, uint32_t *index)
{
	const struct loaded *known = find_row(&r->functions, row);
	struct stacks_function f = { .name = NULL };
	sqlite3_stmt *stmt;
	int err;

	if (known) {
		*index = known->index;
		return 0;
	}
	err = read_row(r, READ_FUNCTION, row, &stmt);
	if (err)
		return err;
	f.name = text_column(r, stmt, 0);
	f.system_name = text_column(r, stmt, 1);
	f.file = text_column(r, stmt, 2);
	f.start_line = sqlite3_column_int64(stmt, 3);
	db_release(stmt);
	*index = f.name && f.system_name && f.file ? stacks_function(r->s, &f) : UW_HASH_NONE;
	if (*index == UW_HASH_NONE)
		return -ENOMEM;
	return keep_row(&r->functions, &(struct loaded){ .row = row, .index = *index });
}

/* Read the lines of a frame. They were copied, because other statements run meanwhile. */
static int load_lines(struct reading *r, const uint8_t *bytes, size_t size, uint32_t *n)
{
	struct uw_bytes b = uw_bytes_of(bytes, size);
	int err = 0;

	*n = 0;
	while (!uw_bytes_done(&b) && !err) {
		int64_t function = (int64_t)uw_bytes_uleb(&b);
		struct stacks_line line = { .line = (int64_t)uw_bytes_uleb(&b) };

		err = b.err ? b.err : array_grow(r->lines, *n, r->room_lines);
		if (!err)
			err = load_function(r, function, &line.function);
		if (!err)
			r->lines[(*n)++] = line;
	}
	return err ? err : *n ? 0 : -EBADMSG;
}

static int load_frame(struct reading *r, int64_t row, uint32_t *index)
{
	const struct loaded *known = find_row(&r->frames, row);
	struct stacks_location l = { .address = 0 };
	sqlite3_stmt *stmt;
	uint8_t *lines;
	int64_t module;
	size_t size;
	int err;

	if (known) {
		*index = known->index;
		return 0;
	}
	err = read_row(r, READ_FRAME, row, &stmt);
	if (err)
		return err;
	module = sqlite3_column_int64(stmt, 0);
	l.address = (uint64_t)sqlite3_column_int64(stmt, 1);
	size = (size_t)sqlite3_column_bytes(stmt, 2);
	lines = malloc(size + 1);
	if (lines && size)
		memcpy(lines, sqlite3_column_blob(stmt, 2), size);
	db_release(stmt);
	err = lines ? load_module(r, module, &l.module) : -ENOMEM;
	if (!err)
		err = load_lines(r, lines, size, &l.n_lines);
	free(lines);
	if (err)
		return err;
	*index = stacks_location(r->s, &l, r->lines);
	if (*index == UW_HASH_NONE)
		return -ENOMEM;
	return keep_row(&r->frames, &(struct loaded){ .row = row, .index = *index });
}

/*
 * Load a node, and its callers first. A parent's id is below its child's, so this ends even if the
 * database is damaged.
 */
static int load_node(struct reading *r, int64_t row, uint32_t *out)
{
	int64_t *missing = NULL, parent;
	size_t n = 0, room = 0;
	uint32_t last = UW_HASH_NONE;
	int err = 0;

	for (parent = row; parent && !err;) {
		const struct loaded *known = find_row(&r->nodes, parent);
		sqlite3_stmt *stmt;
		int64_t up;

		if (known) {
			last = (uint32_t)(known - r->nodes.rows);
			break;
		}
		err = array_grow(missing, n, room);
		if (!err)
			err = read_row(r, READ_NODE, parent, &stmt);
		if (err)
			break;
		missing[n++] = parent;
		up = sqlite3_column_int64(stmt, 0);
		db_release(stmt);
		err = up >= parent || up < 0 ? -EBADMSG : 0;
		parent = up;
	}
	while (n-- && !err) {
		struct loaded new = { .row = missing[n], .parent = last };
		sqlite3_stmt *stmt;
		int64_t frame;

		err = read_row(r, READ_NODE, missing[n], &stmt);
		if (err)
			break;
		frame = sqlite3_column_int64(stmt, 1);
		db_release(stmt);
		err = load_frame(r, frame, &new.index);
		last = (uint32_t)r->nodes.n;
		if (!err)
			err = keep_row(&r->nodes, &new);
	}
	free(missing);
	*out = last;
	return err;
}

/* ---- counting together ------------------------------------------------------------------- */

static bool is_sum(const struct sum *s, const struct sum *key)
{
	return s->labels == key->labels && s->node == key->node && s->pid == key->pid &&
	       s->tid == key->tid && s->time_ns == key->time_ns;
}

static int add_sum(struct reading *r, const struct sum *key, uint32_t *out)
{
	uint64_t hash = hash_u64(hash_u64(hash_u64(key->node, key->labels), key->time_ns),
				 (uint64_t)key->pid << 32 | key->tid);
	size_t n_types = r->s->n_types;
	int err;

	*out = UW_HASH_FIND(i, &r->by_sum, hash, is_sum(&r->sums[i], key));
	if (*out != UW_HASH_NONE)
		return 0;
	err = array_grow(r->sums, r->n_sums, r->room_sums);
	if (!err)
		err = array_reserve(r->values, (r->n_sums + 1) * n_types, r->room_values);
	if (!err)
		err = uw_hash_add(&r->by_sum, hash, (uint32_t)r->n_sums);
	if (err)
		return err;
	*out = (uint32_t)r->n_sums++;
	r->sums[*out] = *key;
	r->sums[*out].first_value = *out * n_types;
	memset(r->values + r->sums[*out].first_value, 0, n_types * sizeof(*r->values));
	return 0;
}

/* Add n of the group's n_all samples, as a share of its values, to those that are counted together. */
static int add_share(struct reading *r, const struct history_sample *g, uint64_t n, uint64_t n_all,
		     uint64_t time_ns)
{
	struct sum key = { .node = g->node, .time_ns = time_ns };
	uint32_t at;
	int err;

	if (r->q->labels) {
		key.labels = g->labels;
		key.pid = g->pid;
		key.tid = g->tid;
	}
	err = add_sum(r, &key, &at);
	if (err)
		return err;
	for (uint32_t i = 0; i < g->n_values; i++) {
		const struct history_value *v = &g->values[i];
		int64_t *to;

		if (v->type >= r->n_types || !r->type_of[v->type])
			return -EBADMSG;
		to = &r->values[r->sums[at].first_value + (size_t)r->type_of[v->type] - 1];
		*to = stacks_sum(*to, n == n_all ? v->value
						 : (int64_t)((__int128)v->value * (int64_t)n /
							     (int64_t)n_all));
	}
	return 0;
}

/* Add the samples of a group that lie in the range of time. */
static int add_group(struct reading *r, struct history_group *g, uint64_t start_ns)
{
	uint64_t n = 0, time_ns;
	int err = 0;

	if (!g->n_times) /* it was merged */
		return add_share(r, &g->sample, 1, 1, r->q->times ? start_ns : 0);
	while (!err && samples_time(g, &time_ns)) {
		time_ns += start_ns;
		if (time_ns < r->q->from_ns || time_ns >= r->q->to_ns)
			continue;
		n++;
		if (r->q->times)
			err = add_share(r, &g->sample, 1, g->n_times, time_ns);
	}
	r->found->n_samples += n;
	return err || !n || r->q->times ? err : add_share(r, &g->sample, n, g->n_times, 0);
}

static int add_window(struct reading *r, sqlite3_stmt *window)
{
	uint64_t start_ns = (uint64_t)sqlite3_column_int64(window, 0);
	uint64_t end_ns = (uint64_t)sqlite3_column_int64(window, 1);
	struct samples_reader reader;
	struct history_group group;
	int err = samples_open(sqlite3_column_blob(window, 3),
			       (size_t)sqlite3_column_bytes(window, 3), &reader);

	if (err)
		return err;
	if (reader.level != HISTORY_TIMES) {
		if (start_ns < r->q->from_ns)
			return 0;
		r->found->n_samples += (uint64_t)sqlite3_column_int64(window, 2);
	}
	if (!r->found->n_windows++)
		r->found->start_ns = start_ns > r->q->from_ns ? start_ns : r->q->from_ns;
	r->found->end_ns =
		reader.level == HISTORY_TIMES && end_ns > r->q->to_ns ? r->q->to_ns : end_ns;
	while ((err = samples_next(&reader, &group)) == 1) {
		err = add_group(r, &group, start_ns);
		if (err)
			break;
	}
	return err;
}

static int read_windows(struct reading *r)
{
	const int64_t range[] = { (int64_t)r->q->from_ns,
				  r->q->to_ns > INT64_MAX ? INT64_MAX : (int64_t)r->q->to_ns };
	int err;
	sqlite3_stmt *stmt = history_statement(r->h, READ_WINDOWS, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, range, 2);
	while ((err = db_step(stmt)) == 1) {
		err = add_window(r, stmt);
		if (err)
			break;
	}
	db_release(stmt);
	return err;
}

/* ---- the profile ------------------------------------------------------------------------- */

/* Let the profile have all sample types of the history, in any order if it has some already. */
static int take_types(struct reading *r, const struct stacks_type *types, const int64_t *rows,
		      size_t n)
{
	size_t *index = calloc(n + 1, sizeof(*index));
	bool first = !r->s->n_types;
	int err = index ? 0 : -ENOMEM;

	if (!err && n)
		err = stacks_take_types(r->s, types, n, index);
	for (size_t i = 0; !err && i < n; i++)
		r->type_of[rows[i]] = (int64_t)index[i] + 1;
	if (!err && first && n > 1)
		r->s->default_type = 1; /* the first is how many samples there are */
	free(index);
	return err;
}

static int read_types(struct reading *r)
{
	struct stacks_type types[HISTORY_TYPES];
	int64_t rows[HISTORY_TYPES];
	int err;
	sqlite3_stmt *stmt = history_statement(r->h, READ_TYPES, &err);
	size_t n = 0;

	if (!stmt)
		return err;
	r->n_types = HISTORY_TYPES;
	r->type_of = calloc(r->n_types, sizeof(*r->type_of));
	err = r->type_of ? 0 : -ENOMEM;
	while (!err && (err = db_step(stmt)) == 1) {
		rows[n] = sqlite3_column_int64(stmt, 0);
		err = n < HISTORY_TYPES && rows[n] > 0 && rows[n] < HISTORY_TYPES ? 0 : -EBADMSG;
		if (err)
			break;
		types[n] = (struct stacks_type){ .type = text_column(r, stmt, 1),
						 .unit = text_column(r, stmt, 2) };
		err = types[n].type && types[n].unit ? 0 : -ENOMEM;
		n++;
	}
	db_release(stmt);
	return err ? err : take_types(r, types, rows, n);
}

/* Keep a label of the profile. */
static int keep_label(struct reading *r, const char *key, const char *text, int64_t value,
		      const char *unit, uint32_t *n)
{
	struct stacks_label l = { .key = stacks_text(r->s, key),
				  .text = text ? stacks_text(r->s, text) : NULL,
				  .unit = stacks_text(r->s, unit),
				  .number = value };
	int err = array_grow(r->ids, *n, r->room_ids);

	if (err || !l.key || (text && !l.text) || !l.unit)
		return -ENOMEM;
	r->ids[*n] = stacks_keep_label(r->s, &l);
	return r->ids[(*n)++] == UW_HASH_NONE ? -ENOMEM : 0;
}

/* Put the labels of a sum behind the n ids that there are. */
static int read_labels(struct reading *r, const struct sum *sum, uint32_t *n)
{
	int err = 0;
	sqlite3_stmt *stmt;

	if (r->q->times)
		err = keep_label(r, HISTORY_TIME_LABEL, NULL, (int64_t)sum->time_ns, "nanoseconds",
				 n);
	if (!err && sum->pid)
		err = keep_label(r, "pid", NULL, sum->pid, "pid", n);
	if (!err && sum->tid)
		err = keep_label(r, "tid", NULL, sum->tid, "tid", n);
	if (err || !sum->labels)
		return err;
	stmt = history_statement(r->h, READ_LABELS, &err);
	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, (int64_t)sum->labels);
	while ((err = db_step(stmt)) == 1) {
		bool text = sqlite3_column_type(stmt, 1) == SQLITE_TEXT;

		err = keep_label(r, (const char *)sqlite3_column_text(stmt, 0),
				 text ? (const char *)sqlite3_column_text(stmt, 1) : NULL,
				 sqlite3_column_int64(stmt, 1), "", n);
		if (err)
			break;
	}
	db_release(stmt);
	return err;
}

static int add_sample(struct reading *r, const struct sum *sum)
{
	struct stacks_sample to = { .base = r->q->base };
	uint32_t node = UW_HASH_NONE, n = 0;
	int err = sum->node ? load_node(r, (int64_t)sum->node, &node) : 0;

	for (; !err && node != UW_HASH_NONE; node = r->nodes.rows[node].parent) {
		err = array_grow(r->ids, n, r->room_ids);
		if (!err)
			r->ids[n++] = r->nodes.rows[node].index;
	}
	to.n_locations = n;
	if (!err)
		err = read_labels(r, sum, &n);
	to.n_labels = n - to.n_locations;
	return err ? err
		   : stacks_add(r->s, &to, r->ids, r->ids + to.n_locations,
				r->values + sum->first_value);
}

static void fini(struct reading *r)
{
	free(r->type_of);
	free(r->sums);
	free(r->values);
	uw_hash_fini(&r->by_sum);
	free_rows(&r->nodes);
	free_rows(&r->frames);
	free_rows(&r->modules);
	free_rows(&r->functions);
	free(r->ids);
	free(r->lines);
}

int history_read(struct history *h, const struct history_query *query, struct stacks *stacks,
		 struct history_found *found)
{
	struct reading r = { .h = h, .q = query, .s = stacks, .found = found };
	int err;

	*found = (struct history_found){ .n_windows = 0 };
	/* One transaction: names and stacks that windows refer to are there. */
	err = db_exec(h->db, "BEGIN");
	if (!err) {
		err = read_types(&r);
		if (!err)
			err = read_windows(&r);
		for (size_t i = 0; !err && i < r.n_sums; i++)
			err = add_sample(&r, &r.sums[i]);
		if (!err && found->n_windows && !query->base)
			stacks_add_time(stacks, (int64_t)found->start_ns,
					(int64_t)(found->end_ns - found->start_ns), 0);
		(void)history_failed(h, "be read", err);
		(void)db_exec(h->db, "COMMIT");
	} else {
		(void)history_failed(h, "be read", err);
	}
	fini(&r);
	return err;
}

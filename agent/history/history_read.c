/* agent/history/history_read.c: reads the samples of a range of time into a profile. */
#include "agent/history/history_internal.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/history/samples.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HISTORY_TYPES = 1024 }; /* sample types that a history can have */

/* A row whose contents are in the profile already. */
struct loaded {
	int64_t row;
	uint32_t index; /* in the profile; of labels: of their first in label_ids */
	uint32_t n;	/* of labels */
};

struct loaded_rows {
	struct loaded *rows;
	size_t n, room;
	struct uw_hash_index by_row;
};

/* What is known of a node. */
struct node_use {
	uint32_t location;    /* in the profile, + 1; 0: not loaded */
	uint32_t parent : 31; /* index in the cache, + 1; 0: the node is outermost, or not loaded */
	uint32_t found : 1;   /* parent is set */
};

/* Samples that are counted together. */
struct sum {
	uint64_t labels, node, time_ns;
	uint32_t pid, tid;
};

/*
 * Samples to be counted. What is known of their sum lies at a random place in memory; several are looked for
 * together, so that the CPU waits for these places at the same time.
 */
struct pending {
	struct sum key;
	uint64_t hash; /* of the key, if not only the stack matters; else of nothing */
	size_t place;  /* in stack_sums; SIZE_MAX: not known yet */
	uint32_t n_values;
	struct {
		size_t type; /* index in the profile */
		int64_t value;
	} values[HISTORY_VALUES];
};

enum { PENDING = 32 };

struct reading {
	struct history *h;
	const struct history_query *q;
	struct stacks *s;
	struct history_found *found;
	struct history_bounds bounds;
	bool careful; /* go through each window and its stacks before it is used: one is damaged */
	int64_t *type_of; /* by row in types: index + 1 in the profile; 0: there is no such row */
	size_t n_types;	  /* room of type_of */
	struct sum *sums;
	size_t n_sums, room_sums;
	int64_t *values; /* n_types of the profile for each sum */
	size_t room_values;
	struct uw_hash_index by_sum;
	/*
	 * Of samples without labels and times: by index in the cache of nodes, index in sums + 1; 0:
	 * none. They are apart from uses, so that what each group of samples asks for is small.
	 */
	uint32_t *stack_sums;
	size_t n_stack_sums;
	uint32_t sum_without_frames; /* index + 1 */
	struct pending pending[PENDING];
	size_t n_pending;
	struct node_use *uses; /* as the cache of nodes */
	size_t n_uses;
	uint32_t *frames, *functions; /* as the caches of rows: index in the profile + 1 */
	size_t n_frames, n_functions;
	struct loaded_rows modules, labels;
	uint32_t *label_ids; /* of all rows in labels */
	size_t n_label_ids, room_label_ids;
	struct stacks_label pid, tid, time; /* without their numbers */
	uint32_t *ids;			    /* of one sample */
	size_t room_ids;
	struct {
		const char *from, *to;
	} file;			   /* of the last function: as it is cached, and in the profile */
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
	sqlite3_stmt *stmt = NULL;
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

/* Make *known large enough for an index in a cache of rows; what is new is 0. */
static int reserve_known(uint32_t **known, size_t *n, size_t index)
{
	size_t before = *n;
	int err = array_reserve(*known, index + 1, *n);

	if (!err && *n > before)
		memset(*known + before, 0, (*n - before) * sizeof(**known));
	return err;
}

static int load_function(struct reading *r, int64_t row, uint32_t *out)
{
	const struct history_function *from;
	struct stacks_function f;
	size_t index;
	int err;

	if (history_function_place(r->h, row, &index) && index < r->n_functions &&
	    r->functions[index]) {
		*out = r->functions[index] - 1;
		return 0;
	}
	err = history_function(r->h, row, &index);
	if (!err)
		err = reserve_known(&r->functions, &r->n_functions, index);
	if (err)
		return err;
	if (!r->functions[index]) {
		from = &history_functions(r->h)[index];
		if (from->file != r->file.from) {
			r->file.from = from->file;
			r->file.to = stacks_sanitized_text(r->s, from->file);
		}
		f = (struct stacks_function){ .name = stacks_sanitized_text(r->s, from->name),
					      .file = r->file.to,
					      .start_line = from->start_line,
					      .placed = from->placed };
		f.system_name = from->system_name == from->name
					? f.name
					: stacks_sanitized_text(r->s, from->system_name);
		*out = f.name && f.system_name && f.file ? stacks_function(r->s, &f) : UW_HASH_NONE;
		if (*out == UW_HASH_NONE)
			return -ENOMEM;
		r->functions[index] = *out + 1;
	}
	*out = r->functions[index] - 1;
	return 0;
}

/* Read the lines of a frame. */
static int load_lines(struct reading *r, const struct history_frame *frame, uint32_t *n)
{
	struct uw_bytes b = history_frame_lines(frame);
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

static int load_frame(struct reading *r, int64_t row, uint32_t *out)
{
	struct stacks_location l = { .address = 0 };
	const struct history_frame *frame;
	size_t index;
	int err;

	if (history_frame_place(r->h, row, &index) && index < r->n_frames && r->frames[index]) {
		*out = r->frames[index] - 1;
		return 0;
	}
	err = history_frame(r->h, row, &index);
	if (!err)
		err = reserve_known(&r->frames, &r->n_frames, index);
	if (err)
		return err;
	if (!r->frames[index]) {
		frame = &history_frames(r->h)[index];
		l.address = frame->address;
		err = load_module(r, frame->module, &l.module);
		if (!err)
			err = load_lines(r, frame, &l.n_lines);
		if (err)
			return err;
		*out = stacks_location(r->s, &l, r->lines);
		if (*out == UW_HASH_NONE)
			return -ENOMEM;
		r->frames[index] = *out + 1;
	}
	*out = r->frames[index] - 1;
	return 0;
}

/* Find a node in the cache, and make room for what is known of it. */
static int find_node(struct reading *r, int64_t row, size_t *index)
{
	size_t before = r->n_uses;
	int err = history_node(r->h, row, index);

	if (!err && *index >= UINT32_MAX >> 1)
		err = -EFBIG;
	if (!err)
		err = array_reserve(r->uses, *index + 1, r->n_uses);
	if (!err && r->n_uses > before)
		memset(r->uses + before, 0, (r->n_uses - before) * sizeof(*r->uses));
	return err;
}

/* Find the parent of a node, unless that was done. */
static int find_parent(struct reading *r, size_t index)
{
	struct history_node node = history_nodes(r->h)[index];
	size_t parent = 0;
	int err = 0;

	if (r->uses[index].found)
		return 0;
	if (node.up)
		err = find_node(r, history_node_id(r->h, index) - node.up, &parent);
	if (err)
		return err;
	r->uses[index].parent = (node.up ? (uint32_t)parent + 1 : 0) & INT32_MAX;
	r->uses[index].found = true;
	return 0;
}

/* Load the location of a node, and find its parent. */
static int load_node(struct reading *r, size_t index)
{
	uint32_t location;
	int err = load_frame(r, history_nodes(r->h)[index].frame, &location);

	if (!err)
		err = find_parent(r, index);
	if (!err)
		r->uses[index].location = location + 1;
	return err;
}

/* Look whether all nodes and frames of a stack are there. -EBADMSG: they are not. */
static int check_stack(struct reading *r, int64_t row)
{
	size_t index;
	int err = find_node(r, row, &index);

	/* A parent's id is below its child's, so this ends. */
	while (!err) {
		if (!r->uses[index].location)
			err = load_node(r, index);
		if (err || !r->uses[index].parent)
			break;
		index = r->uses[index].parent - 1;
	}
	return err;
}

/* ---- counting together ------------------------------------------------------------------- */

static bool is_sum(const struct sum *s, const struct sum *key)
{
	return s->labels == key->labels && s->node == key->node && s->pid == key->pid &&
	       s->tid == key->tid && s->time_ns == key->time_ns;
}

static int new_sum(struct reading *r, const struct sum *key, uint32_t *out)
{
	size_t n_types = r->s->n_types;
	int err =
		r->n_sums < r->h->sums_max ? array_grow(r->sums, r->n_sums, r->room_sums) : -EFBIG;

	if (!err)
		err = array_reserve(r->values, (r->n_sums + 1) * n_types, r->room_values);
	if (err)
		return err;
	*out = (uint32_t)r->n_sums++;
	r->sums[*out] = *key;
	for (size_t i = 0; i < n_types; i++)
		r->values[*out * n_types + i] = 0;
	return 0;
}

/* Find where the sum of samples of which only the stacks matter has its index, and read the node. */
static int place_of_sum(struct reading *r, int64_t node, uint32_t **out)
{
	size_t index;
	int err;

	if (!node) {
		*out = &r->sum_without_frames;
		return 0;
	}
	err = history_node(r->h, node, &index);
	if (!err)
		err = reserve_known(&r->stack_sums, &r->n_stack_sums, index);
	if (!err)
		*out = &r->stack_sums[index];
	return err;
}

/* Find or add the sum of samples of which only the stacks matter. */
static int sum_of_stack(struct reading *r, const struct sum *key, uint32_t *out)
{
	uint32_t *sum;
	size_t index;
	int err;

	if (history_node_place(r->h, (int64_t)key->node, &index) && index < r->n_stack_sums &&
	    r->stack_sums[index]) {
		*out = r->stack_sums[index] - 1;
		return 0;
	}
	err = place_of_sum(r, (int64_t)key->node, &sum);
	if (!err && !*sum) {
		err = new_sum(r, key, out);
		*sum = err ? 0 : *out + 1;
	}
	if (!err)
		*out = *sum - 1;
	return err;
}

static int sum_of_all(struct reading *r, const struct pending *p, uint32_t *out)
{
	int err;

	*out = UW_HASH_FIND(i, &r->by_sum, p->hash, is_sum(&r->sums[i], &p->key));
	if (*out != UW_HASH_NONE)
		return 0;
	err = new_sum(r, &p->key, out);
	return err ? err : uw_hash_add(&r->by_sum, p->hash, *out);
}

/* Let the CPU fetch what the sum of samples is found by. */
static void fetch_place(struct reading *r, struct pending *p)
{
	const struct sum *key = &p->key;

	p->place = SIZE_MAX;
	if (r->q->labels || r->q->times) {
		p->hash = hash_u64(hash_u64(hash_u64(key->node, key->labels), key->time_ns),
				   (uint64_t)key->pid << 32 | key->tid);
		uw_hash_prefetch(&r->by_sum, p->hash);
	} else if (key->node && history_node_place(r->h, (int64_t)key->node, &p->place) &&
		   p->place < r->n_stack_sums) {
		__builtin_prefetch(&r->stack_sums[p->place]);
	} else {
		p->place = SIZE_MAX;
	}
}

/* Let the CPU fetch a sum that is probably the one. */
static void fetch_sum(const struct reading *r, const struct pending *p)
{
	struct uw_hash_search search;
	uint32_t at = UW_HASH_NONE;

	if (p->place != SIZE_MAX)
		at = r->stack_sums[p->place] - 1;
	else if (r->q->labels || r->q->times)
		at = uw_hash_first(&r->by_sum, p->hash, &search);
	if (at == UW_HASH_NONE || !p->n_values)
		return;
	if (p->place == SIZE_MAX)
		__builtin_prefetch(&r->sums[at]);
	__builtin_prefetch(&r->values[at * r->s->n_types]);
}

/* Count the samples that are pending. */
static int count_pending(struct reading *r)
{
	int err = 0;

	for (size_t i = 0; i < r->n_pending; i++)
		fetch_sum(r, &r->pending[i]);
	for (size_t i = 0; i < r->n_pending && !err; i++) {
		const struct pending *p = &r->pending[i];
		uint32_t at;

		err = r->q->labels || r->q->times ? sum_of_all(r, p, &at)
						  : sum_of_stack(r, &p->key, &at);
		for (uint32_t j = 0; j < p->n_values && !err; j++) {
			int64_t *to = &r->values[at * r->s->n_types + p->values[j].type];

			*to = stacks_sum(*to, p->values[j].value);
		}
	}
	r->n_pending = 0;
	return err;
}

/* Those of a group's samples, in the order of their times, that are counted. */
struct share {
	uint64_t from, to, n; /* to is not included; n is how many the group has */
	uint64_t time_ns;     /* 0: times do not matter */
};

static int add_share(struct reading *r, const struct history_sample *g, const struct share *share)
{
	struct pending *p = &r->pending[r->n_pending];

	p->key = (struct sum){ .node = g->node, .time_ns = share->time_ns };
	if (r->q->labels) {
		p->key.labels = g->labels;
		p->key.pid = g->pid;
		p->key.tid = g->tid;
	}
	p->n_values = g->n_values;
	for (uint32_t i = 0; i < g->n_values; i++) {
		const struct history_value *v = &g->values[i];

		if (v->type >= r->n_types || !r->type_of[v->type])
			return -EBADMSG;
		p->values[i].type = (size_t)r->type_of[v->type] - 1;
		p->values[i].value = history_share(v->value, share->from, share->to, share->n);
	}
	fetch_place(r, p);
	return ++r->n_pending < PENDING ? 0 : count_pending(r);
}

/* A window whose samples are added. */
struct window {
	uint64_t start_ns, end_ns;
	bool whole; /* it lies in the range of time */
};

/* Add those of a group's samples that lie in the range of time, all together or each. */
static int add_times(struct reading *r, const struct window *w, struct history_group *g)
{
	struct share share = { .n = g->n_times };
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
			err = add_share(r, g->sample, &share);
	}
	return err || r->q->times || !share.to ? err : add_share(r, g->sample, &share);
}

static int add_group(struct reading *r, const struct window *w, struct history_group *g)
{
	struct share all = { .to = 1, .n = 1, .time_ns = r->q->times ? w->start_ns : 0 };

	if (g->n_times && (!w->whole || r->q->times))
		return add_times(r, w, g);
	r->found->n_samples += g->n_times;
	return add_share(r, g->sample, &all);
}

/* Return 1 if all that a sample refers to is there, 0 if it is not, or a negative code. */
static int is_sound(struct reading *r, const struct history_sample *g)
{
	int err;

	for (uint32_t i = 0; i < g->n_values; i++)
		if (g->values[i].type >= r->n_types || !r->type_of[g->values[i].type])
			return 0;
	err = g->node ? check_stack(r, (int64_t)g->node) : 0;
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
	if (reader.level != HISTORY_TIMES) {
		if (w.start_ns < r->q->from_ns)
			return 0;
		r->found->n_samples += (uint64_t)sqlite3_column_int64(stmt, 2);
	}
	if (!r->found->n_windows++ || w.start_ns < r->found->start_ns)
		r->found->start_ns = w.start_ns > r->q->from_ns ? w.start_ns : r->q->from_ns;
	r->found->end_ns =
		reader.level == HISTORY_TIMES && w.end_ns > r->q->to_ns ? r->q->to_ns : w.end_ns;
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
	return err ? err : count_pending(r);
}

/* Forget what was added. */
static void forget_sums(struct reading *r)
{
	r->n_sums = r->n_pending = 0;
	r->sum_without_frames = 0;
	if (r->n_stack_sums)
		memset(r->stack_sums, 0, r->n_stack_sums * sizeof(*r->stack_sums));
	uw_hash_clear(&r->by_sum);
	*r->found = (struct history_found){ .n_windows = 0 };
}

/* ---- types ------------------------------------------------------------------------------- */

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

/* ---- labels ------------------------------------------------------------------------------ */

/* Prepare the labels that have columns of their own. */
static int make_labels(struct reading *r)
{
	r->pid.key = r->pid.unit = stacks_text(r->s, "pid");
	r->tid.key = r->tid.unit = stacks_text(r->s, "tid");
	r->time.key = stacks_text(r->s, HISTORY_TIME_LABEL);
	r->time.unit = stacks_text(r->s, "nanoseconds");
	return r->pid.key && r->tid.key && r->time.key && r->time.unit ? 0 : -ENOMEM;
}

/* Add a label's index to an array of n. */
static int keep_label(struct reading *r, const struct stacks_label *label, uint32_t **ids, size_t n,
		      size_t *room)
{
	int err = array_grow(*ids, n, *room);

	if (err)
		return err;
	(*ids)[n] = stacks_keep_label(r->s, label);
	return (*ids)[n] == UW_HASH_NONE ? -ENOMEM : 0;
}

/* Read one label of a row in labels. */
static int read_label(struct reading *r, sqlite3_stmt *stmt)
{
	bool text = sqlite3_column_type(stmt, 1) == SQLITE_TEXT;
	struct stacks_label l = { .key = text_column(r, stmt, 0),
				  .text = text ? text_column(r, stmt, 1) : NULL,
				  .number = text ? 0 : sqlite3_column_int64(stmt, 1) };
	int err = !l.key || (text && !l.text) ? -ENOMEM : 0;

	if (!err)
		err = keep_label(r, &l, &r->label_ids, r->n_label_ids, &r->room_label_ids);
	r->n_label_ids += !err;
	return err;
}

static int load_labels(struct reading *r, int64_t row, struct loaded *out)
{
	const struct loaded *known = find_row(&r->labels, row);
	struct loaded new = { .row = row, .index = (uint32_t)r->n_label_ids };
	sqlite3_stmt *stmt;
	int err;

	if (known) {
		*out = *known;
		return 0;
	}
	stmt = history_statement(r->h, READ_LABELS, &err);
	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, row);
	while ((err = db_step(stmt)) == 1) {
		err = read_label(r, stmt);
		if (err)
			break;
	}
	db_release(stmt);
	new.n = (uint32_t)r->n_label_ids - new.index;
	*out = new;
	return err ? err : keep_row(&r->labels, &new);
}

/* Put a label with a number behind the n ids that there are. */
static int put_number(struct reading *r, const struct stacks_label *label, uint64_t number,
		      uint32_t *n)
{
	struct stacks_label l = *label;
	int err;

	l.number = (int64_t)number;
	err = number ? keep_label(r, &l, &r->ids, *n, &r->room_ids) : 0;
	*n += number && !err;
	return err;
}

/* Put the labels of a sum behind the n ids that there are. */
static int put_labels(struct reading *r, const struct sum *sum, uint32_t *n)
{
	struct loaded labels = { .n = 0 };
	int err = put_number(r, &r->time, sum->time_ns, n);

	if (!err)
		err = put_number(r, &r->pid, sum->pid, n);
	if (!err)
		err = put_number(r, &r->tid, sum->tid, n);
	if (!err && sum->labels)
		err = load_labels(r, (int64_t)sum->labels, &labels);
	if (!err)
		err = array_reserve(r->ids, (size_t)*n + labels.n, r->room_ids);
	for (uint32_t i = 0; !err && i < labels.n; i++)
		r->ids[(*n)++] = r->label_ids[labels.index + i];
	return err;
}

/* ---- the profile ------------------------------------------------------------------------- */

/* Add a sum to the profile. The n locations of its stack are in r->ids, innermost first. */
static int add_sample(struct reading *r, size_t index, uint32_t n)
{
	const struct sum *sum = &r->sums[index];
	struct stacks_sample to = { .base = r->q->base, .n_locations = n };
	int err = put_labels(r, sum, &n);

	to.n_labels = n - to.n_locations;
	return err ? err
		   : stacks_add(r->s, &to, r->ids, to.n_labels ? r->ids + to.n_locations : NULL,
				r->s->n_types ? r->values + index * r->s->n_types : NULL);
}

/* A sum and its node, to be sorted. */
struct place {
	uint64_t node;
	size_t sum;
};

enum { LAST_CHILD = UINT32_MAX };

/* The nodes of all sums, as a tree. All but places are by index in the cache of nodes, with 0 for none. */
struct tree {
	struct place *places;  /* by node */
	uint32_t *first_place; /* index in places + 1 */
	uint32_t *child,
		*beside; /* the first child of a node, and the next one of its parent: index + 1 */
	uint32_t outermost; /* the first node without a parent: index + 1 */
	size_t n;	    /* room of these arrays */
};

static void free_tree(struct tree *t)
{
	free(t->places);
	free(t->first_place);
	free(t->child);
	free(t->beside);
}

/* Frames with ids below this one are loaded in their order, with a set of 4 MiB at most. */
enum { ORDERED_FRAMES = 33554432 };

/* Mark the frame of a node, and those of its callers up to one that is marked. */
static int mark_frames(struct reading *r, int64_t row, uint64_t **set, size_t *n_set)
{
	size_t index;
	int err = find_node(r, row, &index);

	while (!err && !r->uses[index].found) {
		uint32_t frame = history_nodes(r->h)[index].frame;
		size_t before = *n_set, word = frame / 64;

		if (frame < ORDERED_FRAMES && word >= *n_set) {
			err = array_reserve(*set, word + 1, *n_set);
			if (err)
				break;
			memset(*set + before, 0, (*n_set - before) * sizeof(**set));
		}
		if (frame < ORDERED_FRAMES)
			(*set)[word] |= UINT64_C(1) << frame % 64;
		err = find_parent(r, index);
		if (err || !r->uses[index].parent)
			break;
		index = r->uses[index].parent - 1;
	}
	return err;
}

/*
 * Load the frames of all sums in the order of their ids. Frames that were stored together are together in
 * memory, and so are their functions; stack by stack, each is somewhere else.
 */
static int load_frames(struct reading *r, const struct place *places)
{
	uint64_t *set = NULL;
	size_t n_set = 0;
	int err = 0;

	for (size_t i = 0; !err && i < r->n_sums; i++)
		if (places[i].node)
			err = mark_frames(r, (int64_t)places[i].node, &set, &n_set);
	for (size_t i = 0; !err && i < n_set; i++)
		for (uint64_t left = set[i]; !err && left; left &= left - 1) {
			uint32_t ignored;

			err = load_frame(r, (int64_t)(i * 64 + (size_t)__builtin_ctzll(left)),
					 &ignored);
		}
	free(set);
	return err;
}

static int compare_places(const void *a, const void *b) /* for qsort */
{
	const struct place *x = a, *y = b;

	return (x->node > y->node) - (x->node < y->node);
}

/* Make a node and its callers, up to one that is there, children of their callers. */
static int add_branch(struct reading *r, struct tree *t, size_t index)
{
	int err = 0;

	while (!t->beside[index]) {
		uint32_t parent = r->uses[index].parent;
		uint32_t *first = parent ? &t->child[parent - 1] : &t->outermost;

		if (!r->uses[index].location)
			err = load_node(r, index);
		if (err)
			return err;
		t->beside[index] = *first ? *first : (uint32_t)LAST_CHILD;
		*first = (uint32_t)index + 1;
		if (!parent)
			break;
		index = parent - 1;
	}
	return 0;
}

/* Make the tree. Its places are there and sorted, and what is known of nodes is in r->uses. */
static int grow_tree(struct reading *r, struct tree *t)
{
	int err = 0;

	/* Most of these arrays is never touched: not each node of the cache is one of these. */
	t->n = r->n_uses;
	t->first_place = calloc(t->n + 1, sizeof(*t->first_place));
	t->child = calloc(t->n + 1, sizeof(*t->child));
	t->beside = calloc(t->n + 1, sizeof(*t->beside));
	if (!t->first_place || !t->child || !t->beside || r->n_sums >= UINT32_MAX)
		return -ENOMEM;
	for (size_t i = r->n_sums; !err && i-- > 0 && t->places[i].node;) {
		size_t index;

		err = find_node(r, (int64_t)t->places[i].node, &index);
		if (err)
			return err;
		t->first_place[index] = (uint32_t)i + 1;
		err = add_branch(r, t, index);
	}
	return err;
}

/* Add the sums of the node whose stack has these n locations, outermost first. */
static int add_sums_of(struct reading *r, const struct tree *t, size_t index, const uint32_t *path,
		       uint32_t n)
{
	uint32_t first = t->first_place[index];
	int err = 0;

	for (size_t i = first - 1;
	     first && !err && i < r->n_sums && t->places[i].node == t->places[first - 1].node;
	     i++) {
		err = array_reserve(r->ids, n, r->room_ids);
		for (uint32_t k = 0; !err && k < n; k++)
			r->ids[k] = path[n - 1 - k];
		if (!err)
			err = add_sample(r, t->places[i].sum, n);
	}
	return err;
}

/* Add the sums of all nodes, callers before what they call: so each has the most in common with the one before. */
static int add_tree(struct reading *r, const struct tree *t)
{
	uint32_t *path = NULL, n = 0, at = t->outermost;
	size_t room = 0;
	int err = 0;

	while (at && !err) {
		err = array_grow(path, n, room);
		if (err)
			break;
		path[n++] = r->uses[at - 1].location - 1;
		err = add_sums_of(r, t, at - 1, path, n);
		if (t->child[at - 1]) {
			at = t->child[at - 1];
			continue;
		}
		for (n--; at && t->beside[at - 1] == LAST_CHILD; n -= at != 0)
			at = r->uses[at - 1].parent;
		at = at ? t->beside[at - 1] : 0;
	}
	free(path);
	return err;
}

/* Sort the sums by their nodes, and make their tree. Nothing is added to the profile but frames. */
static int make_tree(struct reading *r, struct tree *t)
{
	int err;

	t->places = calloc(r->n_sums + 1, sizeof(*t->places));
	if (!t->places)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_sums; i++)
		t->places[i] = (struct place){ .node = r->sums[i].node, .sum = i };
	qsort(t->places, r->n_sums, sizeof(*t->places), compare_places);
	err = load_frames(r, t->places);
	return err ? err : grow_tree(r, t);
}

/*
 * A damaged window is left out as a whole, also if only what its stacks consist of is. Looking for damage first takes as
 * long as reading, so it is only done once there is some.
 */
static int read_samples(struct reading *r)
{
	struct tree t = { .n = 0 };
	int err = read_windows(r);

	if (!err)
		err = make_tree(r, &t);
	/* What was wrong may be in a window that is left out. */
	if (err == -EAGAIN || err == -EBADMSG || err == -EFBIG) {
		free_tree(&t);
		t = (struct tree){ .n = 0 };
		forget_sums(r);
		r->careful = true;
		err = read_windows(r);
		if (!err)
			err = make_tree(r, &t);
	}
	for (size_t i = 0; !err && i < r->n_sums && !t.places[i].node; i++)
		err = add_sample(r, t.places[i].sum, 0);
	if (!err)
		err = add_tree(r, &t);
	free_tree(&t);
	return err;
}

/* Let the profile say that windows are left out. */
static int note_damage(struct stacks *s, uint64_t n)
{
	char text[64];

	if (!n)
		return 0;
	(void)snprintf(text, sizeof(text), "%" PRIu64 " damaged window%s left out", n,
		       n == 1 ? " is" : "s are");
	return stacks_add_comment(s, text);
}

static void fini(struct reading *r)
{
	free(r->type_of);
	free(r->sums);
	free(r->values);
	uw_hash_fini(&r->by_sum);
	free(r->uses);
	free(r->stack_sums);
	free(r->frames);
	free(r->functions);
	free_rows(&r->modules);
	free_rows(&r->labels);
	free(r->label_ids);
	free(r->ids);
	free(r->lines);
	history_limit_rows(r->h);
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
		err = history_check_names(h);
		if (!err)
			err = make_labels(&r);
		if (!err)
			err = read_types(&r);
		if (!err)
			err = read_samples(&r);
		if (!err)
			err = note_damage(stacks, found->n_damaged);
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

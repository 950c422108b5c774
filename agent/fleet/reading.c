/* agent/fleet/reading.c: reads sums by stack from the fleet, with all that they refer to, as a profile. */
#include "agent/fleet/reading.h"

#include "agent/array.h"
#include "agent/fleet/asking.h"
#include "agent/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What one stack and one frame may have. */
enum { STACK_MAX = 1 << 16, INLINED_MAX = 4096 };

/* ---- ids ----------------------------------------------------------------------------------- */

/* A stack or a frame that rows name, and where it is. */
struct numbers {
	uint64_t *ids;
	size_t n, room;
	struct uw_hash_index index;
};

/* Give the index of an id, which is added. */
static int number(struct numbers *s, uint64_t id, uint32_t *out)
{
	uint64_t hash = hash_u64(0, id);
	int err;

	*out = UW_HASH_FIND(i, &s->index, hash, s->ids[i] == id);
	if (*out != UW_HASH_NONE)
		return 0;
	err = array_grow(s->ids, s->n, s->room);
	if (!err)
		err = uw_hash_add(&s->index, hash, (uint32_t)s->n);
	if (err)
		return err;
	*out = (uint32_t)s->n;
	s->ids[s->n++] = id;
	return 0;
}

static uint32_t find_number(const struct numbers *s, uint64_t id)
{
	return UW_HASH_FIND(i, &s->index, hash_u64(0, id), s->ids[i] == id);
}

static void numbers_fini(struct numbers *s)
{
	free(s->ids);
	uw_hash_fini(&s->index);
}
struct span { /* of an array */
	size_t first;
	uint32_t n;
};

struct frame {
	uint32_t location; /* in the profile */
	uint64_t version;
	bool there;
};

/* ---- a profile that is read ---------------------------------------------------------------- */

struct sum {
	uint64_t stack, labels; /* 0: not asked for */
	const char *value;	/* of the label, or the host; NULL: not asked for */
	uint64_t n;
	int64_t sum;
};

/* A profile that is read. */
struct reading {
	struct fleet *f;
	const struct query_sums *asked;
	const struct fleet_type *type;
	struct stacks *s;
	struct sum *sums;
	size_t n_sums, room_sums;
	struct numbers stacks, frames, labels;
	struct span *stack_spans; /* by index in stacks: in frame_ids; n 0: none */
	uint32_t *frame_ids;	  /* indices in frames */
	size_t n_frame_ids, room_frame_ids;
	struct frame *frame_rows;	  /* by index in frames */
	struct uw_hash_index by_build_id; /* of the profile's modules */
	struct span *label_spans;	  /* by index in labels: in label_ids */
	uint32_t *label_ids;
	size_t n_label_ids, room_label_ids;
	uint32_t unknown, rest; /* locations that stand for others; UW_HASH_NONE: not made */
	uint32_t *ids;
	size_t room_ids;
	size_t types[2]; /* of n and value in the profile */
	size_t n_types;
};

static void reading_fini(struct reading *g)
{
	free(g->sums);
	numbers_fini(&g->stacks);
	numbers_fini(&g->frames);
	numbers_fini(&g->labels);
	free(g->stack_spans);
	free(g->frame_ids);
	free(g->frame_rows);
	uw_hash_fini(&g->by_build_id);
	free(g->label_spans);
	free(g->label_ids);
	free(g->ids);
}

/* Ask for the rows of these ids; without ids nothing is asked. The caller frees *text. Errors are in the reply. */
static int ask_rows(struct reading *g, const struct numbers *numbers, void (*write)(FILE *sql),
		    char **text, struct uw_bytes *b)
{
	const struct fleet_ids ids = { numbers->ids, numbers->n };
	struct sql q;
	int err;

	if (!numbers->n)
		return 0;
	err = sql_begin(&q);
	if (err)
		return err;
	write(q.out);
	return sql_ask(&q, g->f, g->asked->reply, &ids, text, b);
}

/* The same for rows that are an array each: make a span, which is empty, for each id. */
static int ask_spans(struct reading *g, const struct numbers *numbers, void (*write)(FILE *sql),
		     struct span **spans, char **text, struct uw_bytes *b)
{
	*spans = calloc(numbers->n + 1, sizeof(**spans));
	return *spans ? ask_rows(g, numbers, write, text, b) : -ENOMEM;
}

/* ---- sums by stack ------------------------------------------------------------------------- */

static int read_sums(struct reading *g)
{
	struct uw_bytes b = { .err = 0 };
	struct sql q;
	char *text = NULL;
	int err = sql_begin(&q);

	if (err)
		return err;
	err = query_sums(q.out, g->asked);
	if (err)
		sql_drop(&q);
	else
		err = sql_ask(&q, g->f, g->asked->reply, NULL, &text, &b);
	while (!err && !uw_bytes_done(&b)) {
		struct sum one = { .stack = uw_bytes_u64(&b), .labels = uw_bytes_u64(&b) };
		uint32_t ignored;

		one.value = sql_take_text(&b, g->s);
		one.n = uw_bytes_u64(&b);
		one.sum = (int64_t)uw_bytes_u64(&b);
		if (b.err || !one.value || g->n_sums >= g->asked->n_rows) {
			err = -EBADMSG;
			break;
		}
		err = array_grow(g->sums, g->n_sums, g->room_sums);
		if (!err && one.stack)
			err = number(&g->stacks, one.stack, &ignored);
		if (!err && one.labels)
			err = number(&g->labels, one.labels, &ignored);
		if (!err)
			g->sums[g->n_sums++] = one;
	}
	free(text);
	return err ? err : b.err;
}

/* Add what the sums do not have, because there are more than are read, as one sum without a stack. */
static int read_rest(struct reading *g)
{
	struct sum all = { .value = g->s->empty };
	struct uw_bytes b = { .err = 0 };
	struct sql q;
	char *text = NULL;
	int err;

	if (g->n_sums < g->asked->n_rows)
		return 0;
	err = sql_begin(&q);
	if (err)
		return err;
	err = query_total(q.out, g->asked);
	if (err)
		sql_drop(&q);
	else
		err = sql_ask(&q, g->f, g->asked->reply, NULL, &text, &b);
	if (!err) {
		all.n = uw_bytes_u64(&b);
		all.sum = (int64_t)uw_bytes_u64(&b);
		err = b.err;
	}
	free(text);
	for (size_t i = 0; i < g->n_sums && !err; i++) {
		all.n -= g->sums[i].n < all.n ? g->sums[i].n : all.n;
		all.sum = stacks_sum(all.sum, g->sums[i].sum > INT64_MIN ? -g->sums[i].sum : 0);
	}
	if (!err && (all.n || all.sum > 0))
		err = array_grow(g->sums, g->n_sums, g->room_sums);
	if (!err && (all.n || all.sum > 0))
		g->sums[g->n_sums++] = all;
	return err;
}

/* ---- stacks, names, labels ------------------------------------------------------------------ */

static int read_stacks(struct reading *g)
{
	struct uw_bytes b = { .err = 0 };
	char *text = NULL;
	int err = ask_spans(g, &g->stacks, query_stacks, &g->stack_spans, &text, &b);

	while (!err && !uw_bytes_done(&b)) {
		uint32_t at = find_number(&g->stacks, uw_bytes_u64(&b));
		uint64_t n = uw_bytes_uleb(&b);
		struct span span = { g->n_frame_ids, (uint32_t)n };

		if (b.err || n > STACK_MAX || g->n_frame_ids + n > STACKS_FRAMES) {
			err = -EBADMSG;
			break;
		}
		err = array_reserve(g->frame_ids, g->n_frame_ids + n, g->room_frame_ids);
		for (uint64_t i = 0; i < n && !err; i++)
			err = number(&g->frames, uw_bytes_u64(&b),
				     &g->frame_ids[g->n_frame_ids + i]);
		if (b.err || err)
			break;
		/* Shards have the same stacks. */
		if (at == UW_HASH_NONE || g->stack_spans[at].n)
			continue;
		g->stack_spans[at] = span;
		g->n_frame_ids += n;
	}
	free(text);
	return err ? err : b.err;
}

/* Return the location of an address without a module, with a name that says what it stands for. */
static uint32_t stand_in(struct reading *g, const char *name)
{
	const char *text = stacks_text(g->s, name);
	struct stacks_location l = { .n_lines = 1 };
	struct stacks_line line = { .function = UW_HASH_NONE };

	if (text)
		line.function = stacks_function(
			g->s, &(struct stacks_function){ .name = text, .placed = true });
	return line.function == UW_HASH_NONE ? UW_HASH_NONE : stacks_location(g->s, &l, &line);
}

/* What a row of names has. */
struct name_row {
	const char *build_id, *module;
	uint64_t vaddr, version;
	const char *functions[INLINED_MAX], *files[INLINED_MAX];
	uint32_t lines[INLINED_MAX];
	uint32_t n;
};

static int take_texts(struct reading *g, struct uw_bytes *b, const char **texts, uint64_t *n)
{
	*n = uw_bytes_uleb(b);
	if (*n > INLINED_MAX)
		return -EBADMSG;
	for (uint64_t i = 0; i < *n; i++) {
		texts[i] = sql_take_text(b, g->s);
		if (!texts[i])
			return -EBADMSG;
	}
	return b->err;
}

static int take_name_row(struct reading *g, struct uw_bytes *b, struct name_row *out)
{
	uint64_t n, n_files, n_lines;
	int err;

	out->build_id = sql_take_text(b, g->s);
	out->vaddr = uw_bytes_u64(b);
	out->module = sql_take_text(b, g->s);
	if (!out->build_id || !out->module)
		return -EBADMSG;
	err = take_texts(g, b, out->functions, &n);
	if (!err)
		err = take_texts(g, b, out->files, &n_files);
	if (err)
		return err;
	n_lines = uw_bytes_uleb(b);
	if (n_files != n || n_lines != n)
		return -EBADMSG;
	for (uint64_t i = 0; i < n; i++)
		out->lines[i] = uw_bytes_u32(b);
	out->version = uw_bytes_u64(b);
	out->n = (uint32_t)n;
	return b->err;
}

/* Equal texts of a profile are the same pointer. */
static uint64_t hash_build_id(const char *build_id)
{
	return hash_u64(0, (uintptr_t)build_id);
}

/* Note the modules that the profile has already, of what it is compared with. */
static int note_modules(struct reading *g)
{
	int err = 0;

	for (size_t i = 1; !err && i < g->s->n_modules; i++)
		if (*g->s->modules[i].build_id)
			err = uw_hash_add(&g->by_build_id, hash_build_id(g->s->modules[i].build_id),
					  (uint32_t)i);
	return err;
}

/* Return the module of a frame; UW_HASH_NONE: no memory. */
static uint32_t module_of(struct reading *g, const struct name_row *row)
{
	const struct stacks_module m = { .path = row->module, .build_id = row->build_id };
	uint32_t i;

	if (!*row->build_id)
		return *row->module ? stacks_module(g->s, &m) : 0;
	/*
	 * Hosts have a file at different paths, and a frame has one of them, whichever came last. Functions of one file
	 * are not told apart by that.
	 */
	i = UW_HASH_FIND(k, &g->by_build_id, hash_build_id(row->build_id),
			 g->s->modules[k].build_id == row->build_id);
	if (i != UW_HASH_NONE)
		return i;
	i = stacks_module(g->s, &m);
	return i == UW_HASH_NONE || uw_hash_add(&g->by_build_id, hash_build_id(row->build_id), i)
		       ? UW_HASH_NONE
		       : i;
}

/* Make the location of a frame. */
static int add_location(struct reading *g, const struct name_row *row, struct frame *out)
{
	struct stacks_line lines[INLINED_MAX];
	struct stacks_location l = { .module = module_of(g, row),
				     .address = row->vaddr,
				     .n_lines = row->n ? row->n : 1 };

	if (l.module == UW_HASH_NONE)
		return -ENOMEM;
	for (uint32_t i = 0; i < l.n_lines; i++) {
		struct stacks_function f = { .name = row->n ? row->functions[i] : NULL };

		if (row->n)
			f.file = row->files[i];
		f.system_name = f.name;
		lines[i] = (struct stacks_line){
			.function = row->n && *f.name ? stacks_function(g->s, &f)
						      : stacks_placed_function(g->s, l.module),
			.line = row->n ? row->lines[i] : 0,
		};
		if (lines[i].function == UW_HASH_NONE)
			return -ENOMEM;
	}
	out->location = stacks_location(g->s, &l, lines);
	out->version = row->version;
	out->there = true;
	return out->location == UW_HASH_NONE ? -ENOMEM : 0;
}

static int read_names(struct reading *g)
{
	struct name_row *row = malloc(sizeof(*row));
	struct uw_bytes b = { .err = 0 };
	char *text = NULL;
	int err;

	g->frame_rows = calloc(g->frames.n + 1, sizeof(*g->frame_rows));
	err = row && g->frame_rows ? ask_rows(g, &g->frames, query_names, &text, &b) : -ENOMEM;
	while (!err && !uw_bytes_done(&b)) {
		uint32_t at = find_number(&g->frames, uw_bytes_u64(&b));

		err = take_name_row(g, &b, row);
		/* Until it is merged, a row may be there with several versions. */
		if (!err && at != UW_HASH_NONE &&
		    (!g->frame_rows[at].there || row->version > g->frame_rows[at].version))
			err = add_location(g, row, &g->frame_rows[at]);
	}
	free(text);
	free(row);
	return err ? err : b.err;
}

static int add_label(struct reading *g, const char *key, const char *value)
{
	const struct stacks_label label = { .key = key, .text = value };
	int err = array_grow(g->label_ids, g->n_label_ids, g->room_label_ids);

	if (err)
		return err;
	g->label_ids[g->n_label_ids] = stacks_keep_label(g->s, &label);
	return g->label_ids[g->n_label_ids++] == UW_HASH_NONE ? -ENOMEM : 0;
}

enum { LABELS_MAX = 256 };

static int take_labels(struct reading *g, struct uw_bytes *b, struct span *out)
{
	const char *keys[LABELS_MAX];
	uint64_t n = uw_bytes_uleb(b), n_values;
	size_t first = g->n_label_ids;
	int err = n > LABELS_MAX ? -EBADMSG : b->err;

	for (uint64_t i = 0; i < n && !err; i++) {
		keys[i] = sql_take_text(b, g->s);
		err = keys[i] ? 0 : -EBADMSG;
	}
	n_values = uw_bytes_uleb(b);
	if (!err && n_values != n)
		err = -EBADMSG;
	for (uint64_t i = 0; i < n && !err; i++) {
		const char *value = sql_take_text(b, g->s);

		err = value ? add_label(g, keys[i], value) : -EBADMSG;
	}
	*out = (struct span){ first, (uint32_t)n };
	return err ? err : b->err;
}

static int read_labels(struct reading *g)
{
	struct uw_bytes b = { .err = 0 };
	char *text = NULL;
	int err = ask_spans(g, &g->labels, query_labels, &g->label_spans, &text, &b);

	while (!err && !uw_bytes_done(&b)) {
		uint32_t at = find_number(&g->labels, uw_bytes_u64(&b));
		struct span span;

		err = take_labels(g, &b, &span);
		if (!err && at != UW_HASH_NONE && !g->label_spans[at].n)
			g->label_spans[at] = span;
	}
	free(text);
	return err ? err : b.err;
}

/* ---- the profile ---------------------------------------------------------------------------- */

static int take_types(struct reading *g)
{
	const struct stacks_type types[] = {
		{ stacks_text(g->s, *g->type->counts ? g->type->counts : g->type->name),
		  stacks_text(g->s, *g->type->counts ? "count" : g->type->unit) },
		{ stacks_text(g->s, g->type->name), stacks_text(g->s, g->type->unit) },
	};
	size_t n = *g->type->counts ? 2 : 1;
	bool first = !g->s->n_types;
	int err = 0;

	for (size_t i = 0; i < n && !err; i++)
		err = types[i].type && types[i].unit ? 0 : -ENOMEM;
	if (!err)
		err = stacks_take_types(g->s, types, n, g->types);
	g->n_types = n;
	if (!err && first)
		g->s->default_type = n - 1;
	return err;
}

/* Put the locations of a sum's stack into g->ids, and give their number. */
static int put_stack(struct reading *g, const struct sum *sum, uint32_t *n)
{
	uint32_t at = find_number(&g->stacks, sum->stack);
	struct span span = { .n = 0 };
	int err;

	*n = 0;
	if (!g->asked->stacks)
		return 0;
	if (sum->stack && at != UW_HASH_NONE)
		span = g->stack_spans[at];
	err = array_reserve(g->ids, (size_t)span.n + 1, g->room_ids);
	if (err)
		return err;
	for (uint32_t i = 0; i < span.n; i++) {
		const struct frame *f = &g->frame_rows[g->frame_ids[span.first + i]];

		if (!f->there && g->unknown == UW_HASH_NONE)
			g->unknown = stand_in(g, "[unknown frame]");
		g->ids[(*n)++] = f->there ? f->location : g->unknown;
		if (g->ids[*n - 1] == UW_HASH_NONE)
			return -ENOMEM;
	}
	if (!sum->stack) {
		if (g->rest == UW_HASH_NONE)
			g->rest = stand_in(g, "[other stacks]");
		g->ids[(*n)++] = g->rest;
		return g->rest == UW_HASH_NONE ? -ENOMEM : 0;
	}
	return 0;
}

/* Put the labels of a sum behind the n ids that there are. */
static int put_labels(struct reading *g, const struct sum *sum, uint32_t *n)
{
	const char *key = g->asked->key;
	struct span span = { .n = 0 };
	uint32_t at = sum->labels ? find_number(&g->labels, sum->labels) : UW_HASH_NONE;
	int err;

	if (at != UW_HASH_NONE)
		span = g->label_spans[at];
	if (key && !strcmp(key, "*"))
		key = "host";
	err = array_reserve(g->ids, (size_t)*n + span.n + 1, g->room_ids);
	for (uint32_t i = 0; i < span.n && !err; i++)
		g->ids[(*n)++] = g->label_ids[span.first + i];
	if (!err && key && *sum->value) {
		const struct stacks_label label = { .key = stacks_text(g->s, key),
						    .text = sum->value };

		g->ids[*n] = label.key ? stacks_keep_label(g->s, &label) : UW_HASH_NONE;
		err = g->ids[(*n)++] == UW_HASH_NONE ? -ENOMEM : 0;
	}
	return err;
}

static int add_sums(struct reading *g, struct history_found *found)
{
	int64_t values[2] = { 0, 0 };
	int err = 0;

	g->s->compared |= g->asked->range.base;
	for (size_t i = 0; i < g->n_sums && !err; i++) {
		const struct sum *sum = &g->sums[i];
		struct stacks_sample to = { .base = g->asked->range.base };
		uint32_t n = 0;

		err = put_stack(g, sum, &n);
		to.n_locations = n;
		if (!err)
			err = put_labels(g, sum, &n);
		to.n_labels = n - to.n_locations;
		found->n_samples += sum->n;
		values[g->types[0]] = g->n_types > 1 ? (int64_t)sum->n : sum->sum;
		if (g->n_types > 1)
			values[g->types[1]] = sum->sum;
		if (!err)
			err = stacks_add(g->s, &to, g->ids, g->ids ? g->ids + to.n_locations : NULL,
					 values);
	}
	return err;
}

/* Let modules span the addresses that the profile has in them, as readers of profiles expect. */
static void span_modules(struct stacks *s)
{
	for (size_t i = 0; i < s->n_locations; i++) {
		struct stacks_module *m = &s->modules[s->locations[i].module];
		uint64_t address = s->locations[i].address;

		if (!s->locations[i].module || address == UINT64_MAX)
			continue;
		if (!m->limit || address < m->start)
			m->start = m->off = address & ~UINT64_C(4095);
		if (address >= m->limit)
			m->limit = address + 1;
	}
}

int reading_do(struct fleet *f, const struct query_sums *asked, const struct fleet_type *type,
	       bool any, struct stacks *s, struct history_found *found)
{
	struct reading g = { .f = f,
			     .asked = asked,
			     .type = type,
			     .s = s,
			     .unknown = UW_HASH_NONE,
			     .rest = UW_HASH_NONE };
	int err = take_types(&g);

	if (!err)
		err = note_modules(&g);
	if (!err && any)
		err = read_sums(&g);
	if (!err && any && asked->stacks)
		err = read_rest(&g);
	if (!err)
		err = read_stacks(&g);
	if (!err)
		err = read_names(&g);
	if (!err)
		err = read_labels(&g);
	if (!err)
		err = add_sums(&g, found);
	/* With all labels, there is no base, which would find other modules. */
	if (!err && asked->key && !strcmp(asked->key, "*"))
		span_modules(s);
	reading_fini(&g);
	return err;
}

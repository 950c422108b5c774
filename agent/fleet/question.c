/* agent/fleet/question.c: asks the fleet's tables what ran, and reads the replies. */
#include "agent/fleet/fleet.h"

#include "agent/array.h"
#include "agent/export/export.h"
#include "agent/export/json.h"
#include "agent/export/profile/ranking.h"
#include "agent/fleet/batch.h"
#include "agent/fleet/condition.h"
#include "agent/hash.h"
#include "agent/sanitize.h"
#include "base/bytes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
/* What one stack, one frame and one reply may have. */
enum { STACK_MAX = 1 << 16, INLINED_MAX = 4096, FRAMES_MAX = 4 << 20, SLOTS_MAX = 4 << 20 };

/* ---- queries ------------------------------------------------------------------------------ */

struct sql { /* a query that is written */
	FILE *out;
	char *text;
	size_t size;
};

static int sql_begin(struct sql *q)
{
	*q = (struct sql){ .out = NULL };
	q->out = open_memstream(&q->text, &q->size);
	return q->out ? 0 : -ENOMEM;
}

static void sql_drop(struct sql *q)
{
	if (q->out)
		(void)fclose(q->out);
	free(q->text);
}

static int unreachable(struct http_reply *reply, int err)
{
	return http_fail(reply, 502,
			 err == -EBADMSG ? "the fleet's reply cannot be read"
					 : "the fleet cannot be asked");
}

/* Ask a query, which is ended here. The caller frees *text. */
static int ask(struct fleet *f, struct http_reply *reply, struct sql *q,
	       const struct fleet_ids *ids, char **text, struct uw_bytes *out)
{
	size_t size = 0;
	int err = fclose(q->out) ? -ENOMEM : 0;

	q->out = NULL;
	*text = NULL;
	if (!err && f->sql) {
		(void)fprintf(f->sql, "%s;\n", q->text);
		if (ids)
			(void)fprintf(f->sql, "-- with %zu numbers of the rows before as ids\n",
				      ids->n);
	}
	if (!err)
		err = f->ask(f->ctx, q->text, ids, text, &size);
	free(q->text);
	q->text = NULL;
	if (err)
		return unreachable(reply, err);
	*out = uw_bytes_of(*text, size);
	return 0;
}

/* ---- values of replies -------------------------------------------------------------------- */

enum { TEXT_MAX = 65536 };

/* Read a text into the profile's texts. NULL: it is damaged, or there is no memory. */
static const char *take_text(struct uw_bytes *b, struct stacks *s)
{
	uint64_t size = uw_bytes_uleb(b);
	struct uw_bytes text = uw_bytes_take(b, size);
	const char *own = NULL;
	char *copy;

	if (b->err || size > TEXT_MAX)
		return NULL;
	copy = strndup((const char *)text.pos, (size_t)size);
	if (copy)
		own = stacks_text(s, copy);
	free(copy);
	return own;
}

/* Read a text into a buffer; what does not fit is cut. */
static void take_short(struct uw_bytes *b, char *out, size_t room)
{
	uint64_t size = uw_bytes_uleb(b);
	struct uw_bytes text = uw_bytes_take(b, size);
	size_t n = b->err ? 0 : size < room - 1 ? (size_t)size : room - 1;

	if (n)
		memcpy(out, text.pos, n);
	out[n] = '\0';
}

/* ---- types -------------------------------------------------------------------------------- */

struct type {
	uint32_t id;
	bool counted;		   /* what was asked for is in n, not in value */
	char name[256], unit[256]; /* of value */
	char counts[256];	   /* of n; "": there is none */
};

/*
 * Find the sample type that the request asks for; none: cpu, or else the first by its name. -EINVAL: the reply says
 * why not.
 */
static int find_type(struct fleet *f, const struct http_request *r, struct http_reply *reply,
		     struct type *out)
{
	const char *wanted = http_argument(r, "type");
	bool any = false, found = false;
	struct uw_bytes b = { .err = 0 };
	struct sql q;
	char *text = NULL;
	int err = sql_begin(&q);

	if (err)
		return http_fail(reply, 503, "there is no memory");
	(void)fputs("SELECT DISTINCT id, type, unit, counts FROM types ORDER BY type", q.out);
	err = ask(f, reply, &q, NULL, &text, &b);
	while (!err && !uw_bytes_done(&b) && !found) {
		struct type t = { .id = uw_bytes_u32(&b) };

		take_short(&b, t.name, sizeof(t.name));
		take_short(&b, t.unit, sizeof(t.unit));
		take_short(&b, t.counts, sizeof(t.counts));
		t.counted = wanted && !strcmp(wanted, t.counts);
		found = wanted ? t.counted || !strcmp(wanted, t.name) : !strcmp(t.name, "cpu");
		if (!b.err && (found || (!wanted && !any)))
			*out = t;
		any = true;
	}
	free(text);
	if (!err && b.err)
		err = unreachable(reply, b.err);
	else if (!err && !any)
		err = http_fail(reply, 404, "the fleet is empty");
	else if (!err && wanted && !found)
		err = http_fail(reply, 400, "there is no sample type '%.40s'", wanted);
	if (!err) {
		(void)snprintf(f->type, sizeof(f->type), "%s",
			       out->counted ? out->counts : out->name);
		(void)snprintf(f->unit, sizeof(f->unit), "%s", out->counted ? "count" : out->unit);
	}
	return err;
}

/* ---- batches ------------------------------------------------------------------------------ */

struct batches { /* that a range of time has */
	uint64_t n, slot_s, first_s, last_s;
	bool twice; /* some are there twice: rows must be merged before they are added up */
};

static int find_batches(struct fleet *f, struct http_reply *reply, const struct api_range *range,
			struct batches *out)
{
	const struct http_request none = { .n_arguments = 0 };
	struct uw_bytes b = { .err = 0 };
	struct sql q;
	char *text = NULL;
	int err = sql_begin(&q);

	if (err)
		return http_fail(reply, 503, "there is no memory");
	(void)fputs("SELECT toUInt64(count()), toUInt64(max(slot)), toUInt64(toUInt32(min(time))), "
		    "toUInt64(toUInt32(max(time))), toUInt64(max(times)) FROM (SELECT host, time, "
		    "window, "
		    "max(n) AS slot, count() AS times FROM samples WHERE ",
		    q.out);
	err = condition_write(q.out, &none, reply,
			      &(struct condition_range){ range->from_ns, range->to_ns, false }, 0);
	(void)fputs(" GROUP BY host, time, window)", q.out);
	if (err)
		sql_drop(&q);
	else
		err = ask(f, reply, &q, NULL, &text, &b);
	if (!err) {
		*out = (struct batches){ .n = uw_bytes_u64(&b),
					 .slot_s = uw_bytes_u64(&b),
					 .first_s = uw_bytes_u64(&b),
					 .last_s = uw_bytes_u64(&b) };
		out->twice = uw_bytes_u64(&b) > 1;
		/* A slot is at most a day; times have 32 bits. */
		if (b.err || out->slot_s > 86400 || out->first_s > UINT32_MAX ||
		    out->last_s > UINT32_MAX)
			err = unreachable(reply, -EBADMSG);
	}
	free(text);
	return err;
}

static int slot(void *ctx, struct http_reply *reply, const struct api_range *range, uint64_t *ns)
{
	struct batches batches;
	int err = find_batches(ctx, reply, range, &batches);

	if (!err)
		*ns = batches.slot_s * SECOND_NS;
	return err;
}

/* ---- sums by stack ------------------------------------------------------------------------- */

struct sum {
	uint64_t stack, labels; /* 0: not asked for */
	const char *value;	/* of the label, or the host; NULL: not asked for */
	uint64_t n;
	int64_t sum;
};

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

/* A profile that is read. */
struct reading {
	struct fleet *f;
	const struct http_request *r;
	struct http_reply *reply;
	struct stacks *s;
	const char *key; /* of api_remote.read */
	struct type type;
	struct sum *sums;
	size_t n_sums, room_sums;
	struct numbers stacks, frames, labels;
	struct span *stack_spans; /* by index in stacks: in frame_ids; n 0: none */
	uint32_t *frame_ids;	  /* indices in frames */
	size_t n_frame_ids, room_frame_ids;
	struct frame *frame_rows; /* by index in frames */
	struct span *label_spans; /* by index in labels: in label_ids */
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
	free(g->label_spans);
	free(g->label_ids);
	free(g->ids);
}

/* Ask a query of a reading; errors are in the reply. */
static int ask_for(struct reading *g, struct sql *q, const struct numbers *numbers, char **text,
		   struct uw_bytes *b)
{
	struct fleet_ids ids = { .n = 0 };

	if (numbers)
		ids = (struct fleet_ids){ numbers->ids, numbers->n };
	return ask(g->f, g->reply, q, numbers ? &ids : NULL, text, b);
}

static bool has_all(const struct reading *g)
{
	return g->key && !strcmp(g->key, "*");
}

/* Write the query for the sums. */
static int put_sums(const struct reading *g, FILE *sql, const struct history_query *query,
		    bool frames, bool twice)
{
	const struct condition_range range = { query->from_ns, query->to_ns, query->base };
	bool host = g->key && !strcmp(g->key, "host"), all = has_all(g);
	bool joined = g->key && !host && !all;
	const char *order = g->type.counted ? "sum(n)" : "sum(value)";
	const char *columns = !frames && joined ? "labels"
			      : !frames		? "host"
			      : joined		? "stack, labels"
			      : all		? "stack, labels, host"
			      : host		? "stack, host"
						: "stack";
	int err;

	if (joined) {
		(void)fprintf(sql, "SELECT %s, toUInt64(0), ", frames ? "stack" : "toUInt64(0)");
		condition_value(sql, g->key);
		(void)fprintf(sql,
			      " AS word, toUInt64(sum(part_n)), toInt64(sum(part_value)) FROM "
			      "(SELECT %s, "
			      "sum(n) AS part_n, sum(value) AS part_value",
			      columns);
	} else {
		(void)fprintf(sql, "SELECT %s, %s, %s, toUInt64(sum(n)), toInt64(sum(value))",
			      frames ? "stack" : "toUInt64(0)", all ? "labels" : "toUInt64(0)",
			      all || host ? "host" : "''");
	}
	(void)fprintf(sql, " FROM samples%s WHERE ", twice ? " FINAL" : "");
	err = condition_write(sql, g->r, g->reply, &range, g->type.id);
	if (err)
		return err;
	(void)fprintf(sql, " GROUP BY %s", columns);
	if (joined) {
		(void)fprintf(
			sql,
			") ANY LEFT JOIN (SELECT labels, keys, vals FROM label_sets) USING labels "
			"GROUP BY %sword",
			frames ? "stack, " : "");
		order = g->type.counted ? "sum(part_n)" : "sum(part_value)";
	}
	(void)fprintf(sql, " ORDER BY %s DESC LIMIT %zu", order, g->f->n_rows);
	return 0;
}

static int read_sums(struct reading *g, const struct history_query *query, bool frames, bool twice)
{
	struct uw_bytes b = { .err = 0 };
	struct sql q;
	char *text = NULL;
	int err = sql_begin(&q);

	if (err)
		return err;
	err = put_sums(g, q.out, query, frames, twice);
	if (err)
		sql_drop(&q);
	else
		err = ask_for(g, &q, NULL, &text, &b);
	while (!err && !uw_bytes_done(&b)) {
		struct sum one = { .stack = uw_bytes_u64(&b), .labels = uw_bytes_u64(&b) };
		uint32_t ignored;

		one.value = take_text(&b, g->s);
		one.n = uw_bytes_u64(&b);
		one.sum = (int64_t)uw_bytes_u64(&b);
		if (b.err || !one.value || g->n_sums >= g->f->n_rows) {
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
static int read_rest(struct reading *g, const struct history_query *query, bool twice)
{
	const struct condition_range range = { query->from_ns, query->to_ns, query->base };
	struct sum all = { .value = g->s->empty };
	struct uw_bytes b = { .err = 0 };
	struct sql q;
	char *text = NULL;
	int err;

	if (g->n_sums < g->f->n_rows)
		return 0;
	err = sql_begin(&q);
	if (err)
		return err;
	(void)fprintf(q.out, "SELECT toUInt64(sum(n)), toInt64(sum(value)) FROM samples%s WHERE ",
		      twice ? " FINAL" : "");
	err = condition_write(q.out, g->r, g->reply, &range, g->type.id);
	if (err)
		sql_drop(&q);
	else
		err = ask_for(g, &q, NULL, &text, &b);
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
	struct sql q;
	char *text = NULL;
	int err;

	g->stack_spans = calloc(g->stacks.n + 1, sizeof(*g->stack_spans));
	if (!g->stack_spans)
		return -ENOMEM;
	if (!g->stacks.n)
		return 0;
	err = sql_begin(&q);
	if (err)
		return err;
	(void)fputs("SELECT DISTINCT stack, frames FROM stacks WHERE stack GLOBAL IN ids", q.out);
	err = ask_for(g, &q, &g->stacks, &text, &b);
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

/* Return the function that stands for code without a symbol. */
static uint32_t place_of(struct stacks *s, uint32_t module)
{
	char text[SANITIZED_MAX];
	const char *name;

	export_place(&(struct name){ .module = s->modules[module].name }, text, sizeof(text));
	name = stacks_text(s, text);
	return name ? stacks_function(s, &(struct stacks_function){ .name = name, .placed = true })
		    : UW_HASH_NONE;
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
		texts[i] = take_text(b, g->s);
		if (!texts[i])
			return -EBADMSG;
	}
	return b->err;
}

static int take_name_row(struct reading *g, struct uw_bytes *b, struct name_row *out)
{
	uint64_t n, n_files, n_lines;
	int err;

	out->build_id = take_text(b, g->s);
	out->vaddr = uw_bytes_u64(b);
	out->module = take_text(b, g->s);
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

static uint32_t module_of(struct stacks *s, const struct name_row *row)
{
	const struct stacks_module m = { .path = row->module, .build_id = row->build_id };

	return *row->module || *row->build_id ? stacks_module(s, &m) : 0;
}

/* Make the location of a frame. */
static int add_location(struct reading *g, const struct name_row *row, struct frame *out)
{
	struct stacks_line lines[INLINED_MAX];
	struct stacks_location l = { .module = module_of(g->s, row),
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
						      : place_of(g->s, l.module),
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
	struct sql q;
	char *text = NULL;
	int err = row ? 0 : -ENOMEM;

	g->frame_rows = calloc(g->frames.n + 1, sizeof(*g->frame_rows));
	if (!err && !g->frame_rows)
		err = -ENOMEM;
	if (!err && g->frames.n)
		err = sql_begin(&q);
	if (!err && g->frames.n) {
		(void)fputs("SELECT frame, build_id, vaddr, module, functions, files, lines, "
			    "version FROM "
			    "names WHERE frame GLOBAL IN ids",
			    q.out);
		err = ask_for(g, &q, &g->frames, &text, &b);
		while (!err && !uw_bytes_done(&b)) {
			uint32_t at = find_number(&g->frames, uw_bytes_u64(&b));

			err = take_name_row(g, &b, row);
			/* Until it is merged, a row may be there with several versions. */
			if (!err && at != UW_HASH_NONE &&
			    (!g->frame_rows[at].there || row->version > g->frame_rows[at].version))
				err = add_location(g, row, &g->frame_rows[at]);
		}
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
		keys[i] = take_text(b, g->s);
		err = keys[i] ? 0 : -EBADMSG;
	}
	n_values = uw_bytes_uleb(b);
	if (!err && n_values != n)
		err = -EBADMSG;
	for (uint64_t i = 0; i < n && !err; i++) {
		const char *value = take_text(b, g->s);

		err = value ? add_label(g, keys[i], value) : -EBADMSG;
	}
	*out = (struct span){ first, (uint32_t)n };
	return err ? err : b->err;
}

static int read_labels(struct reading *g)
{
	struct uw_bytes b = { .err = 0 };
	struct sql q;
	char *text = NULL;
	int err;

	g->label_spans = calloc(g->labels.n + 1, sizeof(*g->label_spans));
	if (!g->label_spans)
		return -ENOMEM;
	if (!g->labels.n)
		return 0;
	err = sql_begin(&q);
	if (err)
		return err;
	(void)fputs("SELECT DISTINCT labels, keys, vals FROM label_sets WHERE labels GLOBAL IN ids",
		    q.out);
	err = ask_for(g, &q, &g->labels, &text, &b);
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
		{ stacks_text(g->s, *g->type.counts ? g->type.counts : g->type.name),
		  stacks_text(g->s, *g->type.counts ? "count" : g->type.unit) },
		{ stacks_text(g->s, g->type.name), stacks_text(g->s, g->type.unit) },
	};
	size_t n = *g->type.counts ? 2 : 1;
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
static int put_stack(struct reading *g, const struct sum *sum, bool frames, uint32_t *n)
{
	uint32_t at = find_number(&g->stacks, sum->stack);
	struct span span = { .n = 0 };
	int err;

	*n = 0;
	if (!frames)
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
	const char *key = has_all(g) ? "host" : g->key;
	struct span span = { .n = 0 };
	uint32_t at = sum->labels ? find_number(&g->labels, sum->labels) : UW_HASH_NONE;
	int err;

	if (at != UW_HASH_NONE)
		span = g->label_spans[at];
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

static int add_sums(struct reading *g, bool base, bool frames, struct history_found *found)
{
	int64_t values[2] = { 0, 0 };
	int err = 0;

	for (size_t i = 0; i < g->n_sums && !err; i++) {
		const struct sum *sum = &g->sums[i];
		struct stacks_sample to = { .base = base };
		uint32_t n = 0;

		err = put_stack(g, sum, frames, &n);
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

static int read_profile(void *ctx, const struct http_request *r, struct http_reply *reply,
			const struct history_query *query, const char *key, bool frames,
			struct stacks *s, struct history_found *found)
{
	struct reading g = { .f = ctx,
			     .r = r,
			     .reply = reply,
			     .s = s,
			     .key = key,
			     .unknown = UW_HASH_NONE,
			     .rest = UW_HASH_NONE };
	struct api_range range = { query->from_ns, query->to_ns };
	struct batches batches = { .n = 0 };
	int err;

	*found = (struct history_found){ .n_windows = 0 };
	if (key && (!strcmp(key, "pid") || !strcmp(key, "tid")))
		return condition_no_processes(reply, key);
	err = find_type(g.f, r, reply, &g.type);
	if (!err)
		err = find_batches(g.f, reply, &range, &batches);
	if (!err)
		err = take_types(&g);
	if (!err && batches.n)
		err = read_sums(&g, query, frames, batches.twice);
	if (!err && batches.n && frames)
		err = read_rest(&g, query, batches.twice);
	if (!err)
		err = read_stacks(&g);
	if (!err)
		err = read_names(&g);
	if (!err)
		err = read_labels(&g);
	if (!err)
		err = add_sums(&g, query->base, frames, found);
	if (!err) {
		if (has_all(&g)) /* then there is no base, which would find other modules */
			span_modules(s);
		found->n_windows = batches.n;
		found->start_ns = batches.first_s * SECOND_NS;
		found->end_ns = (batches.last_s + batches.slot_s) * SECOND_NS;
		if (batches.n && !query->base)
			stacks_add_time(s, (int64_t)found->start_ns,
					(int64_t)(found->end_ns - found->start_ns), 0);
	}
	reading_fini(&g);
	if (err && reply->status == 200)
		(void)unreachable(reply, err);
	return err;
}

/* ---- sums by time --------------------------------------------------------------------------- */

static int scan(void *ctx, const struct http_request *r, struct http_reply *reply,
		const struct api_range *range, const char *key, api_sum_fn fn, void *to,
		const char **type_name, const char **unit)
{
	const struct condition_range asked = { range->from_ns, range->to_ns, false };
	struct fleet *f = ctx;
	bool host = key && !strcmp(key, "host"), joined = key && !host;
	struct batches batches = { .n = 0 };
	struct uw_bytes b = { .err = 0 };
	struct type type;
	struct sql q;
	char *text = NULL, value[4096];
	int err;

	if (key && (!strcmp(key, "pid") || !strcmp(key, "tid")))
		return condition_no_processes(reply, key);
	err = find_type(f, r, reply, &type);
	if (!err)
		err = find_batches(f, reply, range, &batches);
	if (!err && sql_begin(&q))
		err = http_fail(reply, 503, "there is no memory");
	if (err)
		return err;
	*type_name = f->type;
	*unit = f->unit;
	if (joined) {
		(void)fputs("SELECT toUInt64(toUInt32(time)), ", q.out);
		condition_value(q.out, key);
		(void)fputs(" AS word, toUInt64(sum(part_n)), toInt64(sum(part_value)) FROM "
			    "(SELECT time, labels, "
			    "sum(n) AS part_n, sum(value) AS part_value FROM samples",
			    q.out);
	} else {
		(void)fprintf(q.out,
			      "SELECT toUInt64(toUInt32(time)), %s AS word, toUInt64(sum(n)), "
			      "toInt64(sum(value)) FROM samples",
			      host ? "host" : "''");
	}
	(void)fputs(batches.twice ? " FINAL WHERE " : " WHERE ", q.out);
	err = condition_write(q.out, r, reply, &asked, type.id);
	(void)fputs(joined ? " GROUP BY time, labels) ANY LEFT JOIN (SELECT labels, keys, vals "
			     "FROM label_sets) "
			     "USING labels GROUP BY time, word"
			   : " GROUP BY time, word",
		    q.out);
	if (err)
		sql_drop(&q);
	else
		err = ask(f, reply, &q, NULL, &text, &b);
	while (!err && !uw_bytes_done(&b)) {
		struct history_point sum = { .start_ns = uw_bytes_u64(&b) * SECOND_NS };
		int64_t n;

		take_short(&b, value, sizeof(value));
		n = (int64_t)uw_bytes_u64(&b);
		sum.value = (int64_t)uw_bytes_u64(&b);
		sum.n = (uint64_t)n;
		sum.value = type.counted ? n : sum.value;
		sum.end_ns = sum.start_ns + batches.slot_s * SECOND_NS;
		if (b.err || sum.start_ns < range->from_ns || sum.start_ns >= range->to_ns)
			err = -EBADMSG;
		else
			err = fn(to, &sum, key && !strcmp(key, "stop") && !*value ? "root" : value);
	}
	free(text);
	if ((err || b.err) && reply->status == 200)
		(void)unreachable(reply, err ? err : b.err);
	return err ? err : b.err;
}

struct api_remote fleet_remote(struct fleet *f)
{
	if (!f->n_rows)
		f->n_rows = FLEET_ROWS;
	return (struct api_remote){ .ctx = f, .read = read_profile, .scan = scan, .slot = slot };
}

/* ---- completeness --------------------------------------------------------------------------- */

/* Where stacks end: the outermost frame's module, and the reason; "" if they are whole. */
struct ending {
	const char *module, *stop;
	int64_t value;
};

struct endings {
	struct ending *rows;
	size_t n, room;
	struct uw_hash_index index;
	int64_t all;
};

static int count_ending(struct endings *e, const char *module, const char *stop, int64_t value)
{
	/* Equal texts of one profile are one pointer. */
	uint64_t hash = hash_u64((uint64_t)(uintptr_t)module, (uint64_t)(uintptr_t)stop);
	uint32_t i = UW_HASH_FIND(at, &e->index, hash,
				  e->rows[at].module == module && e->rows[at].stop == stop);
	int err = 0;

	e->all = stacks_sum(e->all, value);
	if (i == UW_HASH_NONE) {
		err = array_grow(e->rows, e->n, e->room);
		if (!err)
			err = uw_hash_add(&e->index, hash, (uint32_t)e->n);
		if (err)
			return err;
		i = (uint32_t)e->n++;
		e->rows[i] = (struct ending){ .module = module, .stop = stop };
	}
	e->rows[i].value = stacks_sum(e->rows[i].value, value);
	return 0;
}

static int count_endings(struct endings *e, const struct stacks *s)
{
	int err = 0;

	for (size_t i = 0; i < s->n_samples && !err; i++) {
		const struct stacks_sample *sample = &s->samples[i];
		const struct stacks_label *stop = stacks_label(s, sample, "stop");
		bool whole = !stop || !stop->text || !strcmp(stop->text, "no_user_state");
		size_t last = sample->first_location + sample->n_locations;
		const char *module = s->empty;

		if (!whole && sample->n_locations)
			module = s->modules[s->locations[s->location_ids[last - 1]].module].path;
		err = count_ending(e, module, whole ? s->empty : stop->text,
				   stacks_value(s, i, s->default_type));
	}
	return err;
}

static int compare_endings(const void *a, const void *b) /* for qsort */
{
	const struct ending *x = a, *y = b;
	bool x_whole = !*x->stop, y_whole = !*y->stop;

	return x_whole != y_whole     ? (x_whole ? -1 : 1)
	       : x->value != y->value ? (x->value < y->value ? 1 : -1)
				      : strcmp(x->module, y->module);
}

static void put_endings(const struct endings *e, const struct fleet *f, FILE *out)
{
	(void)fputc('[', out);
	for (size_t i = 0; i < e->n; i++) {
		bool whole = !*e->rows[i].stop;

		(void)fputs(i ? ",\n{\"module\":" : "\n{\"module\":", out);
		json_text(out, whole		    ? "(whole)"
			       : *e->rows[i].module ? e->rows[i].module
						    : "(none)");
		(void)fputs(",\"stop\":", out);
		json_text(out, e->rows[i].stop);
		(void)fputc(',', out);
		json_text(out, f->type);
		(void)fprintf(out, ":%" PRId64 ",\"share\":\"%.2f%%\"}", e->rows[i].value,
			      ranking_percent(e->rows[i].value, e->all));
	}
	(void)fputs("\n]\n", out);
}

void fleet_completeness(struct fleet *f, const struct http_request *r, struct http_reply *reply)
{
	struct history_query query = { .base = false };
	struct endings endings = { .n = 0 };
	struct stacks *stacks = NULL;
	struct history_found found;
	struct api_range range;
	int err = api_range(r, reply, &range);

	if (!err && stacks_new(&stacks))
		err = http_fail(reply, 503, "there is no memory");
	query.from_ns = range.from_ns;
	query.to_ns = range.to_ns;
	if (!err)
		err = read_profile(f, r, reply, &query, "stop", true, stacks, &found);
	if (!err && count_endings(&endings, stacks))
		err = http_fail(reply, 503, "there is no memory");
	if (!err && endings.n)
		qsort(endings.rows, endings.n, sizeof(*endings.rows), compare_endings);
	if (!err)
		put_endings(&endings, f, reply->out);
	free(endings.rows);
	uw_hash_fini(&endings.index);
	stacks_free(stacks);
}

/* agent/history/history_write.c: adds windows: finds or adds the rows of names, stacks and labels. */
#include "agent/history/history_internal.h"

#include "agent/array.h"
#include "agent/export/json.h"
#include "agent/hash.h"
#include "agent/history/samples.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What samples with the same label ids have in common. */
struct known_labels {
	const struct stacks_sample *first; /* one of them */
	int64_t id;			   /* row in labels */
};

struct adding {
	struct history *h;
	const struct stacks *s;
	uint64_t start_ns;
	/* By index in the stacks: the row's id; 0: not looked up yet. */
	int64_t *modules, *functions, *frames, *types;
	struct history_new_nodes nodes;
	struct history_new_frames new_frames;
	struct history_sample *samples;
	size_t n_samples, room_samples;
	struct history_bytes lines;
	bool renamed; /* a frame got other names */
};

/* ---- statements -------------------------------------------------------------------------- */

static void bind_text(sqlite3_stmt *stmt, int column, const char *text)
{
	(void)sqlite3_bind_text(stmt, column, text, -1, SQLITE_STATIC);
}

/* Run a statement that was bound and adds a row. Return its id in *id. */
static int insert(struct adding *a, sqlite3_stmt *stmt, int64_t *id)
{
	int err = db_step(stmt);

	db_release(stmt);
	if (err < 0)
		return err;
	*id = sqlite3_last_insert_rowid(a->h->db);
	return 0;
}

/*
 * Find a row, or else add it; the same parameters are bound to both statements. Return its id in *id.
 */
static int find_or_add(struct adding *a, enum history_statement find, enum history_statement add,
		       void (*bind)(sqlite3_stmt *stmt, const void *ctx), const void *ctx,
		       int64_t *id)
{
	int err;
	sqlite3_stmt *stmt = history_statement(a->h, find, &err);

	if (!stmt)
		return err;
	bind(stmt, ctx);
	err = db_step(stmt);
	if (err == 1)
		*id = sqlite3_column_int64(stmt, 0);
	db_release(stmt);
	if (err)
		return err < 0 ? err : 0;
	stmt = history_statement(a->h, add, &err);
	if (!stmt)
		return err;
	bind(stmt, ctx);
	return insert(a, stmt, id);
}

/* ---- names ------------------------------------------------------------------------------- */

/* pprof has unsigned addresses, SQLite signed numbers: the bits are the same. */
static int64_t number(uint64_t value)
{
	return (int64_t)value;
}

/* Let the row of a module begin and end where all its addresses are. */
static int widen_module(struct adding *a, int64_t id, uint64_t start, uint64_t limit)
{
	int err;
	sqlite3_stmt *stmt = history_statement(a->h, WIDEN_MODULE, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, (const int64_t[]){ id, number(start), number(limit) }, 3);
	err = db_step(stmt);
	db_release(stmt);
	return err < 0 ? err : 0;
}

static int module_id(struct adding *a, uint32_t index, int64_t *id)
{
	const struct stacks_module *m = &a->s->modules[index];
	uint64_t start = m->start, limit = m->limit;
	sqlite3_stmt *stmt;
	int err;

	if (a->modules[index]) {
		*id = a->modules[index];
		return 0;
	}
	stmt = history_statement(a->h, FIND_MODULE, &err);
	if (!stmt)
		return err;
	bind_text(stmt, 1, m->path);
	bind_text(stmt, 2, m->build_id);
	(void)sqlite3_bind_int64(stmt, 3, number(m->off));
	err = db_step(stmt);
	if (err == 1) {
		uint64_t old_start = (uint64_t)sqlite3_column_int64(stmt, 1);
		uint64_t old_limit = (uint64_t)sqlite3_column_int64(stmt, 2);

		*id = sqlite3_column_int64(stmt, 0);
		db_release(stmt);
		start = start < old_start ? start : old_start;
		limit = limit > old_limit ? limit : old_limit;
		err = start != old_start || limit != old_limit ? widen_module(a, *id, start, limit)
							       : 0;
	} else {
		db_release(stmt);
		stmt = err ? NULL : history_statement(a->h, ADD_MODULE, &err);
		if (!stmt)
			return err;
		bind_text(stmt, 1, m->path);
		bind_text(stmt, 2, m->build_id);
		(void)sqlite3_bind_int64(stmt, 3, number(m->off));
		(void)sqlite3_bind_int64(stmt, 4, number(start));
		(void)sqlite3_bind_int64(stmt, 5, number(limit));
		err = insert(a, stmt, id);
	}
	a->modules[index] = err ? 0 : *id;
	return err;
}

static int64_t function_hash(const struct stacks_function *f)
{
	const struct {
		int64_t start_line, placed;
	} rest = { f->start_line, f->placed };
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, strlen(f->name) + 1, (const uint8_t *)f->name);
	sha256_update(&ctx, strlen(f->system_name) + 1, (const uint8_t *)f->system_name);
	sha256_update(&ctx, strlen(f->file) + 1, (const uint8_t *)f->file);
	sha256_update(&ctx, sizeof(rest), (const uint8_t *)&rest);
	return history_hash_end(&ctx);
}

static void bind_function(sqlite3_stmt *stmt, const void *ctx)
{
	const struct stacks_function *f = ctx;

	bind_text(stmt, 1, f->name);
	bind_text(stmt, 2, f->file);
	(void)sqlite3_bind_int64(stmt, 3, f->start_line);
	bind_text(stmt, 4, strcmp(f->system_name, f->name) ? f->system_name : "");
	(void)sqlite3_bind_int64(stmt, 5, f->placed);
	(void)sqlite3_bind_int64(stmt, 6, function_hash(f));
}

static int function_id(struct adding *a, uint32_t index, int64_t *id)
{
	int err = 0;

	if (!a->functions[index])
		err = find_or_add(a, FIND_FUNCTION, ADD_FUNCTION, bind_function,
				  &a->s->functions[index], &a->functions[index]);
	*id = a->functions[index];
	return err;
}

/* Put the functions and lines of a location into a->lines. *last: the id of the function itself. */
static int pack_lines(struct adding *a, const struct stacks_location *l, int64_t *last)
{
	int err = 0;

	a->lines.size = 0;
	for (uint32_t i = 0; i < l->n_lines && !err; i++) {
		const struct stacks_line *line = &a->s->lines[l->first_line + i];

		err = function_id(a, line->function, last);
		history_put_uleb(&a->lines, (uint64_t)*last, &err);
		history_put_uleb(&a->lines, line->line > 0 ? (uint64_t)line->line : 0, &err);
	}
	return err;
}

/* Whether the names of a location follow from its file and address, and may be replaced by better ones. */
static bool is_lasting(const struct stacks_module *m)
{
	return *m->build_id && !m->kernel;
}

/* ---- which names say more ---------------------------------------------------------------- */

/* How much the names of an address say. */
struct quality {
	bool named; /* the function has a name; else only its place is known: "libfoo.so+0x1230" */
	bool located; /* its file or line is known */
};

static bool is_place(const char *name, const char *file, bool placed)
{
	const char *plus = strrchr(name, '+');
	size_t n = plus && !strncmp(plus, "+0x", 3) ? strspn(plus + 3, "0123456789abcdef") : 0;

	return placed || (!*file && n && !plus[3 + n]);
}

static void add_quality(struct quality *q, const char *name, const char *file, bool placed,
			int64_t line)
{
	q->named |= !is_place(name, file, placed);
	q->located |= *file || line;
}

static struct quality quality_of(const struct stacks *s, const struct stacks_location *l)
{
	struct quality q = { .named = false };

	for (uint32_t i = 0; i < l->n_lines; i++) {
		const struct stacks_line *line = &s->lines[l->first_line + i];
		const struct stacks_function *f = &s->functions[line->function];

		add_quality(&q, f->name, f->file, f->placed, line->line);
	}
	return q;
}

/* The same for the lines of a stored frame. Functions that are missing say nothing. */
static int stored_quality(struct adding *a, struct uw_bytes lines, struct quality *out)
{
	struct uw_bytes b = lines;
	int err = 0;

	*out = (struct quality){ .named = false };
	while (!uw_bytes_done(&b) && !err) {
		int64_t function = (int64_t)uw_bytes_uleb(&b), line = (int64_t)uw_bytes_uleb(&b);
		sqlite3_stmt *stmt = history_statement(a->h, READ_FUNCTIONS, &err);

		if (!stmt)
			return err;
		db_bind_numbers(stmt, (const int64_t[]){ function, function }, 2);
		err = db_step(stmt);
		if (err == 1) {
			const char *name = (const char *)sqlite3_column_text(stmt, 1);
			const char *file = (const char *)sqlite3_column_text(stmt, 3);

			err = name && file ? 0 : -ENOMEM;
			if (!err)
				add_quality(out, name, file, sqlite3_column_int(stmt, 5), line);
		}
		db_release(stmt);
	}
	return err;
}

/*
 * Return whether names that are there say more. A process that records may have read a file before its debug
 * information came: what was looked up since then stays.
 */
static bool says_more(const struct quality *there, const struct quality *new)
{
	return there->named != new->named ? there->named : there->located && !new->located;
}

/* Give a frame that exists the names that it has now. */
static int rename_frame(struct adding *a, int64_t id)
{
	a->renamed = true;
	return history_frames_rename(a->h, &a->new_frames, id,
				     uw_bytes_of(a->lines.bytes, a->lines.size));
}

/* Let those who cached names of frames know that some have changed. */
static int count_renaming(struct adding *a)
{
	int64_t n = 0;
	int err = a->renamed ? history_number(a->h, HISTORY_RENAMED, &n) : 0;

	return err || !a->renamed ? err : history_set_number(a->h, HISTORY_RENAMED, n + 1);
}

/* Return whether the names of a frame that was found are those in a->lines. */
static bool has_lines(const struct adding *a, const struct uw_bytes *lines)
{
	return uw_bytes_left(lines) == a->lines.size &&
	       (!a->lines.size || !memcmp(lines->pos, a->lines.bytes, a->lines.size));
}

static int frame_id(struct adding *a, uint32_t index, int64_t *id)
{
	const struct stacks_location *l = &a->s->locations[index];
	struct quality quality = quality_of(a->s, l), there = { .named = false };
	struct history_frame_key key = { .address = l->address };
	struct uw_bytes lines;
	int64_t last = 0;
	int err = 0;

	if (a->frames[index]) {
		*id = a->frames[index];
		return 0;
	}
	err = module_id(a, l->module, &key.module);
	if (!err)
		err = pack_lines(a, l, &last);
	if (err)
		return err;
	key.variant = is_lasting(&a->s->modules[l->module]) ? 0 : last;
	err = history_frames_find(a->h, &a->new_frames, &key, id, &lines);
	if (!err) {
		err = history_frames_add(a->h, &a->new_frames, &key,
					 uw_bytes_of(a->lines.bytes, a->lines.size), id);
	} else if (err == 1) {
		err = 0;
		if (!has_lines(a, &lines)) {
			err = stored_quality(a, lines, &there);
			if (!err && !says_more(&there, &quality))
				err = rename_frame(a, *id);
		}
	}
	a->frames[index] = err ? 0 : *id;
	return err;
}

/* ---- stacks ------------------------------------------------------------------------------ */

/* Give the node of a sample's innermost frame; 0 for a sample without frames. */
static int stack_id(struct adding *a, const struct stacks_sample *sample, int64_t *id)
{
	int err = 0;

	*id = 0;
	for (uint32_t i = sample->n_locations; i-- && !err;) {
		int64_t frame = 0;

		err = frame_id(a, a->s->location_ids[sample->first_location + i], &frame);
		if (!err)
			err = history_nodes_find(a->h, &a->nodes, *id, frame, id);
	}
	return err;
}

/* ---- labels ------------------------------------------------------------------------------ */

static bool is_own_column(const char *key)
{
	return !strcmp(key, "pid") || !strcmp(key, "tid") || !strcmp(key, HISTORY_TIME_LABEL);
}

static int compare_labels(const void *a, const void *b) /* for qsort */
{
	const struct stacks_label *const *x = a, *const *y = b;
	int by = strcmp((*x)->key, (*y)->key);

	return by ? by : strcmp((*x)->text ? (*x)->text : "", (*y)->text ? (*y)->text : "");
}

/* Write the labels of a sample, but those with columns of their own, as JSON. The caller frees it. */
static char *labels_text(const struct stacks *s, const struct stacks_sample *sample)
{
	const struct stacks_label **sorted = calloc(sample->n_labels + 1, sizeof(*sorted));
	char *text = NULL;
	size_t size, n = 0;
	FILE *out = sorted ? open_memstream(&text, &size) : NULL;

	for (uint32_t i = 0; out && i < sample->n_labels; i++) {
		const struct stacks_label *l = &s->labels[s->label_ids[sample->first_label + i]];

		if (!is_own_column(l->key))
			sorted[n++] = l;
	}
	if (out) {
		qsort(sorted, n, sizeof(*sorted), compare_labels);
		(void)fputc('{', out);
		for (size_t i = 0; i < n; i++) {
			if (i && !strcmp(sorted[i]->key, sorted[i - 1]->key))
				continue;
			if (i)
				(void)fputc(',', out);
			json_text(out, sorted[i]->key);
			(void)fputc(':', out);
			if (sorted[i]->text)
				json_text(out, sorted[i]->text);
			else
				(void)fprintf(out, "%lld", (long long)sorted[i]->number);
		}
		(void)fputc('}', out);
		if (fclose(out)) {
			free(text);
			text = NULL;
		}
	}
	free(sorted);
	return text;
}

static void bind_labels(sqlite3_stmt *stmt, const void *ctx)
{
	bind_text(stmt, 1, ctx);
	(void)sqlite3_bind_int64(stmt, 2, history_text_hash(ctx));
}

static int labels_id(struct adding *a, const struct stacks_sample *sample, int64_t *id)
{
	char *text = labels_text(a->s, sample);
	int err = text ? find_or_add(a, FIND_LABELS, ADD_LABELS, bind_labels, text, id) : -ENOMEM;

	free(text);
	return err;
}

/* Return whether two samples have the same labels, but those with columns of their own. */
static bool same_labels(const struct stacks *s, const struct stacks_sample *a,
			const struct stacks_sample *b)
{
	if (a->n_labels != b->n_labels)
		return false;
	for (uint32_t i = 0; i < a->n_labels; i++) {
		uint32_t x = s->label_ids[a->first_label + i], y = s->label_ids[b->first_label + i];

		if (x != y && (!is_own_column(s->labels[x].key) ||
			       strcmp(s->labels[x].key, s->labels[y].key) != 0))
			return false;
	}
	return true;
}

/* ---- samples ----------------------------------------------------------------------------- */

static void bind_type(sqlite3_stmt *stmt, const void *ctx)
{
	const struct stacks_type *t = ctx;

	bind_text(stmt, 1, t->type);
	bind_text(stmt, 2, t->unit);
}

static int add_types(struct adding *a)
{
	int err = 0;

	for (size_t i = 0; i < a->s->n_types && !err; i++)
		err = find_or_add(a, FIND_TYPE, ADD_TYPE, bind_type, &a->s->types[i], &a->types[i]);
	return err;
}

static uint64_t label_number(const struct stacks *s, const struct stacks_sample *sample,
			     const char *key)
{
	const struct stacks_label *l = stacks_label(s, sample, key);

	return l && !l->text && l->number > 0 ? (uint64_t)l->number : 0;
}

static int put_one(struct adding *a, struct history_sample *sample)
{
	if (array_grow(a->samples, a->n_samples, a->room_samples))
		return -ENOMEM;
	a->samples[a->n_samples++] = *sample;
	sample->n_values = 0;
	return 0;
}

/*
 * Put the values of a sample into one or several, because each has room for a few; only types that are
 * not 0 matter.
 */
static int put_sample(struct adding *a, size_t index, struct history_sample *to)
{
	int err = 0;

	for (size_t i = 0; i < a->s->n_types; i++) {
		int64_t value = stacks_value(a->s, index, i);

		if (!value)
			continue;
		if (to->n_values == HISTORY_VALUES)
			err = put_one(a, to);
		if (err)
			break;
		to->values[to->n_values++] =
			(struct history_value){ .type = (uint32_t)a->types[i], .value = value };
	}
	return err ? err : put_one(a, to);
}

static int add_samples(struct adding *a)
{
	struct known_labels labels = { .first = NULL };
	int err = 0;

	for (size_t i = 0; i < a->s->n_samples && !err; i++) {
		const struct stacks_sample *from = &a->s->samples[i];
		uint64_t time_ns = label_number(a->s, from, HISTORY_TIME_LABEL);
		struct history_sample to = { .pid = (uint32_t)label_number(a->s, from, "pid"),
					     .tid = (uint32_t)label_number(a->s, from, "tid") };
		int64_t node = 0;

		/* Clocks of CPUs differ a little: a sample may seem to be of just before its window. */
		to.time_ns = time_ns > a->start_ns ? time_ns - a->start_ns : 0;
		err = time_ns ? 0 : -EBADMSG;
		if (!err && (!labels.first || !same_labels(a->s, labels.first, from))) {
			labels.first = from;
			err = labels_id(a, from, &labels.id);
		}
		if (!err)
			err = stack_id(a, from, &node);
		to.labels = (uint64_t)labels.id;
		to.node = (uint64_t)node;
		if (!err)
			err = put_sample(a, i, &to);
	}
	return err;
}

/* ---- the window -------------------------------------------------------------------------- */

/* Add to a sum of all windows. */
static int add_total(struct adding *a, const char *what, const char *reason, int64_t n)
{
	int err;
	sqlite3_stmt *stmt = history_statement(a->h, ADD_TOTAL, &err);
	int64_t id;

	if (!stmt)
		return err;
	bind_text(stmt, 1, what);
	bind_text(stmt, 2, reason);
	(void)sqlite3_bind_int64(stmt, 3, n);
	return insert(a, stmt, &id);
}

static int add_counters(struct adding *a, int64_t window, const struct history_window *w)
{
	int err = add_total(a, "windows", "", 1);

	for (size_t i = 0; i < w->n_counters && !err; i++) {
		const struct history_counter *c = &w->counters[i];
		sqlite3_stmt *stmt;
		int64_t id;

		if (!c->n)
			continue;
		stmt = history_statement(a->h, ADD_COUNTER, &err);
		if (!stmt)
			return err;
		(void)sqlite3_bind_int64(stmt, 1, window);
		bind_text(stmt, 2, c->what);
		bind_text(stmt, 3, c->reason);
		(void)sqlite3_bind_int64(stmt, 4, c->n);
		err = insert(a, stmt, &id);
		if (!err)
			err = add_total(a, c->what, c->reason, c->n);
	}
	return err;
}

static int add_window(struct adding *a, const struct history_window *w)
{
	struct history_bytes packed = { .bytes = NULL };
	struct history_row row = { .start_ns = number(w->start_ns),
				   .end_ns = number(w->end_ns),
				   .level = HISTORY_TIMES,
				   .n_samples = (int64_t)a->n_samples,
				   .samples = &packed };
	int err = samples_pack(a->samples, a->n_samples, HISTORY_TIMES, &packed);
	int64_t id = 0;

	if (!err)
		err = history_add_window(a->h, &row, &id);
	free(packed.bytes);
	return err ? err : add_counters(a, id, w);
}

static void fini(struct adding *a)
{
	free(a->modules);
	free(a->functions);
	free(a->frames);
	free(a->types);
	history_nodes_fini(&a->nodes);
	history_frames_fini(&a->new_frames);
	free(a->samples);
	free(a->lines.bytes);
}

/* Begin to add, or rename, what a profile has. Call fini. -ENOMEM. */
static int init(struct adding *a, struct history *h, const struct stacks *stacks)
{
	*a = (struct adding){ .h = h,
			      .s = stacks,
			      .modules = calloc(stacks->n_modules + 1, sizeof(int64_t)),
			      .functions = calloc(stacks->n_functions + 1, sizeof(int64_t)),
			      .frames = calloc(stacks->n_locations + 1, sizeof(int64_t)),
			      .types = calloc(stacks->n_types + 1, sizeof(int64_t)) };
	return a->modules && a->functions && a->frames && a->types ? 0 : -ENOMEM;
}

int history_add(struct history *h, const struct stacks *stacks, const struct history_window *w)
{
	struct adding a;
	int err = init(&a, h, stacks);

	a.start_ns = w->start_ns;
	if (!err)
		err = db_exec(h->db, "BEGIN IMMEDIATE");
	if (!err)
		err = add_types(&a);
	if (!err)
		err = history_nodes_begin(h, &a.nodes);
	if (!err)
		err = history_frames_begin(h, &a.new_frames);
	if (!err)
		err = add_samples(&a);
	if (!err)
		err = history_nodes_end(h, &a.nodes);
	if (!err)
		err = history_frames_end(h, &a.new_frames);
	if (!err)
		err = add_window(&a, w);
	if (!err)
		err = count_renaming(&a);
	err = history_failed(h, "add a window", history_end(h, err));
	if (err)
		history_nodes_forget(h);
	fini(&a);
	return err;
}

/* ---- other names ------------------------------------------------------------------------- */

/* Find the row of a module. 0: there is none. */
static int find_module(struct adding *a, uint32_t index, int64_t *id)
{
	const struct stacks_module *m = &a->s->modules[index];
	int err = 0;
	sqlite3_stmt *stmt;

	if (!a->modules[index]) {
		stmt = history_statement(a->h, FIND_MODULE, &err);
		if (!stmt)
			return err;
		bind_text(stmt, 1, m->path);
		bind_text(stmt, 2, m->build_id);
		(void)sqlite3_bind_int64(stmt, 3, number(m->off));
		err = db_step(stmt);
		a->modules[index] = err == 1 ? sqlite3_column_int64(stmt, 0) : -1;
		db_release(stmt);
	}
	*id = a->modules[index] > 0 ? a->modules[index] : 0;
	return err < 0 ? err : 0;
}

/* Give the address of a location the names that it has in the profile, if they say more. */
static int rename_location(struct adding *a, uint32_t index, struct history_renamed *out)
{
	const struct stacks_location *l = &a->s->locations[index];
	struct quality quality = quality_of(a->s, l), there = { .named = false };
	struct history_frame_key key = { .address = l->address };
	struct uw_bytes lines;
	int64_t id = 0, last = 0;
	int err = find_module(a, l->module, &key.module);
	bool same;

	if (err || !key.module || !is_lasting(&a->s->modules[l->module]))
		return err;
	err = pack_lines(a, l, &last);
	if (!err)
		err = history_frames_find(a->h, &a->new_frames, &key, &id, &lines);
	if (err != 1)
		return err;
	same = has_lines(a, &lines);
	err = stored_quality(a, lines, &there);
	if (err)
		return err;
	if (same)
		out->same++;
	else if (says_more(&there, &quality))
		out->not_replaced++;
	else
		err = rename_frame(a, id);
	if (!err && !same && !says_more(&there, &quality))
		*(quality.named && !there.named ? &out->named : &out->better) += 1;
	return err;
}

int history_rename(struct history *h, const struct stacks *stacks, struct history_renamed *out)
{
	struct history_renamed renamed = *out;
	struct adding a;
	int err = init(&a, h, stacks);

	if (!err)
		err = db_exec(h->db, "BEGIN IMMEDIATE");
	if (!err)
		err = history_frames_begin(h, &a.new_frames);
	for (uint32_t i = 0; !err && i < stacks->n_locations; i++)
		err = rename_location(&a, i, &renamed);
	if (!err)
		err = history_frames_end(h, &a.new_frames);
	if (!err)
		err = count_renaming(&a);
	err = history_failed(h, "rename addresses", history_end(h, err));
	if (!err)
		*out = renamed;
	fini(&a);
	return err;
}

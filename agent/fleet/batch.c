/* agent/fleet/batch.c: makes rows of the fleet's tables of windows. */
#include "agent/fleet/batch.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "base/bytes.h"

#include <errno.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
/* A server inserts so many rows, or so many bytes, as one block (max_insert_block_size). */
enum { ROWS_MAX = 500000 };
#define BYTES_MAX ((size_t)64 << 20)
/* Ids that are remembered; twice as many with those before. */
enum { KNOWN_MAX = 1 << 18 };
enum { LABELS_MAX = 64 };
/* Frames that tell programs apart: those that start threads are in libc, and the same for many programs. */
enum { OUTERMOST = 4 };

/* ---- ids that were sent ------------------------------------------------------------------- */

struct ids { /* all zero: empty */
	uint64_t *ids;
	size_t n, room;
	struct uw_hash_index index;
};

static bool ids_have(const struct ids *s, uint64_t id)
{
	return UW_HASH_FIND(i, &s->index, hash_u64(0, id), s->ids[i] == id) != UW_HASH_NONE;
}

static int ids_add(struct ids *s, uint64_t id)
{
	int err = ids_have(s, id) ? 1 : array_grow(s->ids, s->n, s->room);

	if (!err)
		err = uw_hash_add(&s->index, hash_u64(0, id), (uint32_t)s->n);
	if (!err)
		s->ids[s->n++] = id;
	return err > 0 ? 0 : err;
}

static void ids_fini(struct ids *s)
{
	free(s->ids);
	uw_hash_fini(&s->index);
	*s = (struct ids){ .n = 0 };
}

/* What the server has: new ids in one set until it is full; then it becomes the old one. */
struct known {
	struct ids new, old;
};

static bool is_known(const struct known *k, uint64_t id)
{
	return ids_have(&k->new, id) || ids_have(&k->old, id);
}

/* Remember ids. What cannot be remembered is sent again, which does no harm. */
static void learn(struct known *k, const struct ids *sent)
{
	for (size_t i = 0; i < sent->n; i++) {
		if (k->new.n >= KNOWN_MAX) {
			ids_fini(&k->old);
			k->old = k->new;
			k->new = (struct ids){ .n = 0 };
		}
		if (ids_add(&k->new, sent->ids[i]))
			return;
	}
}

static void forget(struct known *k)
{
	ids_fini(&k->new);
	ids_fini(&k->old);
}

/* ---- hashes that all hosts agree on -------------------------------------------------------- */

static void hash_text(struct sha256_ctx *h, const char *text)
{
	sha256_update(h, strlen(text) + 1, (const uint8_t *)text);
}

static void hash_number(struct sha256_ctx *h, uint64_t value)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	sha256_update(h, sizeof(bytes), bytes);
}

/* Return the first bytes of the hash as a number that is not 0. */
static uint64_t hash_end(struct sha256_ctx *h)
{
	uint8_t digest[8];
	uint64_t id = 0;

	sha256_digest(h, sizeof(digest), digest);
	for (size_t i = sizeof(digest); i--;)
		id = id << 8 | digest[i];
	return id ? id : 1;
}

uint32_t batch_type_id(const char *type, const char *unit)
{
	struct sha256_ctx h;
	uint32_t id;

	sha256_init(&h);
	hash_text(&h, type);
	hash_text(&h, unit);
	id = (uint32_t)hash_end(&h);
	return id ? id : 1;
}

/* ---- a batch ------------------------------------------------------------------------------ */

static const char *const columns_of[BATCH_TABLES][2 * BLOCK_COLUMNS + 1] = {
	[BATCH_TYPES] = { "id", "UInt32", "type", "String", "unit", "String", "counts", "String" },
	[BATCH_NAMES] = { "frame", "UInt64", "build_id", "String", "vaddr", "UInt64", "module",
			  "String", "functions", "Array(String)", "files", "Array(String)", "lines",
			  "Array(UInt32)", "version", "UInt64" },
	[BATCH_STACKS] = { "stack", "UInt64", "frames", "Array(UInt64)" },
	[BATCH_LABEL_SETS] = { "labels", "UInt64", "keys", "Array(String)", "vals",
			       "Array(String)" },
	[BATCH_COUNTERS] = { "time", "DateTime", "host", "String", "window", "UInt64", "what",
			     "String", "reason", "String", "n", "Int64" },
	[BATCH_SAMPLES] = { "type", "UInt32", "time", "DateTime", "host", "String", "window",
			    "UInt64", "stack", "UInt64", "labels", "UInt64", "n", "UInt64", "value",
			    "Int64" },
};

static const char *const table_names[BATCH_TABLES] = {
	[BATCH_TYPES] = "types",       [BATCH_NAMES] = "names",
	[BATCH_STACKS] = "stacks",     [BATCH_LABEL_SETS] = "label_sets",
	[BATCH_COUNTERS] = "counters", [BATCH_SAMPLES] = "samples",
};

/* A row of samples, or of counters: sum of what has the same key. */
struct row {
	uint32_t type;
	uint64_t stack, labels;
	uint64_t n;
	int64_t value;
};

struct count {
	const char *what, *reason; /* in texts */
	int64_t n;
};

struct batch {
	uint32_t slot_s;
	bool no_names;
	struct block blocks[BATCH_TABLES];
	struct known known[BATCH_TABLES];
	struct ids sending[BATCH_TABLES]; /* of the rows in blocks */
	/* Of the first window: */
	char host[256];
	uint64_t window;
	uint32_t time_s;	    /* when the slot begins */
	uint32_t newest_s;	    /* the newest slot of those that the server has */
	uint32_t day;		    /* the host's, since 1970: see forget_daily */
	uint64_t until_ns, last_id; /* of the last window */
	struct row *rows;
	size_t n_rows, room_rows;
	struct uw_hash_index by_key;
	struct count *counts;
	size_t n_counts, room_counts;
	struct strings texts;
	/* Of the window that is added: */
	uint64_t *frames; /* ids by location; 0: not made yet */
	size_t room_frames;
	uint64_t *ids; /* of one stack */
	size_t room_ids;
};

const char *const *batch_columns(enum batch_table table)
{
	return columns_of[table];
}

uint64_t batch_version(enum batch_quality quality, uint32_t time_s)
{
	return (uint64_t)quality << 32 | (quality ? time_s : 0);
}

int batch_new(uint32_t slot_s, bool no_names, struct batch **out)
{
	struct batch *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->slot_s = slot_s;
	b->no_names = no_names;
	for (size_t i = 0; i < BATCH_TABLES; i++)
		block_init(&b->blocks[i], table_names[i], batch_columns((enum batch_table)i));
	*out = b;
	return 0;
}

void batch_drop(struct batch *b)
{
	for (size_t i = 0; i < BATCH_TABLES; i++) {
		block_clear(&b->blocks[i]);
		ids_fini(&b->sending[i]);
	}
	uw_hash_fini(&b->by_key);
	strings_fini(&b->texts);
	b->by_key = (struct uw_hash_index){ .n_slots = 0 };
	b->texts = (struct strings){ .n = 0 };
	b->n_rows = b->n_counts = 0;
	b->until_ns = 0;
}

void batch_server_has(struct batch *b, uint32_t time_s)
{
	if (time_s > b->newest_s)
		b->newest_s = time_s;
}

void batch_sent(struct batch *b)
{
	for (size_t i = 0; i < BATCH_TABLES; i++)
		learn(&b->known[i], &b->sending[i]);
	batch_server_has(b, b->time_s);
	batch_drop(b);
}

void batch_forget(struct batch *b)
{
	for (size_t i = 0; i < BATCH_TABLES; i++)
		forget(&b->known[i]);
}

void batch_free(struct batch *b)
{
	if (!b)
		return;
	batch_drop(b);
	batch_forget(b);
	for (size_t i = 0; i < BATCH_TABLES; i++)
		block_fini(&b->blocks[i]);
	free(b->rows);
	free(b->counts);
	free(b->frames);
	free(b->ids);
	free(b);
}

uint64_t batch_until(const struct batch *b)
{
	return b->until_ns;
}

uint64_t batch_last(const struct batch *b)
{
	return b->last_id;
}

uint32_t batch_time(const struct batch *b)
{
	return b->time_s;
}

static uint32_t slot_of(const struct batch *b, uint64_t start_ns)
{
	uint64_t s = start_ns / SECOND_NS;

	return (uint32_t)(s - s % b->slot_s);
}

/*
 * On another day all stacks are sent again, so that those that were not sent for long can be deleted
 * (schema/fleet_1.sql). Days of different hosts begin at different times.
 */
static void forget_daily(struct batch *b)
{
	const uint32_t day_s = 24 * 3600;
	struct sha256_ctx h;
	uint32_t day;

	sha256_init(&h);
	hash_text(&h, b->host);
	day = (uint32_t)((b->time_s + hash_end(&h) % day_s) / day_s);
	if (day != b->day)
		forget(&b->known[BATCH_STACKS]);
	b->day = day;
}

bool batch_takes(const struct batch *b, const struct batch_window *w)
{
	size_t bytes = 0;

	for (size_t i = 0; i < BATCH_TABLES; i++)
		bytes += block_size(&b->blocks[i]);
	return !b->until_ns || (slot_of(b, w->start_ns) == b->time_s && !strcmp(w->host, b->host) &&
				b->n_rows < ROWS_MAX && bytes < BYTES_MAX);
}

/* Note that a row with that id is being sent. Return 1 if it is new, 0 if the server has it, or -ENOMEM. */
static int is_new(struct batch *b, enum batch_table table, uint64_t id)
{
	int err;

	if (is_known(&b->known[table], id) || ids_have(&b->sending[table], id))
		return 0;
	err = ids_add(&b->sending[table], id);
	return err ? err : 1;
}

/* ---- frames and stacks --------------------------------------------------------------------- */

static const struct stacks_function *function_at(const struct stacks *s,
						 const struct stacks_location *l, uint32_t i)
{
	return &s->functions[s->lines[l->first_line + i].function];
}

/* Return whether a function's name only says where it is: "[libfoo.so]", "libfoo.so+0x1234" (export_place). */
static bool is_place(const struct stacks_function *f, const struct stacks_module *m)
{
	size_t n = strlen(m->name);

	return f->placed || (!strncmp(f->name, m->name, n) && !strncmp(f->name + n, "+0x", 3));
}

/* Return whether the location has a symbol. */
static bool has_symbol(const struct stacks *s, const struct stacks_location *l)
{
	for (uint32_t i = 0; i < l->n_lines; i++)
		if (!is_place(function_at(s, l, i), &s->modules[l->module]))
			return true;
	return false;
}

/*
 * Return the id of a location. The kernel and generated code lie elsewhere after each start, so that their
 * functions, not their addresses, are what is the same on all hosts.
 */
static uint64_t frame_id(const struct stacks *s, const struct stacks_location *l)
{
	const struct stacks_module *m = &s->modules[l->module];
	bool by_name = (m->kernel || !*m->build_id) && has_symbol(s, l);
	struct sha256_ctx h;

	sha256_init(&h);
	hash_text(&h, m->build_id);
	if (!*m->build_id || m->kernel)
		hash_text(&h, m->path);
	for (uint32_t i = 0; by_name && i < l->n_lines; i++)
		hash_text(&h, function_at(s, l, i)->name);
	hash_number(&h, by_name ? 0 : l->address);
	return hash_end(&h);
}

static enum batch_quality quality_of(const struct stacks *s, const struct stacks_location *l)
{
	enum batch_quality quality = has_symbol(s, l) ? BATCH_SYMBOL : BATCH_UNNAMED;

	for (uint32_t i = 0; quality && i < l->n_lines; i++)
		if (s->lines[l->first_line + i].line)
			quality = BATCH_LINES;
	return quality;
}

/* Add the row of a location, unless the server has these very names. */
static int add_names(struct batch *b, const struct stacks *s, const struct stacks_location *l,
		     uint64_t frame)
{
	const struct stacks_module *m = &s->modules[l->module];
	struct block *to = &b->blocks[BATCH_NAMES];
	bool left_out = b->no_names && *m->build_id && !m->kernel && m->path[0] == '/';
	uint32_t n = left_out || function_at(s, l, 0)->placed ? 0 : l->n_lines;
	struct sha256_ctx h;
	int new;

	sha256_init(&h);
	hash_number(&h, frame);
	hash_text(&h, m->path);
	for (uint32_t i = 0; i < n; i++) {
		hash_text(&h, function_at(s, l, i)->name);
		hash_text(&h, function_at(s, l, i)->file);
		hash_number(&h, (uint64_t)s->lines[l->first_line + i].line);
	}
	new = is_new(b, BATCH_NAMES, hash_end(&h));
	if (new <= 0)
		return new;
	block_u64(to, 0, frame);
	block_text(to, 1, m->build_id);
	block_u64(to, 2, l->address);
	block_text(to, 3, m->path);
	for (uint32_t i = 0; i < n; i++) {
		int64_t line = s->lines[l->first_line + i].line;

		block_text(to, 4, function_at(s, l, i)->name);
		block_text(to, 5, function_at(s, l, i)->file);
		block_u32(to, 6, line > 0 && line <= UINT32_MAX ? (uint32_t)line : 0);
	}
	for (size_t column = 4; column < 7; column++)
		block_array(to, column, n);
	block_u64(to, 7, batch_version(left_out ? BATCH_UNNAMED : quality_of(s, l), b->time_s));
	block_row(to);
	return to->err;
}

static int add_frame(struct batch *b, const struct stacks *s, uint32_t location)
{
	int err;

	if (b->frames[location])
		return 0;
	b->frames[location] = frame_id(s, &s->locations[location]);
	err = add_names(b, s, &s->locations[location], b->frames[location]);
	return err;
}

static uint64_t hash_frames(const uint64_t *frames, size_t n)
{
	struct sha256_ctx h;

	sha256_init(&h);
	for (size_t i = 0; i < n; i++)
		hash_number(&h, frames[i]);
	return hash_end(&h);
}

/*
 * Return the id of a stack: seven bytes of a hash over its frames, and above them one byte of a hash over the outermost
 * frames. So the stacks of a program lie together in the tables, and a question about its functions reads few other rows.
 */
static uint64_t stack_id(const uint64_t *frames, size_t n)
{
	size_t above = n > OUTERMOST ? n - OUTERMOST : 0;
	uint64_t id = hash_frames(frames + above, n - above) << 56 |
		      (hash_frames(frames, n) & UINT64_MAX >> 8);

	return id ? id : 1;
}

/* Give the id of a sample's stack, and add its row if it is new. */
static int add_stack(struct batch *b, const struct stacks *s, const struct stacks_sample *sample,
		     uint64_t *out)
{
	struct block *to = &b->blocks[BATCH_STACKS];
	/* A stack without frames has an array, too. */
	int err = array_reserve(b->ids, (size_t)sample->n_locations + 1, b->room_ids), new;

	for (uint32_t i = 0; !err && i < sample->n_locations; i++) {
		uint32_t location = s->location_ids[sample->first_location + i];

		err = add_frame(b, s, location);
		b->ids[i] = b->frames[location];
	}
	if (err)
		return err;
	*out = stack_id(b->ids, sample->n_locations);
	new = is_new(b, BATCH_STACKS, *out);
	if (new <= 0)
		return new;
	block_u64(to, 0, *out);
	for (uint32_t i = 0; i < sample->n_locations; i++)
		block_u64(to, 1, b->ids[i]);
	block_array(to, 1, sample->n_locations);
	block_row(to);
	return to->err;
}

/* ---- labels and types ---------------------------------------------------------------------- */

/* Return whether a label is not stored: it differs from sample to sample, or has a column of its own. */
static bool is_left_out(const char *key)
{
	static const char *const keys[] = { "pid", "tid", "guessed", "host", HISTORY_TIME_LABEL };

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (!strcmp(key, keys[i]))
			return true;
	return false;
}

static int compare_labels(const void *a, const void *b) /* for qsort */
{
	const struct stacks_label *const *x = a, *const *y = b;

	return strcmp((*x)->key, (*y)->key);
}

/* Give the id of a sample's labels, and add their row if they are new. */
static int add_labels(struct batch *b, const struct stacks *s, const struct stacks_sample *sample,
		      uint64_t *out)
{
	const struct stacks_label *labels[LABELS_MAX];
	struct block *to = &b->blocks[BATCH_LABEL_SETS];
	char number[STACKS_NUMBER];
	struct sha256_ctx h;
	size_t n = 0;
	int new;

	for (uint32_t i = 0; i < sample->n_labels && n < LABELS_MAX; i++) {
		const struct stacks_label *l = &s->labels[s->label_ids[sample->first_label + i]];

		if (!is_left_out(l->key))
			labels[n++] = l;
	}
	qsort(labels, n, sizeof(labels[0]), compare_labels);
	sha256_init(&h);
	for (size_t i = 0; i < n; i++) {
		hash_text(&h, labels[i]->key);
		hash_text(&h, stacks_label_text(labels[i], number));
	}
	*out = hash_end(&h);
	new = is_new(b, BATCH_LABEL_SETS, *out);
	if (new <= 0)
		return new;
	block_u64(to, 0, *out);
	for (size_t i = 0; i < n; i++) {
		block_text(to, 1, labels[i]->key);
		block_text(to, 2, stacks_label_text(labels[i], number));
	}
	block_array(to, 1, n);
	block_array(to, 2, n);
	block_row(to);
	return to->err;
}

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), size = strlen(end);

	return n >= size && !strcmp(text + n - size, end);
}

/* Return whether a type counts what the next type is the value of: samples and cpu, alloc_objects and alloc_space. */
static bool is_counted_by_next(const struct stacks *s, size_t type)
{
	const char *name = s->types[type].type;

	return type + 1 < s->n_types && !strcmp(s->types[type].unit, "count") &&
	       (ends_with(name, "samples") || ends_with(name, "objects"));
}

static int add_type(struct batch *b, const struct stacks *s, size_t type, const char *counts,
		    uint32_t *out)
{
	struct block *to = &b->blocks[BATCH_TYPES];
	int new;

	*out = batch_type_id(s->types[type].type, s->types[type].unit);
	new = is_new(b, BATCH_TYPES, *out);
	if (new <= 0)
		return new;
	block_u32(to, 0, *out);
	block_text(to, 1, s->types[type].type);
	block_text(to, 2, s->types[type].unit);
	block_text(to, 3, counts);
	block_row(to);
	return to->err;
}

/* ---- rows of samples ------------------------------------------------------------------------ */

static int add_row(struct batch *b, const struct row *row)
{
	uint64_t hash = hash_u64(hash_u64(row->type, row->labels), row->stack);
	uint32_t i =
		UW_HASH_FIND(at, &b->by_key, hash,
			     b->rows[at].stack == row->stack && b->rows[at].labels == row->labels &&
				     b->rows[at].type == row->type);
	int err = 0;

	if (i == UW_HASH_NONE) {
		err = array_grow(b->rows, b->n_rows, b->room_rows);
		if (!err)
			err = uw_hash_add(&b->by_key, hash, (uint32_t)b->n_rows);
		if (!err)
			b->rows[b->n_rows++] = *row;
		return err;
	}
	b->rows[i].n += row->n;
	b->rows[i].value = stacks_sum(b->rows[i].value, row->value);
	return 0;
}

static int add_sample(struct batch *b, const struct stacks *s, size_t index)
{
	struct row row = { .n = 0 };
	int err = add_stack(b, s, &s->samples[index], &row.stack);

	if (!err)
		err = add_labels(b, s, &s->samples[index], &row.labels);
	for (size_t i = 0; !err && i < s->n_types; i++) {
		bool pair = is_counted_by_next(s, i);
		int64_t first = stacks_value(s, index, i);

		row.n = pair && first > 0 ? (uint64_t)first : 0;
		row.value = pair ? stacks_value(s, index, i + 1) : first;
		if (row.n || row.value) {
			err = add_type(b, s, i + pair, pair ? s->types[i].type : "", &row.type);
			if (!err)
				err = add_row(b, &row);
		}
		i += pair;
	}
	return err;
}

static int add_counter(struct batch *b, const struct history_counter *c)
{
	struct count new = { .n = c->n };
	int err;

	for (size_t i = 0; i < b->n_counts; i++)
		if (!strcmp(b->counts[i].what, c->what) &&
		    !strcmp(b->counts[i].reason, c->reason)) {
			b->counts[i].n = stacks_sum(b->counts[i].n, c->n);
			return 0;
		}
	err = array_grow(b->counts, b->n_counts, b->room_counts);
	if (err)
		return err;
	new.what = strings_keep(&b->texts, c->what, strlen(c->what));
	new.reason = strings_keep(&b->texts, c->reason, strlen(c->reason));
	if (!new.what || !new.reason)
		return -ENOMEM;
	b->counts[b->n_counts++] = new;
	return 0;
}

int batch_add(struct batch *b, const struct batch_window *w)
{
	const struct stacks *s = w->stacks;
	int err = array_reserve(b->frames, s->n_locations, b->room_frames);

	if (err)
		return err;
	if (s->n_locations)
		memset(b->frames, 0, s->n_locations * sizeof(*b->frames));
	if (!b->until_ns) {
		size_t n = strnlen(w->host, sizeof(b->host) - 1);

		memcpy(b->host, w->host, n);
		b->host[n] = '\0';
		b->time_s = slot_of(b, w->start_ns);
		b->window = b->time_s > b->newest_s ? 0 : w->id;
		forget_daily(b);
	}
	if (w->end_ns > b->until_ns)
		b->until_ns = w->end_ns;
	b->last_id = w->id;
	for (size_t i = 0; i < s->n_samples && !err; i++)
		err = add_sample(b, s, i);
	for (size_t i = 0; i < w->n_counters && !err; i++)
		err = add_counter(b, &w->counters[i]);
	return err;
}

/* ---- what is sent --------------------------------------------------------------------------- */

const uint64_t *batch_stacks(const struct batch *b, size_t *n)
{
	*n = b->sending[BATCH_STACKS].n;
	return b->sending[BATCH_STACKS].ids;
}

/* Return a number of a column of 64 bits. */
static uint64_t number_at(const struct block_bytes *column, size_t i)
{
	return uw_bytes_little_n(column->bytes + 8 * i, 8);
}

/* Add the rows of stacks but those of some ids to another block. */
static void copy_stacks(const struct block *from, const struct ids *without, struct block *to)
{
	const struct block_column *frames = &from->columns[1];
	uint64_t begin = 0, end;

	for (size_t i = 0; i < from->n_rows; i++, begin = end) {
		uint64_t stack = number_at(&from->columns[0].values, i);

		end = number_at(&frames->ends, i);
		if (ids_have(without, stack))
			continue;
		block_u64(to, 0, stack);
		for (uint64_t k = begin; k < end; k++)
			block_u64(to, 1, number_at(&frames->values, k));
		block_array(to, 1, end - begin);
		block_row(to);
	}
}

int batch_leave_out(struct batch *b, const void *ids, size_t size)
{
	struct block *from = &b->blocks[BATCH_STACKS], left;
	struct ids there = { .n = 0 };
	int err = from->err;

	for (size_t at = 0; !err && size - at >= 8; at += 8)
		err = ids_add(&there, uw_bytes_little_n((const uint8_t *)ids + at, 8));
	block_init(&left, from->table, batch_columns(BATCH_STACKS));
	if (!err && there.n)
		copy_stacks(from, &there, &left);
	if (!err)
		err = left.err;
	if (!err && there.n) {
		block_fini(from);
		*from = left;
	} else {
		block_fini(&left);
	}
	ids_fini(&there);
	return err;
}

static int compare_rows(const void *a, const void *b) /* for qsort */
{
	const struct row *x = a, *y = b;

	return x->type != y->type     ? (x->type > y->type ? 1 : -1)
	       : x->stack != y->stack ? (x->stack > y->stack ? 1 : -1)
				      : (x->labels > y->labels) - (x->labels < y->labels);
}

static void put_sample(struct batch *b, const struct row *row)
{
	struct block *to = &b->blocks[BATCH_SAMPLES];

	block_u32(to, 0, row->type);
	block_u32(to, 1, b->time_s);
	block_text(to, 2, b->host);
	block_u64(to, 3, b->window);
	block_u64(to, 4, row->stack);
	block_u64(to, 5, row->labels);
	block_u64(to, 6, row->n);
	block_u64(to, 7, (uint64_t)row->value);
	block_row(to);
}

static void put_samples(struct batch *b)
{
	const struct row whole = { .labels = b->last_id,
				   .n = b->slot_s,
				   .value = (int64_t)b->until_ns };

	block_clear(&b->blocks[BATCH_SAMPLES]);
	/* No window is added after this but to an empty batch: the index need not follow. */
	if (b->n_rows)
		qsort(b->rows, b->n_rows, sizeof(*b->rows), compare_rows);
	put_sample(b, &whole);
	for (size_t i = 0; i < b->n_rows; i++)
		put_sample(b, &b->rows[i]);
}

static void put_counters(struct batch *b)
{
	struct block *to = &b->blocks[BATCH_COUNTERS];

	block_clear(to);
	for (size_t i = 0; i < b->n_counts; i++) {
		block_u32(to, 0, b->time_s);
		block_text(to, 1, b->host);
		block_u64(to, 2, b->window);
		block_text(to, 3, b->counts[i].what);
		block_text(to, 4, b->counts[i].reason);
		block_u64(to, 5, (uint64_t)b->counts[i].n);
		block_row(to);
	}
}

int batch_block(struct batch *b, enum batch_table table, const struct block **out)
{
	if (table == BATCH_SAMPLES)
		put_samples(b);
	else if (table == BATCH_COUNTERS)
		put_counters(b);
	*out = &b->blocks[table];
	return b->blocks[table].err;
}

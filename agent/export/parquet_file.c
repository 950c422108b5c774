/* agent/export/parquet_file.c: writes a table with nested columns as an Apache Parquet file. */
#include "agent/export/parquet_file.h"

#include "agent/array.h"
#include "agent/hash.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* A row group ends with this many values in one column, or this many bytes of texts: a reader holds one in memory. */
enum { VALUES_MAX = 1 << 20, ROWS_MAX = 1 << 17, TEXTS_MAX = 32 << 20 };
enum { COLUMNS_MAX = 64, ELEMENTS_MAX = 96, DEPTH_MAX = 4, NAME_MAX_SIZE = 64, ZSTD_LEVEL = 3 };

/* Numbers of parquet.thrift. */
enum { TYPE_BOOLEAN = 0, TYPE_INT32 = 1, TYPE_INT64 = 2, TYPE_BYTE_ARRAY = 6 };
enum { ENCODING_PLAIN = 0, ENCODING_RLE = 3, ENCODING_DICTIONARY = 8 };
enum { CONVERTED_UTF8 = 0, CONVERTED_MAP = 1, CONVERTED_LIST = 3, CONVERTED_UINT64 = 14 };
enum {
	LOGICAL_TEXT = 1,
	LOGICAL_MAP = 2,
	LOGICAL_LIST = 3,
	LOGICAL_TIME = 8,
	LOGICAL_INTEGER = 10
};
enum { PAGE_DATA = 0, PAGE_DICTIONARY = 2, CODEC_ZSTD = 6, NANOSECONDS = 3 };

struct bytes { /* all zero: empty */
	uint8_t *at;
	size_t n, room;
};

struct element { /* of the schema; a column has a type, a group has children */
	char name[NAME_MAX_SIZE];
	enum parquet_repetition repetition;
	enum parquet_group group;
	enum parquet_type type;
	unsigned int n_children;
};

struct column {
	size_t element;
	size_t path[DEPTH_MAX]; /* elements, without the root */
	unsigned int n_path, max_repetition, max_definition;
	/* Of this row group: */
	uint32_t *repetitions, *definitions; /* of each value, or of what is not there */
	size_t n, room_repetitions, room_definitions;
	struct bytes
		plain; /* values of fixed size, or the texts of the dictionary, in PLAIN encoding */
	struct strings texts;
	struct uw_hash_index by_text; /* index of the dictionary, by pointer in texts */
	uint32_t *indices;	      /* of texts; or values that are true or false */
	size_t n_values, room_indices;
};

struct chunk { /* a column of a row group, as it was written */
	uint64_t dictionary_at, data_at, size, unpacked, n_values;
};

struct row_group {
	struct chunk *chunks; /* one for each column; owned */
	uint64_t n_rows, size;
};

struct parquet {
	FILE *out;
	uint64_t at; /* in the file */
	struct element elements[ELEMENTS_MAX];
	size_t n_elements;
	struct column columns[COLUMNS_MAX];
	size_t n_columns;
	struct row_group *groups;
	size_t n_groups, room_groups;
	uint64_t n_rows, n_group_rows;
	struct bytes page, packed;
	int err; /* the first; after it nothing is collected */
};

/* ---- bytes --------------------------------------------------------------------------------- */

static void put(struct parquet *p, struct bytes *b, const void *bytes, size_t n)
{
	if (!p->err)
		p->err = array_reserve(b->at, b->n + n, b->room);
	if (p->err || !n)
		return;
	memcpy(b->at + b->n, bytes, n);
	b->n += n;
}

static void put_little(struct parquet *p, struct bytes *b, uint64_t value, size_t n)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(value >> (8 * i));
	put(p, b, bytes, n);
}

static void put_varint(struct parquet *p, struct bytes *b, uint64_t value)
{
	for (; value > 0x7f; value >>= 7)
		put_little(p, b, (value & 0x7f) | 0x80, 1);
	put_little(p, b, value, 1);
}

static void write_out(struct parquet *p, const void *bytes, size_t n)
{
	(void)fwrite(bytes, 1, n, p->out);
	p->at += n;
}

/* ---- Thrift's compact protocol --------------------------------------------------------------- */

enum thrift {
	THRIFT_TRUE = 1,
	THRIFT_FALSE,
	THRIFT_BYTE,
	THRIFT_I32 = 5,
	THRIFT_I64,
	THRIFT_TEXT = 8,
	THRIFT_LIST,
	THRIFT_STRUCT = 12
};

/* A struct that is being written: fields are in rising order. */
struct fields {
	struct parquet *p;
	struct bytes *to;
	unsigned int last;
};

static struct fields begin(struct parquet *p, struct bytes *to)
{
	return (struct fields){ p, to, 0 };
}

static void end(struct fields *f)
{
	put_little(f->p, f->to, 0, 1);
}

static void field(struct fields *f, unsigned int id, enum thrift type)
{
	put_little(f->p, f->to, (uint64_t)(id - f->last) << 4 | type,
		   1); /* never more than 15 apart */
	f->last = id;
}

static void put_zigzag(struct fields *f, int64_t value)
{
	put_varint(f->p, f->to, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

static void put_i32(struct fields *f, unsigned int id, int64_t value)
{
	field(f, id, THRIFT_I32);
	put_zigzag(f, value);
}

static void put_i64(struct fields *f, unsigned int id, uint64_t value)
{
	field(f, id, THRIFT_I64);
	put_zigzag(f, (int64_t)value);
}

static void put_text(struct fields *f, const char *text)
{
	put_varint(f->p, f->to, strlen(text));
	put(f->p, f->to, text, strlen(text));
}

static void put_list(struct fields *f, unsigned int id, enum thrift type, size_t n)
{
	field(f, id, THRIFT_LIST);
	put_little(f->p, f->to, (n < 15 ? n : 15) << 4 | type, 1);
	if (n >= 15)
		put_varint(f->p, f->to, n);
}

/* A struct that is a field without fields of its own: a member of a union. */
static void put_empty(struct fields *f, unsigned int id)
{
	field(f, id, THRIFT_STRUCT);
	put_little(f->p, f->to, 0, 1);
}

/* ---- the schema ------------------------------------------------------------------------------ */

int parquet_new(FILE *out, struct parquet **result)
{
	struct parquet *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->out = out;
	p->n_elements = 1; /* the root, which parquet_begin completes */
	*result = p;
	return 0;
}

static struct element *add_element(struct parquet *p, const char *name,
				   enum parquet_repetition repetition)
{
	struct element *e = &p->elements[p->n_elements];

	if (p->n_elements == ELEMENTS_MAX) {
		p->err = -E2BIG;
		return &p->elements[ELEMENTS_MAX - 1];
	}
	p->n_elements++;
	(void)snprintf(e->name, sizeof(e->name), "%s", name);
	e->repetition = repetition;
	return e;
}

void parquet_group(struct parquet *p, const char *name, enum parquet_repetition repetition,
		   enum parquet_group group, unsigned int n)
{
	struct element *e = add_element(p, name, repetition);

	e->group = group;
	e->n_children = n;
}

size_t parquet_column(struct parquet *p, const char *name, enum parquet_repetition repetition,
		      enum parquet_type type)
{
	struct element *e = add_element(p, name, repetition);

	e->type = type;
	if (p->n_columns == COLUMNS_MAX)
		p->err = -E2BIG;
	else
		p->columns[p->n_columns++].element = (size_t)(e - p->elements);
	return p->n_columns - 1;
}

void parquet_begin(struct parquet *p)
{
	size_t open[DEPTH_MAX];
	unsigned int left[DEPTH_MAX],
		depth = 0; /* groups that are open, and how many of their children come */
	size_t column = 0, at = 1;

	(void)strcpy(p->elements[0].name, "schema");
	p->elements[0].n_children = 0;
	for (; at < p->n_elements && !p->err; at++) {
		struct element *e = &p->elements[at];
		struct column *c;

		while (depth && !left[depth - 1])
			depth--;
		if (depth)
			left[depth - 1]--;
		else
			p->elements[0].n_children++;
		if (depth == DEPTH_MAX)
			p->err = -E2BIG;
		if (p->err)
			break;
		if (e->n_children) {
			open[depth] = at;
			left[depth++] = e->n_children;
			continue;
		}
		c = &p->columns[column++];
		memcpy(c->path, open, depth * sizeof(open[0]));
		c->path[depth] = at;
		c->n_path = depth + 1;
		for (unsigned int i = 0; i < c->n_path; i++) {
			enum parquet_repetition r = p->elements[c->path[i]].repetition;

			c->max_repetition += r == PARQUET_REPEATED;
			c->max_definition += r != PARQUET_REQUIRED;
		}
	}
	write_out(p, "PAR1", 4);
}

/* ---- values ---------------------------------------------------------------------------------- */

static struct column *add_level(struct parquet *p, size_t column, struct parquet_level level)
{
	struct column *c = &p->columns[column];

	if (!p->err)
		p->err = array_grow(c->repetitions, c->n, c->room_repetitions);
	if (!p->err)
		p->err = array_grow(c->definitions, c->n, c->room_definitions);
	if (p->err)
		return NULL;
	c->repetitions[c->n] = level.repetition;
	c->definitions[c->n++] = level.definition;
	return c;
}

void parquet_none(struct parquet *p, size_t column, struct parquet_level level)
{
	(void)add_level(p, column, level);
}

static void add_index(struct parquet *p, struct column *c, uint32_t index)
{
	if (!p->err)
		p->err = array_grow(c->indices, c->n_values, c->room_indices);
	if (!p->err)
		c->indices[c->n_values++] = index;
}

void parquet_number(struct parquet *p, size_t column, struct parquet_level level, int64_t value)
{
	struct column *c = add_level(p, column, level);

	if (!c)
		return;
	if (p->elements[c->element].type == PARQUET_BOOLEAN) {
		add_index(p, c, value != 0);
		return;
	}
	put_little(p, &c->plain, (uint64_t)value,
		   p->elements[c->element].type == PARQUET_INT32 ? 4 : 8);
	c->n_values++;
}

/* Give the number of a text in the column's dictionary, to which it is added. */
static uint32_t text_number(struct parquet *p, struct column *c, const char *text)
{
	const char *own = strings_keep(&c->texts, text, strlen(text));
	uint64_t hash = hash_u64(0, (uint64_t)(uintptr_t)own);
	uint32_t i = UW_HASH_FIND(at, &c->by_text, hash, c->texts.strings[at] == own);

	if (!own)
		p->err = -ENOMEM;
	if (p->err || i != UW_HASH_NONE)
		return i;
	i = (uint32_t)c->texts.n - 1;
	p->err = uw_hash_add(&c->by_text, hash, i);
	put_little(p, &c->plain, strlen(own), 4);
	put(p, &c->plain, own, strlen(own));
	return i;
}

void parquet_text(struct parquet *p, size_t column, struct parquet_level level, const char *text)
{
	struct column *c = add_level(p, column, level);
	uint32_t i = c ? text_number(p, c, text) : 0;

	if (c)
		add_index(p, c, i);
}

/* ---- pages ----------------------------------------------------------------------------------- */

static unsigned int bits_of(uint64_t max)
{
	unsigned int n = 0;

	for (; max; max >>= 1)
		n++;
	return n;
}

static size_t run_at(const uint32_t *values, size_t n)
{
	size_t run = 1;

	while (run < n && values[run] == values[0])
		run++;
	return run;
}

/* Write n values, packed into width bits each: eight values become width bytes. */
static void put_packed(struct parquet *p, struct bytes *to, const uint32_t *values, size_t n,
		       unsigned int width)
{
	uint64_t waiting = 0;
	unsigned int bits = 0;

	for (size_t i = 0; i < (n + 7) / 8 * 8; i++) {
		waiting |= (uint64_t)(i < n ? values[i] : 0) << bits;
		for (bits += width; bits >= 8; bits -= 8, waiting >>= 8)
			put_little(p, to, waiting & 0xff, 1);
	}
}

/* Write values of width bits in the RLE/bit-packed hybrid: runs of 8 and more as one value, the rest packed. */
static void put_hybrid(struct parquet *p, struct bytes *to, const uint32_t *values, size_t n,
		       unsigned int width)
{
	for (size_t i = 0; i < n;) {
		size_t run = run_at(values + i, n - i), packed = 0;

		if (run >= 8) {
			put_varint(p, to, (uint64_t)run << 1);
			put_little(p, to, values[i], (width + 7) / 8);
			i += run;
			continue;
		}
		/* Only the last values may be less than eight. */
		while (i + packed < n && run < 8) {
			packed = n - i - packed < 8 ? n - i : packed + 8;
			run = i + packed < n ? run_at(values + i + packed, n - i - packed) : 0;
		}
		put_varint(p, to, (packed + 7) / 8 << 1 | 1);
		put_packed(p, to, values + i, packed, width);
		i += packed;
	}
}

static void put_levels(struct parquet *p, const uint32_t *levels, size_t n, unsigned int max)
{
	size_t at = p->page.n;

	if (!max)
		return;
	put_little(p, &p->page, 0, 4); /* the size, which is known later */
	put_hybrid(p, &p->page, levels, n, bits_of(max));
	for (size_t i = 0; i < 4 && !p->err; i++)
		p->page.at[at + i] = (uint8_t)((p->page.n - at - 4) >> (8 * i));
}

/* Write p->page, and forget it. n_values: of the data, or texts of the dictionary. */
static void write_page(struct parquet *p, int type, size_t n_values, int encoding,
		       struct chunk *chunk)
{
	struct bytes header = { .n = 0 };
	struct fields f = begin(p, &header), in;
	size_t packed = 0;

	if (!p->err)
		p->err = array_reserve(p->packed.at, ZSTD_compressBound(p->page.n), p->packed.room);
	if (!p->err) {
		packed = ZSTD_compress(p->packed.at, p->packed.room,
				       p->page.n ? p->page.at : (const void *)"", p->page.n,
				       ZSTD_LEVEL);
		p->err = ZSTD_isError(packed) ? -ENOMEM : 0;
	}
	put_i32(&f, 1, type);
	put_i32(&f, 2, (int64_t)p->page.n);
	put_i32(&f, 3, (int64_t)packed);
	field(&f, type == PAGE_DATA ? 5 : 7, THRIFT_STRUCT);
	in = begin(p, &header);
	put_i32(&in, 1, (int64_t)n_values);
	put_i32(&in, 2, encoding);
	if (type == PAGE_DATA) {
		put_i32(&in, 3, ENCODING_RLE);
		put_i32(&in, 4, ENCODING_RLE);
	}
	end(&in);
	end(&f);
	if (!p->err) {
		write_out(p, header.at, header.n);
		write_out(p, p->packed.at, packed);
		chunk->size += header.n + packed;
		chunk->unpacked += header.n + p->page.n;
	}
	free(header.at);
	p->page.n = 0;
}

static void write_column(struct parquet *p, struct column *c, struct chunk *chunk)
{
	bool texts = p->elements[c->element].type == PARQUET_TEXT;
	unsigned int width = c->texts.n > 1 ? bits_of(c->texts.n - 1) : 1;

	chunk->n_values = c->n;
	if (texts) {
		chunk->dictionary_at = p->at;
		put(p, &p->page, c->plain.at, c->plain.n);
		write_page(p, PAGE_DICTIONARY, c->texts.n, ENCODING_PLAIN, chunk);
	}
	chunk->data_at = p->at;
	put_levels(p, c->repetitions, c->n, c->max_repetition);
	put_levels(p, c->definitions, c->n, c->max_definition);
	if (texts) {
		put_little(p, &p->page, width, 1);
		put_hybrid(p, &p->page, c->indices, c->n_values, width);
	} else if (p->elements[c->element].type == PARQUET_BOOLEAN) {
		put_packed(p, &p->page, c->indices, c->n_values, 1);
	} else {
		put(p, &p->page, c->plain.at, c->plain.n);
	}
	write_page(p, PAGE_DATA, c->n, texts ? ENCODING_DICTIONARY : ENCODING_PLAIN, chunk);
}

static void forget_values(struct column *c)
{
	strings_fini(&c->texts);
	uw_hash_fini(&c->by_text);
	c->texts = (struct strings){ .n = 0 };
	c->by_text = (struct uw_hash_index){ .n_slots = 0 };
	c->n = c->n_values = c->plain.n = 0;
}

static void end_group(struct parquet *p)
{
	struct row_group *g;

	if (!p->err)
		p->err = array_grow(p->groups, p->n_groups, p->room_groups);
	if (p->err)
		return;
	g = &p->groups[p->n_groups];
	*g = (struct row_group){ .n_rows = p->n_group_rows };
	g->chunks = calloc(p->n_columns, sizeof(*g->chunks));
	if (!g->chunks) {
		p->err = -ENOMEM;
		return;
	}
	p->n_groups++;
	for (size_t i = 0; i < p->n_columns; i++) {
		write_column(p, &p->columns[i], &g->chunks[i]);
		forget_values(&p->columns[i]);
		g->size += g->chunks[i].unpacked;
	}
	p->n_group_rows = 0;
}

void parquet_row(struct parquet *p)
{
	bool full = ++p->n_group_rows >= ROWS_MAX;

	p->n_rows++;
	for (size_t i = 0; i < p->n_columns; i++)
		full |= p->columns[i].n >= VALUES_MAX || p->columns[i].plain.n >= TEXTS_MAX;
	if (full)
		end_group(p);
}

/* ---- the footer ------------------------------------------------------------------------------ */

static void put_logical(struct fields *f, const struct element *e)
{
	struct fields in, unit;

	if (e->n_children ? e->group == PARQUET_PLAIN
			  : e->type != PARQUET_TEXT && e->type != PARQUET_TIME_NS &&
				    e->type != PARQUET_UINT64)
		return;
	field(f, 10, THRIFT_STRUCT);
	in = begin(f->p, f->to);
	if (e->n_children) {
		put_empty(&in, e->group == PARQUET_LIST ? LOGICAL_LIST : LOGICAL_MAP);
	} else if (e->type == PARQUET_TEXT) {
		put_empty(&in, LOGICAL_TEXT);
	} else if (e->type == PARQUET_TIME_NS) {
		field(&in, LOGICAL_TIME, THRIFT_STRUCT);
		unit = begin(f->p, f->to);
		field(&unit, 1, THRIFT_TRUE); /* in UTC */
		field(&unit, 2, THRIFT_STRUCT);
		struct fields one = begin(f->p, f->to);
		put_empty(&one, NANOSECONDS);
		end(&one);
		end(&unit);
	} else {
		field(&in, LOGICAL_INTEGER, THRIFT_STRUCT);
		unit = begin(f->p, f->to);
		field(&unit, 1, THRIFT_BYTE);
		put_little(f->p, f->to, 64, 1);
		field(&unit, 2, THRIFT_FALSE); /* signed */
		end(&unit);
	}
	end(&in);
}

static int type_of(const struct element *e)
{
	return e->type == PARQUET_TEXT	    ? TYPE_BYTE_ARRAY
	       : e->type == PARQUET_BOOLEAN ? TYPE_BOOLEAN
	       : e->type == PARQUET_INT32   ? TYPE_INT32
					    : TYPE_INT64;
}

static void put_element(struct parquet *p, struct bytes *to, const struct element *e)
{
	struct fields f = begin(p, to);
	bool root = e == p->elements;

	if (!root && !e->n_children)
		put_i32(&f, 1, type_of(e));
	if (!root)
		put_i32(&f, 3, e->repetition);
	field(&f, 4, THRIFT_TEXT);
	put_text(&f, e->name);
	if (root || e->n_children)
		put_i32(&f, 5, e->n_children);
	/* For readers older than logical types. */
	if (!root && e->n_children && e->group != PARQUET_PLAIN)
		put_i32(&f, 6, e->group == PARQUET_LIST ? CONVERTED_LIST : CONVERTED_MAP);
	else if (!root && !e->n_children && e->type == PARQUET_TEXT)
		put_i32(&f, 6, CONVERTED_UTF8);
	else if (!root && !e->n_children && e->type == PARQUET_UINT64)
		put_i32(&f, 6, CONVERTED_UINT64);
	if (!root)
		put_logical(&f, e);
	end(&f);
}

static void put_chunk(struct parquet *p, struct bytes *to, const struct column *c,
		      const struct chunk *chunk)
{
	const struct element *e = &p->elements[c->element];
	bool texts = e->type == PARQUET_TEXT;
	struct fields f = begin(p, to), in;

	put_i64(&f, 2, texts ? chunk->dictionary_at : chunk->data_at);
	field(&f, 3, THRIFT_STRUCT);
	in = begin(p, to);
	put_i32(&in, 1, type_of(e));
	put_list(&in, 2, THRIFT_I32, texts ? 3 : 2);
	put_zigzag(&in, ENCODING_PLAIN);
	put_zigzag(&in, ENCODING_RLE);
	if (texts)
		put_zigzag(&in, ENCODING_DICTIONARY);
	put_list(&in, 3, THRIFT_TEXT, c->n_path);
	for (unsigned int i = 0; i < c->n_path; i++)
		put_text(&in, p->elements[c->path[i]].name);
	put_i32(&in, 4, CODEC_ZSTD);
	put_i64(&in, 5, chunk->n_values);
	put_i64(&in, 6, chunk->unpacked);
	put_i64(&in, 7, chunk->size);
	put_i64(&in, 9, chunk->data_at);
	if (texts)
		put_i64(&in, 11, chunk->dictionary_at);
	end(&in);
	end(&f);
}

static void put_row_group(struct parquet *p, struct bytes *to, const struct row_group *g)
{
	struct fields f = begin(p, to);

	put_list(&f, 1, THRIFT_STRUCT, p->n_columns);
	for (size_t i = 0; i < p->n_columns; i++)
		put_chunk(p, to, &p->columns[i], &g->chunks[i]);
	put_i64(&f, 2, g->size);
	put_i64(&f, 3, g->n_rows);
	end(&f);
}

int parquet_end(struct parquet *p, const char *created_by, const char *const *pairs)
{
	struct bytes *to = &p->page;
	struct fields f = begin(p, to);
	size_t n_pairs = 0;
	uint8_t size[4];

	if (p->n_group_rows)
		end_group(p);
	while (pairs[2 * n_pairs])
		n_pairs++;
	put_i32(&f, 1, 2); /* the format's version */
	put_list(&f, 2, THRIFT_STRUCT, p->n_elements);
	for (size_t i = 0; i < p->n_elements; i++)
		put_element(p, to, &p->elements[i]);
	put_i64(&f, 3, p->n_rows);
	put_list(&f, 4, THRIFT_STRUCT, p->n_groups);
	for (size_t i = 0; i < p->n_groups; i++)
		put_row_group(p, to, &p->groups[i]);
	put_list(&f, 5, THRIFT_STRUCT, n_pairs);
	for (size_t i = 0; i < n_pairs; i++) {
		struct fields pair = begin(p, to);

		field(&pair, 1, THRIFT_TEXT);
		put_text(&pair, pairs[2 * i]);
		field(&pair, 2, THRIFT_TEXT);
		put_text(&pair, pairs[2 * i + 1]);
		end(&pair);
	}
	field(&f, 6, THRIFT_TEXT);
	put_text(&f, created_by);
	end(&f);
	for (size_t i = 0; i < sizeof(size); i++)
		size[i] = (uint8_t)(to->n >> (8 * i));
	if (!p->err) {
		write_out(p, to->at, to->n);
		write_out(p, size, sizeof(size));
		write_out(p, "PAR1", 4);
	}
	return p->err;
}

void parquet_free(struct parquet *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_columns; i++) {
		struct column *c = &p->columns[i];

		forget_values(c);
		free(c->repetitions);
		free(c->definitions);
		free(c->plain.at);
		free(c->indices);
	}
	for (size_t i = 0; i < p->n_groups; i++)
		free(p->groups[i].chunks);
	free(p->groups);
	free(p->page.at);
	free(p->packed.at);
	free(p);
}

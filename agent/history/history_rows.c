/* agent/history/history_rows.c: reads rows, some neighbours at a time, and caches them. */
#include "agent/history/history_rows.h"

#include "agent/array.h"
#include "agent/history/history_internal.h"
#include "agent/sanitize.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* More rows than these are not cached from one call to the next: about 64 MiB, and as much of names. */
enum { CACHED_NODES = 8388608, CACHED_NAMES = 524288 };

/* Numbers of chunks below this one are found by an array, of 8 MiB at most. */
enum { DIRECT_CHUNKS = 2097152 };

#define NAMES_MAX ((size_t)512 << 20) /* bytes of names in one call */

/* What rows of one kind are read with, and how the statement's row becomes one in memory, or a page many. */
struct kind {
	size_t size;
	size_t n;      /* rows in a chunk */
	size_t marker; /* bytes of the first member, which are 0 if there is no such row */
	int (*read)(struct history *h, const struct kind *kind, int64_t chunk, void *rows);
	enum history_statement statement;
	int (*take)(struct history *h, sqlite3_stmt *stmt, void *row);
};

/* ---- rows of each kind ----------------------------------------------------------------------- */

static bool is_there(const struct kind *kind, const void *row)
{
	const void *pointer;
	uint32_t number;

	if (kind->marker == sizeof(number)) {
		memcpy(&number, row, sizeof(number));
		return number;
	}
	memcpy(&pointer, row, sizeof(pointer));
	return pointer;
}

/* Read the nodes of a page: some may have been added. What is damaged is not there. */
static int read_nodes(struct history *h, const struct kind *kind, int64_t page, void *rows)
{
	struct history_node nodes[NODES_IN_PAGE];
	size_t n;
	int err;
	sqlite3_stmt *stmt = history_statement(h, kind->statement, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, page);
	err = db_step(stmt);
	if (err == 1) {
		err = history_unpack_nodes(page, sqlite3_column_blob(stmt, 0),
					   (size_t)sqlite3_column_bytes(stmt, 0), nodes, &n);
		memcpy(rows, nodes, sizeof(nodes));
	}
	db_release(stmt);
	return err == -EBADMSG ? 0 : err;
}

/* Read those rows of a chunk that are not there: some may have been added. */
static int read_rows(struct history *h, const struct kind *kind, int64_t chunk, void *rows)
{
	int64_t first = chunk * (int64_t)kind->n + 1, beyond = (int64_t)kind->n - 1;
	int err;
	sqlite3_stmt *stmt = history_statement(h, kind->statement, &err);

	if (!stmt)
		return err;
	beyond = beyond < INT64_MAX - first ? beyond : INT64_MAX - first;
	db_bind_numbers(stmt, (const int64_t[]){ first, first + beyond }, 2);
	while ((err = db_step(stmt)) == 1) {
		char *row =
			(char *)rows + (size_t)(sqlite3_column_int64(stmt, 0) - first) * kind->size;

		err = is_there(kind, row) ? 0 : kind->take(h, stmt, row);
		if (err)
			break;
	}
	db_release(stmt);
	return err;
}

/* Return memory that lasts until names are cleared. */
static void *keep_bytes(struct history *h, const void *bytes, size_t size)
{
	void *copy;

	if (!h->names.limit)
		arena_init(&h->names, NAMES_MAX);
	copy = arena_alloc(&h->names, size + 1);
	if (copy && size)
		memcpy(copy, bytes, size);
	return copy;
}

static int take_frame(struct history *h, const struct history_page_frame *from, void *row)
{
	struct history_frame frame = { .module = from->key.module, .address = from->key.address };
	const size_t size = (size_t)uw_bytes_left(&from->lines);

	frame.past = (uint32_t)size + 1;
	if (size && size <= sizeof(frame.few))
		memcpy(frame.few, from->lines.pos, size);
	else if (!(frame.lines = keep_bytes(h, from->lines.pos, size)))
		return -ENOMEM;
	memcpy(row, &frame, sizeof(frame));
	return 0;
}

/* Read those frames of a page that are not there: some may have been added. What is damaged is not there. */
static int read_frames(struct history *h, const struct kind *kind, int64_t page, void *rows)
{
	struct history_page_frame frames[FRAMES_IN_PAGE];
	size_t n = 0;
	int err;
	sqlite3_stmt *stmt = history_statement(h, kind->statement, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, page);
	err = db_step(stmt);
	if (err == 1) {
		(void)history_unpack_frames(sqlite3_column_blob(stmt, 0),
					    (size_t)sqlite3_column_bytes(stmt, 0), frames, &n);
		err = 0;
	}
	for (size_t i = 0; i < n && !err; i++) {
		char *row = (char *)rows + i * kind->size;

		if (frames[i].there && !is_there(kind, row))
			err = take_frame(h, &frames[i], row);
	}
	db_release(stmt);
	return err;
}

/* Return a text of a row, sanitized. same: a text that was kept, and may be equal; or NULL. */
static const char *keep_text(struct history *h, sqlite3_stmt *stmt, int column, const char *same)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);
	char sanitized[SANITIZED_MAX];
	size_t n;

	if (!text)
		return NULL;
	n = sanitize_text(text, "", '?', sanitized, sizeof(sanitized));
	return same && !strcmp(same, sanitized) ? same : keep_bytes(h, sanitized, n + 1);
}

static int take_function(struct history *h, sqlite3_stmt *stmt, void *row)
{
	struct history_function function = { .name = keep_text(h, stmt, 1, NULL),
					     .file = keep_text(h, stmt, 3, h->last_file),
					     .start_line = sqlite3_column_int64(stmt, 4),
					     .placed = sqlite3_column_int64(stmt, 5) };

	function.system_name = keep_text(h, stmt, 2, function.name);
	if (!function.name || !function.system_name || !function.file)
		return -ENOMEM;
	h->last_file = function.file;
	memcpy(row, &function, sizeof(function));
	return 0;
}

static const struct kind nodes = { .size = sizeof(struct history_node),
				   .n = NODES_IN_PAGE,
				   .marker = sizeof(uint32_t),
				   .read = read_nodes,
				   .statement = READ_NODES };
static const struct kind frames = { .size = sizeof(struct history_frame),
				    .n = FRAMES_IN_PAGE,
				    .marker = sizeof(uint32_t),
				    .read = read_frames,
				    .statement = READ_FRAMES };
static const struct kind functions = { .size = sizeof(struct history_function),
				       .n = ROWS_IN_CHUNK,
				       .marker = sizeof(void *),
				       .read = read_rows,
				       .statement = READ_FUNCTIONS,
				       .take = take_function };

/* ---- chunks ---------------------------------------------------------------------------------- */

static void *row_at(const struct history_rows *r, const struct kind *kind, size_t index)
{
	return (char *)r->rows + index * kind->size;
}

/* Let the chunk that is added next be found by its number. */
static int index_chunk(struct history_rows *r, int64_t number)
{
	size_t before = r->n_chunk_of;
	int err;

	if (number >= DIRECT_CHUNKS)
		return uw_hash_add(&r->by_number, hash_u64(0, (uint64_t)number),
				   (uint32_t)r->n_chunks);
	err = array_reserve(r->chunk_of, (size_t)number + 1, r->n_chunk_of);
	if (err)
		return err;
	memset(r->chunk_of + before, 0, (r->n_chunk_of - before) * sizeof(*r->chunk_of));
	r->chunk_of[number] = (uint32_t)r->n_chunks + 1;
	return 0;
}

static int add_chunk(struct history_rows *r, const struct kind *kind, int64_t number)
{
	size_t need = (r->n_chunks + 1) * kind->n;
	int err = uw_array_reserve(&r->rows, need, &r->room_rows, kind->size, SIZE_MAX);

	if (!err)
		err = array_grow(r->numbers, r->n_chunks, r->room_numbers);
	if (!err)
		err = index_chunk(r, number);
	if (err)
		return err;
	memset(row_at(r, kind, r->n_chunks * kind->n), 0, kind->n * kind->size);
	r->numbers[r->n_chunks++] = number;
	return 0;
}

static bool has_chunk(struct history_rows *r, int64_t number, size_t *out)
{
	uint32_t at;

	if (number < DIRECT_CHUNKS) {
		at = (size_t)number < r->n_chunk_of ? r->chunk_of[number] : 0;
		*out = at - 1;
		return at;
	}
	if (!r->n_chunks || r->numbers[r->last] != number) {
		at = UW_HASH_FIND(i, &r->by_number, hash_u64(0, (uint64_t)number),
				  r->numbers[i] == number);
		if (at == UW_HASH_NONE)
			return false;
		r->last = at;
	}
	*out = r->last;
	return true;
}

static int find_chunk(struct history_rows *r, const struct kind *kind, int64_t number, size_t *out)
{
	int err = 0;

	if (has_chunk(r, number, out))
		return 0;
	err = add_chunk(r, kind, number);
	if (!err)
		*out = r->last = r->n_chunks - 1;
	return err;
}

/* Drop the chunk that was added last: the database has no rows there. */
static void drop_last(struct history_rows *r)
{
	size_t at = --r->n_chunks;

	if (r->numbers[at] < DIRECT_CHUNKS)
		r->chunk_of[r->numbers[at]] = 0;
	else
		uw_hash_remove(&r->by_number, hash_u64(0, (uint64_t)r->numbers[at]), (uint32_t)at);
	r->last = 0;
}

static bool is_empty(const struct history_rows *r, const struct kind *kind, size_t chunk)
{
	for (size_t i = 0; i < kind->n; i++)
		if (is_there(kind, row_at(r, kind, chunk * kind->n + i)))
			return false;
	return true;
}

static int find(struct history *h, struct history_rows *r, const struct kind *kind, int64_t id,
		size_t *index)
{
	size_t n = r->n_chunks, chunk, at;
	int err;

	if (id <= 0)
		return -EBADMSG;
	err = find_chunk(r, kind, (id - 1) / (int64_t)kind->n, &chunk);
	if (err)
		return err;
	at = chunk * kind->n + (size_t)((id - 1) % (int64_t)kind->n);
	if (!is_there(kind, row_at(r, kind, at))) {
		err = kind->read(h, kind, r->numbers[chunk], row_at(r, kind, chunk * kind->n));
		if (!err && !is_there(kind, row_at(r, kind, at)))
			err = -EBADMSG;
		if (err && r->n_chunks > n && is_empty(r, kind, chunk))
			drop_last(r);
		if (err)
			return err;
	}
	*index = at;
	return 0;
}

static void clear(struct history_rows *r)
{
	free(r->rows);
	free(r->numbers);
	free(r->chunk_of);
	uw_hash_fini(&r->by_number);
	*r = (struct history_rows){ .n_chunks = 0 };
}

/* ---- what others call ------------------------------------------------------------------------ */

/* Inline, as each kind has a constant number of rows in a chunk then: a division would take longer than all else. */
static inline bool place(struct history_rows *r, const struct kind *kind, int64_t id, size_t *index)
{
	size_t chunk;

	if (id <= 0 || !has_chunk(r, (id - 1) / (int64_t)kind->n, &chunk))
		return false;
	*index = chunk * kind->n + (size_t)((id - 1) % (int64_t)kind->n);
	return true;
}

int history_node(struct history *h, int64_t id, size_t *index)
{
	size_t at;

	if (place(&h->nodes, &nodes, id, &at) && is_there(&nodes, row_at(&h->nodes, &nodes, at))) {
		*index = at;
		return 0;
	}
	return find(h, &h->nodes, &nodes, id, index);
}

bool history_node_place(struct history *h, int64_t id, size_t *index)
{
	return place(&h->nodes, &nodes, id, index);
}

bool history_node_fetch(struct history *h, int64_t id, size_t *index)
{
	if (!history_node_place(h, id, index))
		return false;
	__builtin_prefetch((const struct history_node *)h->nodes.rows + *index);
	return true;
}

bool history_frame_place(struct history *h, int64_t id, size_t *index)
{
	return place(&h->frames, &frames, id, index);
}

bool history_function_place(struct history *h, int64_t id, size_t *index)
{
	return place(&h->functions, &functions, id, index);
}

static int by_number(const void *a, const void *b, void *numbers) /* for qsort_r */
{
	const int64_t *of = numbers;
	const int64_t x = of[*(const size_t *)a], y = of[*(const size_t *)b];

	return (x > y) - (x < y);
}

int history_nodes_in_order(const struct history *h, size_t **out, size_t *n)
{
	const struct history_rows *r = &h->nodes;
	size_t *pages = calloc(r->n_chunks + 1, sizeof(*pages));

	if (!pages)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_chunks; i++)
		pages[i] = i;
	if (r->n_chunks)
		qsort_r(pages, r->n_chunks, sizeof(*pages), by_number, r->numbers);
	for (size_t i = 0; i < r->n_chunks; i++)
		pages[i] *= NODES_IN_PAGE;
	*out = pages;
	*n = r->n_chunks;
	return 0;
}

int64_t history_node_id(const struct history *h, size_t index)
{
	return h->nodes.numbers[index / NODES_IN_PAGE] * NODES_IN_PAGE +
	       (int64_t)(index % NODES_IN_PAGE) + 1;
}

int history_frame(struct history *h, int64_t id, size_t *index)
{
	return find(h, &h->frames, &frames, id, index);
}

int history_function(struct history *h, int64_t id, size_t *index)
{
	return find(h, &h->functions, &functions, id, index);
}

const struct history_node *history_nodes(const struct history *h)
{
	return h->nodes.rows;
}

const struct history_frame *history_frames(const struct history *h)
{
	return h->frames.rows;
}

const struct history_function *history_functions(const struct history *h)
{
	return h->functions.rows;
}

int history_check_names(struct history *h)
{
	int64_t renamed = 0;
	int err = history_number(h, HISTORY_RENAMED, &renamed);

	if (!err && renamed != h->renamed)
		history_clear_names(h);
	if (!err)
		h->renamed = renamed;
	return err;
}

void history_limit_rows(struct history *h)
{
	if (h->nodes.n_chunks > CACHED_NODES / NODES_IN_PAGE)
		history_clear_nodes(h);
	if (h->frames.n_chunks * FRAMES_IN_PAGE + h->functions.n_chunks * ROWS_IN_CHUNK >
	    CACHED_NAMES)
		history_clear_names(h);
}

void history_clear_nodes(struct history *h)
{
	clear(&h->nodes);
}

void history_clear_names(struct history *h)
{
	clear(&h->frames);
	clear(&h->functions);
	h->last_file = NULL;
	arena_fini(&h->names);
}

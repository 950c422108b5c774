/* agent/history/history_rows.c: reads rows, some neighbours at a time, and caches them. */
#include "agent/history/history_rows.h"

#include "agent/array.h"
#include "agent/history/history_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What rows of one kind are read with, and how the statement's row becomes one in memory. */
struct kind {
	enum history_statement read;
	size_t size;
	int (*take)(struct history *h, sqlite3_stmt *stmt, void *row);
};

/* ---- rows of each kind ----------------------------------------------------------------------- */

static int take_node(struct history *h, sqlite3_stmt *stmt, void *row)
{
	struct history_node node = { .parent = sqlite3_column_int64(stmt, 1),
				     .frame = sqlite3_column_int64(stmt, 2) };

	(void)h;
	if (node.parent >= 0 && node.parent < sqlite3_column_int64(stmt, 0))
		memcpy(row, &node, sizeof(node));
	return 0;
}

static int take_frame(struct history *h, sqlite3_stmt *stmt, void *row)
{
	struct history_frame frame = { .module = sqlite3_column_int64(stmt, 1),
				       .address = (uint64_t)sqlite3_column_int64(stmt, 2),
				       .n_lines = (size_t)sqlite3_column_bytes(stmt, 3) };
	uint8_t *lines = malloc(frame.n_lines + 1);

	(void)h;
	if (!lines)
		return -ENOMEM;
	if (frame.n_lines)
		memcpy(lines, sqlite3_column_blob(stmt, 3), frame.n_lines);
	frame.lines = lines;
	memcpy(row, &frame, sizeof(frame));
	return 0;
}

static const char *keep_text(struct history *h, sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return text ? strings_keep(&h->texts, text, (size_t)sqlite3_column_bytes(stmt, column))
		    : NULL;
}

static int take_function(struct history *h, sqlite3_stmt *stmt, void *row)
{
	struct history_function function = { .name = keep_text(h, stmt, 1),
					     .system_name = keep_text(h, stmt, 2),
					     .file = keep_text(h, stmt, 3),
					     .start_line = sqlite3_column_int64(stmt, 4),
					     .placed = sqlite3_column_int64(stmt, 5) };

	if (!function.name || !function.system_name || !function.file)
		return -ENOMEM;
	memcpy(row, &function, sizeof(function));
	return 0;
}

static const struct kind nodes = { READ_NODES, sizeof(struct history_node), take_node };
static const struct kind frames = { READ_FRAMES, sizeof(struct history_frame), take_frame };
static const struct kind functions = { READ_FUNCTIONS, sizeof(struct history_function),
				       take_function };

/* ---- chunks ---------------------------------------------------------------------------------- */

static void *row_at(const struct history_rows *r, const struct kind *kind, size_t index)
{
	return (char *)r->rows + index * kind->size;
}

static bool is_there(const struct history_rows *r, const struct kind *kind, size_t index)
{
	uint64_t first;

	memcpy(&first, row_at(r, kind, index), sizeof(first));
	return first;
}

/* Read those rows of a chunk that are not there: some may have been added. */
static int read_chunk(struct history *h, struct history_rows *r, const struct kind *kind,
		      size_t chunk)
{
	int64_t first = r->numbers[chunk] * ROWS_IN_CHUNK;
	int err;
	sqlite3_stmt *stmt = history_statement(h, kind->read, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, (const int64_t[]){ first, first + (ROWS_IN_CHUNK - 1) }, 2);
	while ((err = db_step(stmt)) == 1) {
		size_t index =
			chunk * ROWS_IN_CHUNK + (size_t)(sqlite3_column_int64(stmt, 0) - first);

		err = is_there(r, kind, index) ? 0 : kind->take(h, stmt, row_at(r, kind, index));
		if (err)
			break;
	}
	db_release(stmt);
	return err;
}

static int add_chunk(struct history_rows *r, const struct kind *kind, int64_t number, uint64_t hash)
{
	size_t need = (r->n_chunks + 1) * ROWS_IN_CHUNK;
	int err = uw_array_reserve(&r->rows, need, &r->room_rows, kind->size, SIZE_MAX);

	if (!err)
		err = array_grow(r->numbers, r->n_chunks, r->room_numbers);
	if (!err)
		err = uw_hash_add(&r->by_number, hash, (uint32_t)r->n_chunks);
	if (err)
		return err;
	memset(row_at(r, kind, r->n_chunks * ROWS_IN_CHUNK), 0, ROWS_IN_CHUNK * kind->size);
	r->numbers[r->n_chunks++] = number;
	return 0;
}

static bool has_chunk(struct history_rows *r, int64_t number, size_t *out)
{
	uint32_t at;

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
	err = add_chunk(r, kind, number, hash_u64(0, (uint64_t)number));
	if (!err)
		*out = r->last = r->n_chunks - 1;
	return err;
}

/* Drop the chunk that was added last: the database has no rows there. */
static void drop_last(struct history_rows *r)
{
	size_t at = --r->n_chunks;

	uw_hash_remove(&r->by_number, hash_u64(0, (uint64_t)r->numbers[at]), (uint32_t)at);
	r->last = 0;
}

static bool is_empty(const struct history_rows *r, const struct kind *kind, size_t chunk)
{
	for (size_t i = 0; i < ROWS_IN_CHUNK; i++)
		if (is_there(r, kind, chunk * ROWS_IN_CHUNK + i))
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
	err = find_chunk(r, kind, id / ROWS_IN_CHUNK, &chunk);
	if (err)
		return err;
	at = chunk * ROWS_IN_CHUNK + (size_t)(id % ROWS_IN_CHUNK);
	if (!is_there(r, kind, at)) {
		err = read_chunk(h, r, kind, chunk);
		if (!err && !is_there(r, kind, at))
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
	uw_hash_fini(&r->by_number);
	*r = (struct history_rows){ .n_chunks = 0 };
}

/* ---- what others call ------------------------------------------------------------------------ */

int history_node(struct history *h, int64_t id, size_t *index)
{
	return find(h, &h->nodes, &nodes, id, index);
}

bool history_node_place(struct history *h, int64_t id, size_t *index)
{
	size_t chunk;

	if (id <= 0 || !has_chunk(&h->nodes, id / ROWS_IN_CHUNK, &chunk))
		return false;
	*index = chunk * ROWS_IN_CHUNK + (size_t)(id % ROWS_IN_CHUNK);
	return true;
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

void history_clear_nodes(struct history *h)
{
	clear(&h->nodes);
}

void history_clear_names(struct history *h)
{
	for (size_t i = 0; i < h->frames.n_chunks * ROWS_IN_CHUNK; i++)
		free((void *)history_frames(h)[i].lines);
	clear(&h->frames);
	clear(&h->functions);
	strings_fini(&h->texts);
}

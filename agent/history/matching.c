/* agent/history/matching.c: the nodes whose functions match a regular expression. */
#include "agent/history/matching.h"

#include "agent/array.h"
#include "agent/history/history_internal.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MATCHING_NO = 1, MATCHING_YES, ROWS_MAX = 1 << 28 };

void matching_fini(struct matching *m)
{
	free(m->nodes.known);
	free(m->frames.known);
	free(m->functions.known);
	free(m->path);
}

/* Give the place for what is known about a row; valid until the next call. */
static int place(struct matching_rows *rows, uint64_t id, uint8_t **out)
{
	size_t before = rows->room;
	int err;

	if (id >= ROWS_MAX)
		return -EBADMSG;
	err = array_reserve(rows->known, (size_t)id + 1, rows->room);
	if (err)
		return err;
	memset(rows->known + before, 0, rows->room - before);
	*out = &rows->known[id];
	return 0;
}

/* Begin to read a row. Release *out if there is one. */
static int begin(struct matching *m, enum history_statement which, uint64_t id, sqlite3_stmt **out)
{
	int err;

	*out = history_statement(m->history, which, &err);
	if (!*out)
		return err;
	db_bind_numbers(*out, (const int64_t[]){ (int64_t)id, (int64_t)id }, 2);
	err = db_step(*out);
	if (err == 1)
		return 0;
	db_release(*out);
	return err ? err : -EBADMSG;
}

static int function_matches(struct matching *m, uint64_t id, bool *out)
{
	sqlite3_stmt *stmt;
	uint8_t *known;
	int err = place(&m->functions, id, &known);

	if (!err && !*known) {
		err = begin(m, READ_FUNCTIONS, id, &stmt);
		if (err)
			return err;
		*known = regexec(m->regex, (const char *)sqlite3_column_text(stmt, 1), 0, NULL, 0)
				 ? MATCHING_NO
				 : MATCHING_YES;
		db_release(stmt);
	}
	if (!err)
		*out = *known == MATCHING_YES;
	return err;
}

/* Functions of inlined calls count, too. */
static int frame_matches(struct matching *m, uint64_t id, bool *out)
{
	sqlite3_stmt *stmt;
	struct uw_bytes lines;
	uint8_t *known;
	int err = place(&m->frames, id, &known);

	*out = false;
	if (!err && !*known) {
		err = begin(m, READ_FRAMES, id, &stmt);
		if (err)
			return err;
		lines = uw_bytes_of(sqlite3_column_blob(stmt, 3),
				    (size_t)sqlite3_column_bytes(stmt, 3));
		while (!err && !*out && !uw_bytes_done(&lines)) {
			uint64_t function = uw_bytes_uleb(&lines);

			(void)uw_bytes_uleb(&lines); /* the line */
			err = lines.err ? lines.err : function_matches(m, function, out);
		}
		db_release(stmt);
		*known = *out ? MATCHING_YES : MATCHING_NO;
	}
	if (!err)
		*out = *known == MATCHING_YES;
	return err;
}

/* Read a node: the node of its caller, and whether its own frame matches. */
static int read_node(struct matching *m, uint64_t node, uint64_t *caller, bool *out)
{
	sqlite3_stmt *stmt;
	uint64_t frame;
	int err = begin(m, READ_NODES, node, &stmt);

	if (err)
		return err;
	*caller = (uint64_t)sqlite3_column_int64(stmt, 1);
	frame = (uint64_t)sqlite3_column_int64(stmt, 2);
	db_release(stmt);
	/* A caller's id is lower, so that a walk ends even if the database is damaged. */
	return *caller < node ? frame_matches(m, frame, out) : -EBADMSG;
}

int matching_node(struct matching *m, uint64_t node, bool *out)
{
	uint8_t *known = NULL;
	size_t n = 0;
	int err = 0;

	*out = false;
	while (node && !*out && !err) {
		err = place(&m->nodes, node, &known);
		if (err || *known)
			break;
		err = array_grow(m->path, n, m->room_path);
		if (!err) {
			m->path[n++] = node;
			err = read_node(m, node, &node, out);
		}
	}
	if (!err && node && !*out)
		*out = *known == MATCHING_YES;
	/* All nodes on the way have the answer of the last one. */
	while (n && !err) {
		err = place(&m->nodes, m->path[--n], &known);
		if (!err)
			*known = *out ? MATCHING_YES : MATCHING_NO;
	}
	return err;
}

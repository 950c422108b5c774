/*
 * agent/history/history_sweep.c: marks what windows refer to, and deletes the rest.
 *
 * A sweep goes on while windows are added, by this process or another one. Each transaction that
 * deletes rows first marks the windows that were added since the last one: ids of windows only grow.
 * What was marked stays marked, so that too little is deleted but never too much.
 *
 *   windows ──► nodes ──► their callers ──► frames ──► modules
 *      └──► labels                             └─────► functions
 */
#include "agent/history/history_sweep.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/hash.h"
#include "agent/history/history_internal.h"
#include "agent/history/samples.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

enum { WORDS = 64, WORD_BITS = 64, CHUNK_BITS = WORDS * WORD_BITS };

/* A set of ids. */
struct id_chunk {
	int64_t number; /* what its ids have above their lowest bits */
	uint64_t words[WORDS];
};

struct id_set { /* all zero: empty */
	struct id_chunk *chunks;
	size_t n, room;
	struct uw_hash_index by_number;
};

struct history_sweep {
	bool deletes;	   /* all windows were marked once */
	int64_t marked_to; /* the window with this id, and those before it, are marked */
	int64_t last_node; /* the last one when the sweep began; later ones are left alone */
	int64_t page;	   /* pages of nodes up to this one are done; -1: none */
	struct id_set nodes, frames, labels, modules, functions;
};

/* ---- sets -------------------------------------------------------------------------------- */

static struct id_chunk *find_ids(const struct id_set *set, int64_t id)
{
	int64_t number = id / CHUNK_BITS;
	uint32_t at = UW_HASH_FIND(i, &set->by_number, hash_u64(0, (uint64_t)number),
				   set->chunks[i].number == number);

	return at == UW_HASH_NONE ? NULL : &set->chunks[at];
}

static bool has_id(const struct id_set *set, int64_t id)
{
	const struct id_chunk *c = find_ids(set, id);
	uint64_t bit = (uint64_t)id % CHUNK_BITS;

	return c && c->words[bit / WORD_BITS] >> bit % WORD_BITS & 1;
}

static int add_id(struct id_set *set, int64_t id)
{
	struct id_chunk *c = find_ids(set, id);
	uint64_t bit = (uint64_t)id % CHUNK_BITS;
	int err = 0;

	if (!c) {
		err = array_grow(set->chunks, set->n, set->room);
		if (!err)
			err = uw_hash_add(&set->by_number, hash_u64(0, (uint64_t)(id / CHUNK_BITS)),
					  (uint32_t)set->n);
		if (err)
			return err;
		c = &set->chunks[set->n++];
		*c = (struct id_chunk){ .number = id / CHUNK_BITS };
	}
	c->words[bit / WORD_BITS] |= UINT64_C(1) << bit % WORD_BITS;
	return 0;
}

static void free_ids(struct id_set *set)
{
	free(set->chunks);
	uw_hash_fini(&set->by_number);
}

void history_sweep_free(struct history_sweep *s)
{
	if (!s)
		return;
	free_ids(&s->nodes);
	free_ids(&s->frames);
	free_ids(&s->labels);
	free_ids(&s->modules);
	free_ids(&s->functions);
	free(s);
}

/* ---- marking ----------------------------------------------------------------------------- */

/* Mark a node, its callers and their frames. One that cannot be read leads nowhere. */
static int mark_node(struct history *h, struct history_sweep *s, int64_t id)
{
	struct history_node node = { .up = 1 };
	size_t index;
	int err = 0;

	for (; node.up && !err && !has_id(&s->nodes, id); id -= node.up) {
		err = history_node(h, id, &index);
		if (err)
			break;
		node = history_nodes(h)[index];
		err = add_id(&s->nodes, id);
		if (!err)
			err = add_id(&s->frames, node.frame);
	}
	return err == -EBADMSG ? 0 : err;
}

/* Mark what the samples of a window refer to, up to its end or up to where it is damaged. */
static int mark_samples(struct history *h, struct history_sweep *s, const void *blob, size_t size)
{
	struct samples_reader reader;
	struct history_group group;
	int64_t labels = 0;
	int err = samples_open(blob, size, &reader);

	while (!err && (err = samples_next(&reader, &group)) == 1) {
		err = mark_node(h, s, (int64_t)group.sample->node);
		if (!err && (int64_t)group.sample->labels != labels) {
			labels = (int64_t)group.sample->labels;
			err = add_id(&s->labels, labels);
		}
	}
	return err == -EBADMSG || err == -ENOTSUP ? 0 : err;
}

/* Mark windows until a time is reached. Return 1 if there are more, 0 or a negative code. */
static int mark_windows(struct history *h, struct history_sweep *s, uint64_t until_ns)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, SWEEP_WINDOWS, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, s->marked_to);
	for (bool first = true; (err = db_step(stmt)) == 1; first = false) {
		if (!first && now_ns() >= until_ns)
			break;
		err = mark_samples(h, s, sqlite3_column_blob(stmt, 1),
				   (size_t)sqlite3_column_bytes(stmt, 1));
		if (err)
			break;
		s->marked_to = sqlite3_column_int64(stmt, 0);
	}
	db_release(stmt);
	return err;
}

/* ---- deleting ---------------------------------------------------------------------------- */

static int delete_row(struct history *h, enum history_statement which, int64_t id)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, which, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, id);
	err = db_step(stmt);
	db_release(stmt);
	return err < 0 ? err : 0;
}

static int delete_rows(struct history *h, enum history_statement which, const int64_t *ids,
		       size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++)
		err = delete_row(h, which, ids[i]);
	return err;
}

/* Write what is left of a page of nodes. The last page stays, for those that come next. */
static int write_rest(struct history *h, const struct history_sweep *s, int64_t page,
		      const struct history_node *nodes, size_t n)
{
	bool empty = page < history_node_page(s->last_node);
	struct history_bytes bytes = { .bytes = NULL };
	sqlite3_stmt *stmt;
	int err;

	for (size_t i = 0; i < n; i++)
		empty = empty && !nodes[i].frame;
	if (empty)
		return delete_row(h, DELETE_NODES, page);
	err = history_pack_nodes(nodes, n, &bytes);
	stmt = err ? NULL : history_statement(h, WRITE_NODES, &err);
	if (stmt) {
		(void)sqlite3_bind_int64(stmt, 1, page);
		db_bind_bytes(stmt, 2, bytes.bytes, bytes.size);
		err = db_step(stmt);
		db_release(stmt);
	}
	free(bytes.bytes);
	return err;
}

/* Delete the nodes of a page that are not marked. A node behind damage leads nowhere: it goes, too. */
static int delete_from_page(struct history *h, const struct history_sweep *s, int64_t page,
			    struct history_node *nodes, size_t n)
{
	bool changed = false;
	int err = 0;

	for (size_t i = 0; i < n; i++) {
		int64_t id = page * NODES_IN_PAGE + (int64_t)i + 1;

		if (!nodes[i].frame || id > s->last_node || has_id(&s->nodes, id))
			continue;
		history_nodes_deleted(h, nodes[i].up ? id - nodes[i].up : 0, nodes[i].frame);
		nodes[i] = (struct history_node){ .frame = 0 };
		changed = true;
	}
	if (changed)
		err = write_rest(h, s, page, nodes, n);
	if (changed && !err)
		err = history_nodes_count_deletion(h);
	return err;
}

/* Delete the nodes of the next page that are not marked. Return as history_sweep. */
static int delete_nodes(struct history *h, struct history_sweep *s)
{
	struct history_node nodes[NODES_IN_PAGE];
	size_t n = 0;
	int err;
	sqlite3_stmt *stmt = history_statement(h, SWEEP_NODES, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, s->page);
	err = db_step(stmt);
	if (err == 1) {
		s->page = sqlite3_column_int64(stmt, 0);
		(void)history_unpack_nodes(s->page, sqlite3_column_blob(stmt, 1),
					   (size_t)sqlite3_column_bytes(stmt, 1), nodes, &n);
	}
	db_release(stmt);
	if (err != 1 || s->page > history_node_page(s->last_node))
		return err < 0 ? err : 0;
	err = delete_from_page(h, s, s->page, nodes, n);
	return err ? err : 1;
}

/* Mark the functions of a frame. */
static int mark_lines(struct history_sweep *s, struct uw_bytes lines)
{
	struct uw_bytes b = lines;
	int err = 0;

	while (!uw_bytes_done(&b) && !err) {
		int64_t function = (int64_t)uw_bytes_uleb(&b);

		(void)uw_bytes_uleb(&b);
		err = b.err ? 0 : add_id(&s->functions, function);
	}
	return err;
}

/* Mark what the frames of a page refer to that are marked. Return 1 if some are not marked, 0 or a negative code. */
static int mark_page(struct history_sweep *s, int64_t page, const struct history_page_frame *frames,
		     size_t n)
{
	bool others = false;
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		if (!frames[i].there)
			continue;
		if (!has_id(&s->frames, page * FRAMES_IN_PAGE + (int64_t)i + 1)) {
			others = true;
			continue;
		}
		err = add_id(&s->modules, frames[i].key.module);
		if (!err)
			err = mark_lines(s, frames[i].lines);
	}
	return err ? err : others;
}

/* Delete the frames of a page that are not marked. */
static int delete_from_frames(struct history *h, const struct history_sweep *s, int64_t page,
			      struct history_page_frame *frames, size_t n)
{
	int err = 0;

	for (size_t i = 0; i < n && !err; i++) {
		int64_t id = page * FRAMES_IN_PAGE + (int64_t)i + 1;

		if (!frames[i].there || has_id(&s->frames, id))
			continue;
		err = history_frames_unindex(h, id, &frames[i].key);
		frames[i].there = false;
	}
	return err ? err : history_write_frames(h, page, frames, n);
}

/* Delete the frames that are not marked, and mark what the others refer to. */
static int delete_frames(struct history *h, struct history_sweep *s)
{
	struct history_page_frame frames[FRAMES_IN_PAGE];
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_ALL_FRAMES, &err);

	if (!stmt)
		return err;
	/* A row that was read may be changed: https://sqlite.org/isolation.html, "No Isolation Between Operations". */
	while ((err = db_step(stmt)) == 1) {
		int64_t page = sqlite3_column_int64(stmt, 0);
		size_t n;

		(void)history_unpack_frames(sqlite3_column_blob(stmt, 1),
					    (size_t)sqlite3_column_bytes(stmt, 1), frames, &n);
		err = mark_page(s, page, frames, n);
		if (err == 1)
			err = delete_from_frames(h, s, page, frames, n);
		if (err)
			break;
	}
	db_release(stmt);
	return err;
}

/* Delete the rows of a table that are not marked; select gives their ids. */
static int delete_others(struct history *h, enum history_statement select,
			 enum history_statement delete, const struct id_set *marked)
{
	int64_t *ids = NULL;
	size_t n = 0, room = 0;
	int err;
	sqlite3_stmt *stmt = history_statement(h, select, &err);

	if (!stmt)
		return err;
	while ((err = db_step(stmt)) == 1) {
		int64_t id = sqlite3_column_int64(stmt, 0);

		err = 0;
		if (!has_id(marked, id)) {
			err = array_grow(ids, n, room);
			if (!err)
				ids[n++] = id;
		}
		if (err)
			break;
	}
	db_release(stmt);
	if (!err)
		err = delete_rows(h, delete, ids, n);
	free(ids);
	return err;
}

/* Mark the frames of nodes that were added since the sweep began, whether a window has them or not. */
static int mark_new_frames(struct history *h, struct history_sweep *s)
{
	struct history_node nodes[NODES_IN_PAGE];
	int err;
	sqlite3_stmt *stmt = history_statement(h, SWEEP_NEW_NODES, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, history_node_page(s->last_node + 1));
	while ((err = db_step(stmt)) == 1) {
		size_t n;

		(void)history_unpack_nodes(sqlite3_column_int64(stmt, 0),
					   sqlite3_column_blob(stmt, 1),
					   (size_t)sqlite3_column_bytes(stmt, 1), nodes, &n);
		err = 0;
		for (size_t i = 0; i < n && !err; i++)
			err = nodes[i].frame ? add_id(&s->frames, nodes[i].frame) : 0;
		if (err)
			break;
	}
	db_release(stmt);
	return err;
}

/* These tables are small, so they are done at once. */
static int delete_names(struct history *h, struct history_sweep *s, uint64_t now)
{
	int err = mark_new_frames(h, s);

	if (!err)
		err = delete_frames(h, s);
	if (!err)
		err = delete_others(h, SWEEP_MODULES, SWEEP_MODULE, &s->modules);
	if (!err)
		err = delete_others(h, SWEEP_FUNCTIONS, SWEEP_FUNCTION, &s->functions);
	if (!err)
		err = delete_others(h, SWEEP_LABELS, SWEEP_LABEL, &s->labels);
	return err ? err : history_set_number(h, HISTORY_SWEPT, (int64_t)now);
}

/* ---- the sweep --------------------------------------------------------------------------- */

static int begin(struct history *h)
{
	struct history_sweep *s = calloc(1, sizeof(*s));
	int err = s ? 0 : -ENOMEM;

	if (!err) {
		s->page = -1;
		err = history_number(h, HISTORY_LAST_NODE, &s->last_node);
	}
	/* Windows that are deleted from now on are a matter of the next sweep. */
	if (!err)
		err = history_set_number(h, HISTORY_UNSWEPT, 0);
	if (err)
		history_sweep_free(s);
	else
		h->sweep = s;
	return err;
}

/* Do as much of the sweep as there is time for. Return as history_sweep. */
static int advance(struct history *h, struct history_sweep *s, uint64_t now)
{
	uint64_t until_ns = now_ns() + h->step_ns;
	int err = mark_windows(h, s, s->deletes ? UINT64_MAX : until_ns);

	if (err)
		return err;
	s->deletes = true;
	do
		err = delete_nodes(h, s);
	while (err == 1 && now_ns() < until_ns);
	return err ? err : delete_names(h, s, now);
}

int history_sweep(struct history *h, uint64_t now)
{
	int err = db_exec(h->db, "BEGIN IMMEDIATE");

	if (!err && !h->sweep)
		err = begin(h);
	if (!err)
		err = advance(h, h->sweep, now);
	err = history_end(h, err);
	if (err != 1) {
		history_sweep_free(h->sweep);
		h->sweep = NULL;
		history_clear_nodes(h);
	}
	/* What was marked needs no node any more, and there may be many. */
	history_limit_rows(h);
	if (err < 0)
		history_nodes_forget(h);
	return err;
}

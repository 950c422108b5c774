/* agent/history/history_addresses.c: lists the addresses whose names may be looked up anew. */
#include "agent/history/history_internal.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The frames that windows of a range of time have. */
struct marking {
	struct history *h;
	bool *nodes; /* by index in the cache of nodes: the node and its callers are marked */
	size_t n_nodes;
	bool *frames; /* by id */
	size_t n_frames;
};

/* Make *set large enough for an index; what is new is false. */
static int reserve(bool **set, size_t *n, size_t index)
{
	size_t before = *n;
	int err = array_reserve(*set, index + 1, *n);

	if (!err && *n > before)
		memset(*set + before, 0, (*n - before) * sizeof(**set));
	return err;
}

/* Mark the frames of a stack, from its innermost frame to one that is marked. */
static int mark_stack(void *ctx, const struct history_point *point) /* history_point_fn */
{
	struct marking *m = ctx;
	int64_t id = (int64_t)point->node;

	while (id) {
		struct history_node node;
		size_t index;
		int err = history_node(m->h, id, &index);

		if (!err)
			err = reserve(&m->nodes, &m->n_nodes, index);
		if (err || m->nodes[index])
			return err;
		m->nodes[index] = true;
		node = history_nodes(m->h)[index];
		err = reserve(&m->frames, &m->n_frames, node.frame);
		if (err)
			return err;
		m->frames[node.frame] = true;
		/* A parent's id is below its child's. */
		id = node.up ? id - node.up : 0;
	}
	return 0;
}

static int mark(struct marking *m, uint64_t from_ns, uint64_t to_ns)
{
	/* Each sample has a value of this type. */
	int err = history_scan(m->h, from_ns, to_ns, "samples", mark_stack, m, NULL, NULL);

	history_limit_rows(m->h);
	return err == -ENOENT ? 0 : err;
}

/* Read the frames of one module. marked NULL: all. */
static int read_frames(struct history *h, int64_t id, struct history_address *a,
		       const struct marking *marked, history_address_fn fn, void *ctx)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_ADDRESSES, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, id);
	while ((err = db_step(stmt)) == 1) {
		uint64_t frame = (uint64_t)sqlite3_column_int64(stmt, 0);

		err = 0;
		a->address = (uint64_t)sqlite3_column_int64(stmt, 1);
		if (!marked || (frame < marked->n_frames && marked->frames[frame]))
			err = fn(ctx, a);
		if (err)
			break;
	}
	db_release(stmt);
	return err;
}

static int read_modules(struct history *h, const struct marking *marked, history_address_fn fn,
			void *ctx)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_FILES, &err);

	if (!stmt)
		return err;
	while ((err = db_step(stmt)) == 1) {
		struct history_address a = {
			.path = (const char *)sqlite3_column_text(stmt, 1),
			.build_id = (const char *)sqlite3_column_text(stmt, 2),
			.off = (uint64_t)sqlite3_column_int64(stmt, 3),
			.start = (uint64_t)sqlite3_column_int64(stmt, 4),
			.limit = (uint64_t)sqlite3_column_int64(stmt, 5),
		};

		err = a.path && a.build_id
			      ? read_frames(h, sqlite3_column_int64(stmt, 0), &a, marked, fn, ctx)
			      : -ENOMEM;
		if (err)
			break;
	}
	db_release(stmt);
	return err;
}

int history_addresses(struct history *h, uint64_t from_ns, uint64_t to_ns, history_address_fn fn,
		      void *ctx)
{
	const bool all = !from_ns && to_ns == UINT64_MAX;
	struct marking m = { .h = h };
	int err = all ? 0 : mark(&m, from_ns, to_ns);

	if (!err)
		err = db_exec(h->db, "BEGIN");
	if (!err) {
		err = read_modules(h, all ? NULL : &m, fn, ctx);
		(void)db_exec(h->db, "COMMIT");
	}
	(void)history_failed(h, "be read", err);
	free(m.nodes);
	free(m.frames);
	return err;
}

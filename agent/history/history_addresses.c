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
	uint32_t *frames; /* their ids, sorted in the end; a damaged file can have any */
	size_t n_frames, room_frames;
};

/* Make room for a node; what is new is not marked. */
static int reserve_node(struct marking *m, size_t index)
{
	size_t before = m->n_nodes;
	int err = array_reserve(m->nodes, index + 1, m->n_nodes);

	if (!err && m->n_nodes > before)
		memset(m->nodes + before, 0, (m->n_nodes - before) * sizeof(*m->nodes));
	return err;
}

/* Mark the frames of a stack, from its innermost frame to one that is marked. */
static int mark_stack(void *ctx, const struct history_point *point) /* history_point_fn */
{
	struct marking *m = ctx;
	int64_t id = point ? (int64_t)point->node : 0; /* what is marked already does no harm */

	while (id) {
		struct history_node node;
		size_t index;
		int err = history_node(m->h, id, &index);

		if (!err)
			err = reserve_node(m, index);
		if (err || m->nodes[index])
			return err;
		m->nodes[index] = true;
		node = history_nodes(m->h)[index];
		err = array_grow(m->frames, m->n_frames, m->room_frames);
		if (err)
			return err;
		m->frames[m->n_frames++] = node.frame;
		/* A parent's id is below its child's. */
		id = node.up ? id - node.up : 0;
	}
	return 0;
}

static int compare(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Sort the frames, each once. */
static void sort_frames(struct marking *m)
{
	size_t n = 0;

	if (m->n_frames)
		qsort(m->frames, m->n_frames, sizeof(*m->frames), compare);
	for (size_t i = 0; i < m->n_frames; i++)
		if (!i || m->frames[i] != m->frames[n - 1])
			m->frames[n++] = m->frames[i];
	m->n_frames = n;
}

static bool is_marked(const struct marking *m, int64_t id)
{
	uint32_t frame = (uint32_t)id;

	return id >= 0 && id <= UINT32_MAX && m->n_frames &&
	       bsearch(&frame, m->frames, m->n_frames, sizeof(frame), compare);
}

static int mark(struct marking *m, uint64_t from_ns, uint64_t to_ns)
{
	/* Each sample has a value of this type. */
	int err = history_scan(m->h, from_ns, to_ns, "samples", mark_stack, m, NULL, NULL);

	/* Recordings of allocations alone have other types. */
	if (err == -ENOENT)
		err = history_scan(m->h, from_ns, to_ns, NULL, mark_stack, m, NULL, NULL);
	sort_frames(m);
	history_limit_rows(m->h);
	return err == -ENOENT ? 0 : err;
}

/* ---- in their order -------------------------------------------------------------------------- */

struct placed {
	int64_t module;
	uint64_t address;
};

struct placed_frames {
	struct placed *frames;
	size_t n, room;
};

static int compare_places(const void *a, const void *b) /* for qsort */
{
	const struct placed *x = a, *y = b;

	return x->module != y->module ? (x->module > y->module) - (x->module < y->module)
				      : (x->address > y->address) - (x->address < y->address);
}

/* Read the frames whose names follow from their files, sorted. marked NULL: all. */
static int read_frames(struct history *h, const struct marking *marked, struct placed_frames *out)
{
	struct history_page_frame frames[FRAMES_IN_PAGE];
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_ALL_FRAMES, &err);

	if (!stmt)
		return err;
	while ((err = db_step(stmt)) == 1) {
		const int64_t page = sqlite3_column_int64(stmt, 0);
		size_t n;

		(void)history_unpack_frames(sqlite3_column_blob(stmt, 1),
					    (size_t)sqlite3_column_bytes(stmt, 1), frames, &n);
		err = array_reserve(out->frames, out->n + n, out->room);
		for (size_t i = 0; i < n && !err; i++)
			if (frames[i].there && !frames[i].key.variant &&
			    (!marked || is_marked(marked, page * FRAMES_IN_PAGE + (int64_t)i + 1)))
				out->frames[out->n++] = (struct placed){ frames[i].key.module,
									 frames[i].key.address };
		if (err)
			break;
	}
	db_release(stmt);
	if (!err && out->n)
		qsort(out->frames, out->n, sizeof(*out->frames), compare_places);
	return err;
}

/* Return the place of the first frame of a module, or where it would be. */
static size_t first_of(const struct placed_frames *frames, int64_t module)
{
	size_t from = 0, to = frames->n;

	while (from < to) {
		const size_t middle = from + (to - from) / 2;

		if (frames->frames[middle].module < module)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static int give_module(const struct placed_frames *frames, int64_t module,
		       struct history_address *a, history_address_fn fn, void *ctx)
{
	int err = 0;

	for (size_t i = first_of(frames, module);
	     i < frames->n && frames->frames[i].module == module && !err; i++) {
		a->address = frames->frames[i].address;
		/* One that was stored again is given once. */
		if (i && !compare_places(&frames->frames[i], &frames->frames[i - 1]))
			continue;
		err = fn(ctx, a);
	}
	return err;
}

static int read_modules(struct history *h, const struct placed_frames *frames,
			history_address_fn fn, void *ctx)
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
			      ? give_module(frames, sqlite3_column_int64(stmt, 0), &a, fn, ctx)
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
	struct placed_frames frames = { .n = 0 };
	int err = all ? 0 : mark(&m, from_ns, to_ns);

	if (!err)
		err = db_exec(h->db, "BEGIN");
	if (!err) {
		err = read_frames(h, all ? NULL : &m, &frames);
		if (!err)
			err = read_modules(h, &frames, fn, ctx);
		(void)db_exec(h->db, "COMMIT");
	}
	(void)history_failed(h, "be read", err);
	free(m.nodes);
	free(m.frames);
	free(frames.frames);
	return err;
}

/* agent/history/history_nodes.c: packs nodes, finds those that were needed recently, and adds others. */
#include "agent/history/history_nodes.h"

#include "agent/array.h"
#include "agent/history/history_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { KNOWN_MAX = 65536 }; /* of each generation: together about 5 MiB */

/* ---- pages ----------------------------------------------------------------------------------- */

int history_unpack_nodes(int64_t page, const void *blob, size_t size,
			 struct history_node nodes[NODES_IN_PAGE], size_t *n)
{
	struct uw_bytes b = uw_bytes_of(blob, size);

	memset(nodes, 0, NODES_IN_PAGE * sizeof(*nodes));
	for (*n = 0; !uw_bytes_done(&b);) {
		uint64_t frame = uw_bytes_uleb(&b), number = uw_bytes_uleb(&b);
		uint64_t id = (uint64_t)page * NODES_IN_PAGE + *n + 1;

		if (b.err || frame > UINT32_MAX || number > UINT32_MAX || *n == NODES_IN_PAGE ||
		    (frame ? number >= id : number > NODES_IN_PAGE - *n))
			return -EBADMSG;
		nodes[*n].frame = (uint32_t)frame;
		nodes[*n].up = frame ? (uint32_t)number : 0;
		*n += frame ? 1 : (size_t)number;
	}
	return b.err;
}

int history_pack_nodes(const struct history_node *nodes, size_t n, struct history_bytes *out)
{
	int err = 0;

	for (size_t i = 0, end; i < n && !err; i = end) {
		for (end = i; end < n && !nodes[end].frame; end++)
			;
		history_put_uleb(out, nodes[i].frame, &err);
		history_put_uleb(out, end > i ? end - i : nodes[i].up, &err);
		end += end == i;
	}
	return err;
}

/* ---- what is cached -------------------------------------------------------------------------- */

static uint64_t hash_of(int64_t parent, int64_t frame)
{
	return hash_u64(hash_u64(0, (uint64_t)parent), (uint64_t)frame);
}

static struct known_node *find_in(const struct known_nodes *k, uint64_t hash, int64_t parent,
				  int64_t frame)
{
	uint32_t at = UW_HASH_FIND(i, &k->by_stack, hash,
				   k->nodes[i].parent == parent && k->nodes[i].frame == frame &&
					   k->nodes[i].id);

	return at == UW_HASH_NONE ? NULL : &k->nodes[at];
}

static void clear(struct known_nodes *k)
{
	free(k->nodes);
	uw_hash_fini(&k->by_stack);
	*k = (struct known_nodes){ .n = 0 };
}

static int remember(struct history_known *known, uint64_t hash, const struct known_node *node)
{
	struct known_nodes *k = &known->new;
	int err;

	if (k->n == KNOWN_MAX) {
		clear(&known->old);
		known->old = *k;
		*k = (struct known_nodes){ .n = 0 };
	}
	err = array_grow(k->nodes, k->n, k->room);
	if (!err)
		err = uw_hash_add(&k->by_stack, hash, (uint32_t)k->n);
	if (!err)
		k->nodes[k->n++] = *node;
	return err;
}

void history_nodes_deleted(struct history *h, int64_t parent, int64_t frame)
{
	uint64_t hash = hash_of(parent, frame);
	struct known_node *new = find_in(&h->known.new, hash, parent, frame);
	struct known_node *old = find_in(&h->known.old, hash, parent, frame);

	if (new)
		new->id = 0;
	if (old)
		old->id = 0;
}

int history_nodes_count_deletion(struct history *h)
{
	return history_set_number(h, HISTORY_DELETIONS, ++h->known.deletions);
}

void history_nodes_forget(struct history *h)
{
	clear(&h->known.new);
	clear(&h->known.old);
}

/* Drop what is cached if another process deleted nodes. */
static int check_known(struct history *h)
{
	int64_t deletions = 0;
	int err = history_number(h, HISTORY_DELETIONS, &deletions);

	if (!err && deletions != h->known.deletions)
		history_nodes_forget(h);
	if (!err)
		h->known.deletions = deletions;
	return err;
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Read the page of the last node, which is not full yet. *n: how many nodes are there. */
static int read_page(struct history *h, int64_t page, struct history_bytes *out, size_t *n)
{
	struct history_node nodes[NODES_IN_PAGE];
	int err, size;
	sqlite3_stmt *stmt = history_statement(h, READ_NODES, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, page);
	err = db_step(stmt);
	*n = 0;
	if (err == 1) {
		size = sqlite3_column_bytes(stmt, 0);
		err = array_reserve(out->bytes, (size_t)size + 1, out->room);
		if (!err && size)
			memcpy(out->bytes, sqlite3_column_blob(stmt, 0), (size_t)size);
		out->size = err ? 0 : (size_t)size;
		if (!err && history_unpack_nodes(page, out->bytes, out->size, nodes, n))
			*n = 0;
	}
	db_release(stmt);
	return err;
}

/*
 * Find the last node. Should its page be damaged, or the setting be lost, then new nodes begin with a
 * page behind all that there are.
 */
static int find_last(struct history *h, struct history_new_nodes *n)
{
	int64_t last_page = -1;
	size_t there = 0;
	int err = history_value(h, LAST_NODE_PAGE, &last_page);

	if (!err)
		err = history_number(h, HISTORY_LAST_NODE, &n->last);
	if (!err &&
	    (n->last < 0 || n->last > INT64_MAX / 2 || last_page > INT64_MAX / 2 / NODES_IN_PAGE))
		err = -EBADMSG;
	if (err)
		return err;
	if (last_page >= 0 && n->last <= last_page * NODES_IN_PAGE)
		n->last = (last_page + 1) * NODES_IN_PAGE;
	if (n->last % NODES_IN_PAGE)
		err = read_page(h, history_node_page(n->last), &n->page, &there);
	if (!err && there != (size_t)(n->last % NODES_IN_PAGE)) {
		n->page.size = 0;
		n->last += NODES_IN_PAGE - n->last % NODES_IN_PAGE;
	}
	return err;
}

int history_nodes_begin(struct history *h, struct history_new_nodes *n)
{
	int err = check_known(h);

	return err ? err : find_last(h, n);
}

static int write_page(struct history *h, int64_t page, const struct history_bytes *bytes)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, WRITE_NODES, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, page);
	db_bind_bytes(stmt, 2, bytes->bytes, bytes->size);
	err = db_step(stmt);
	db_release(stmt);
	return err < 0 ? err : 0;
}

/* Write the page of the last node. */
static int flush(struct history *h, struct history_new_nodes *n)
{
	int err = history_pack_nodes(n->added, n->n_added, &n->page);

	n->n_added = 0;
	return err ? err : write_page(h, history_node_page(n->last), &n->page);
}

static int add(struct history *h, struct history_new_nodes *n, int64_t parent, int64_t frame)
{
	int err = 0;

	if (n->n_added && n->last % NODES_IN_PAGE == 0)
		err = flush(h, n);
	if (err)
		return err;
	if (n->last % NODES_IN_PAGE == 0)
		n->page.size = 0;
	n->last++;
	n->added[n->n_added++] =
		(struct history_node){ .frame = (uint32_t)frame,
				       .up = parent ? (uint32_t)(n->last - parent) : 0 };
	return 0;
}

int history_nodes_find(struct history *h, struct history_new_nodes *n, int64_t parent,
		       int64_t frame, int64_t *id)
{
	struct known_node new = { .parent = parent, .frame = (uint32_t)frame };
	uint64_t hash = hash_of(parent, frame);
	const struct known_node *known = find_in(&h->known.new, hash, parent, frame);
	bool is_new = known;
	int err = 0;

	if (!known)
		known = find_in(&h->known.old, hash, parent, frame);
	/* A child's id must not be too far above its parent's. */
	if (known && n->last - known->id > INT32_MAX)
		known = NULL;
	if (known)
		new.id = known->id;
	else if (frame > UINT32_MAX || n->last - parent < 0)
		return -E2BIG;
	else
		err = add(h, n, parent, frame);
	if (!err && !known)
		new.id = n->last;
	if (!err && !(known && is_new))
		err = remember(&h->known, hash, &new);
	if (!err)
		*id = new.id;
	return err;
}

int history_nodes_end(struct history *h, struct history_new_nodes *n)
{
	int err = n->n_added ? flush(h, n) : 0;

	return err ? err : history_set_number(h, HISTORY_LAST_NODE, n->last);
}

void history_nodes_fini(struct history_new_nodes *n)
{
	free(n->page.bytes);
}

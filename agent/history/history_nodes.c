/* agent/history/history_nodes.c: reads nodes, many neighbours at a time, and caches them. */
#include "agent/history/history_nodes.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/history/history_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Read the nodes of a chunk again: some may have been added. */
static int read_chunk(struct history *h, size_t chunk)
{
	struct history_nodes *nodes = &h->nodes;
	int64_t first = nodes->numbers[chunk] * NODES_IN_CHUNK;
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_NODES, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt, (const int64_t[]){ first, first + NODES_IN_CHUNK - 1 }, 2);
	while ((err = db_step(stmt)) == 1) {
		int64_t id = sqlite3_column_int64(stmt, 0);
		struct history_node node = { .parent = sqlite3_column_int64(stmt, 1),
					     .frame = sqlite3_column_int64(stmt, 2) };

		if (node.parent >= 0 && node.parent < id)
			nodes->nodes[chunk * NODES_IN_CHUNK + (size_t)(id - first)] = node;
	}
	db_release(stmt);
	return err;
}

static int find_chunk(struct history_nodes *nodes, int64_t number, size_t *out)
{
	uint64_t hash = hash_u64(0, (uint64_t)number);
	uint32_t at;
	int err;

	if (nodes->n_chunks && nodes->numbers[nodes->last] == number) {
		*out = nodes->last;
		return 0;
	}
	at = UW_HASH_FIND(i, &nodes->by_number, hash, nodes->numbers[i] == number);
	if (at == UW_HASH_NONE) {
		err = array_reserve(nodes->nodes, (nodes->n_chunks + 1) * NODES_IN_CHUNK,
				    nodes->room_nodes);
		if (!err)
			err = array_grow(nodes->numbers, nodes->n_chunks, nodes->room_numbers);
		if (!err)
			err = uw_hash_add(&nodes->by_number, hash, (uint32_t)nodes->n_chunks);
		if (err)
			return err;
		at = (uint32_t)nodes->n_chunks++;
		nodes->numbers[at] = number;
		memset(nodes->nodes + (size_t)at * NODES_IN_CHUNK, 0,
		       NODES_IN_CHUNK * sizeof(*nodes->nodes));
	}
	*out = nodes->last = at;
	return 0;
}

/* Drop the chunk that was added last: the database has no nodes there. */
static void drop_last(struct history_nodes *nodes)
{
	size_t at = --nodes->n_chunks;

	uw_hash_remove(&nodes->by_number, hash_u64(0, (uint64_t)nodes->numbers[at]), (uint32_t)at);
	nodes->last = 0;
}

int history_node(struct history *h, int64_t id, size_t *index)
{
	size_t n = h->nodes.n_chunks, chunk, at;
	int err;

	if (id <= 0)
		return -EBADMSG;
	err = find_chunk(&h->nodes, id / NODES_IN_CHUNK, &chunk);
	if (err)
		return err;
	at = chunk * NODES_IN_CHUNK + (size_t)(id % NODES_IN_CHUNK);
	if (!h->nodes.nodes[at].frame) {
		err = read_chunk(h, chunk);
		if (!err && !h->nodes.nodes[at].frame)
			err = -EBADMSG;
		if (err && h->nodes.n_chunks > n)
			drop_last(&h->nodes);
		if (err)
			return err;
	}
	*index = at;
	return 0;
}

void history_nodes_clear(struct history_nodes *nodes)
{
	free(nodes->nodes);
	free(nodes->numbers);
	uw_hash_fini(&nodes->by_number);
	*nodes = (struct history_nodes){ .n_chunks = 0 };
}

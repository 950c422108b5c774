/*
 * agent/history/history_nodes.h: a cache of the nodes of stacks.
 *
 * A node never changes, and the id of a deleted one is not used again: what was read once stays true.
 * That does not hold for what a transaction wrote before it was rolled back, so a writer does not look
 * up nodes here while it adds some.
 */
#ifndef AGENT_HISTORY_HISTORY_NODES_H
#define AGENT_HISTORY_HISTORY_NODES_H

#include "agent/hash.h"

#include <stddef.h>
#include <stdint.h>

struct history;

/*
 * Nodes that are read together. The nodes of one stack are often neighbours; with larger chunks, more is
 * read that nobody needs when an hour is read of a history of months.
 */
enum { NODES_IN_CHUNK = 16 };

struct history_node {
	int64_t parent; /* 0: the frame is outermost; else below this node's id */
	int64_t frame;	/* 0: the node was not there when its chunk was read */
};

struct history_nodes {		    /* all zero: empty */
	struct history_node *nodes; /* chunk by chunk */
	int64_t *numbers;	    /* of each chunk: the id of its first node / NODES_IN_CHUNK */
	size_t n_chunks, room_nodes, room_numbers;
	struct uw_hash_index by_number;
	size_t last; /* chunk that was asked for last */
};

/*
 * Find a node, and read it if necessary together with those beside it. *index is where it is in the cache,
 * until history_nodes_clear. -EBADMSG: there is no such node, or it leads nowhere.
 */
int history_node(struct history *h, int64_t id, size_t *index);
void history_nodes_clear(struct history_nodes *nodes);

#endif

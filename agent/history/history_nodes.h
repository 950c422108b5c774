/*
 * agent/history/history_nodes.h: packs nodes (schema/node_blob.h), finds those that were needed recently, and
 * adds others.
 *
 * Nodes have no index in the database, which would take three times their own space. The process that
 * adds windows caches the nodes that it found or added, up to a limit. A stack that came last before
 * that, or before the process began, gets new nodes: it is stored again, which only takes space.
 */
#ifndef AGENT_HISTORY_HISTORY_NODES_H
#define AGENT_HISTORY_HISTORY_NODES_H

#include "agent/hash.h"
#include "agent/history/samples.h"
#include "schema/node_blob.h"

#include <stddef.h>
#include <stdint.h>

struct history;

struct history_node {
	uint32_t frame; /* 0: there is no such node */
	uint32_t up;	/* how far the parent's id is below; 0: the frame is outermost */
};

/* Return the page of a node. */
static inline int64_t history_node_page(int64_t id)
{
	return (id - 1) / NODES_IN_PAGE;
}

/*
 * Unpack the nodes of a page, and give how many there are, with deleted ones. -EBADMSG: then *n is what
 * is there before the damage. All others are 0.
 */
int history_unpack_nodes(int64_t page, const void *blob, size_t size,
			 struct history_node nodes[NODES_IN_PAGE], size_t *n);
/* Pack n nodes behind what *out has. -ENOMEM. */
int history_pack_nodes(const struct history_node *nodes, size_t n, struct history_bytes *out);

struct known_node {
	int64_t parent, id; /* id 0: it was deleted */
	uint32_t frame;
};

struct known_nodes {
	struct known_node *nodes;
	size_t n, room;
	struct uw_hash_index by_stack;
};

/* Nodes that were found or added recently. When new is full, it becomes old, and old is dropped. */
struct history_known { /* all zero: empty */
	struct known_nodes new, old;
	int64_t deletions; /* of HISTORY_DELETIONS, when these nodes were there */
};

/* Nodes that are being added, in one transaction. */
struct history_new_nodes {	   /* all zero: empty */
	int64_t last;		   /* id of the last node that there is */
	struct history_bytes page; /* of its page */
	struct history_node added[NODES_IN_PAGE];
	size_t n_added; /* of them, not in page yet */
};

/* Begin to add nodes, in a transaction. -EBADMSG: the database is damaged. Call history_nodes_fini. */
int history_nodes_begin(struct history *h, struct history_new_nodes *n);
/* Find a node, or else add it. parent: 0, or what this gave in the same transaction. */
int history_nodes_find(struct history *h, struct history_new_nodes *n, int64_t parent,
		       int64_t frame, int64_t *id);
/* Write what was added. */
int history_nodes_end(struct history *h, struct history_new_nodes *n);
void history_nodes_fini(struct history_new_nodes *n);

/* Take over that a node was deleted, and that a transaction deleted some; the latter is written, too. */
void history_nodes_deleted(struct history *h, int64_t parent, int64_t frame);
int history_nodes_count_deletion(struct history *h);
/* Drop all cached nodes: a transaction was rolled back. */
void history_nodes_forget(struct history *h);

#endif

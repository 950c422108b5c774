/*
 * agent/export/tree.h: who calls a function, or what it calls, as a tree.
 */
#ifndef AGENT_EXPORT_TREE_H
#define AGENT_EXPORT_TREE_H

#include "agent/export/stacks.h"

struct tree_node {
	uint32_t function, module;
	uint32_t parent; /* HASH_NONE: the root */
	uint32_t depth;
	int64_t value;	      /* of the stacks that lead here */
	uint32_t child, next; /* the heaviest child; the next of the same parent; HASH_NONE */
};

struct tree {			 /* all zero: empty */
	struct tree_node *nodes; /* parents before children */
	size_t n_nodes, room_nodes;
	uint32_t first; /* root; HASH_NONE: nothing matched.  Its next ones are roots too */
	int64_t total;	/* of all samples, matching or not */
	struct hash_index by_place;
};

/*
 * Roots are the functions that matches says yes to, below them their callers, or what they call.
 * In a stack that has several, outermost (of callees) or innermost (of callers) counts, so that
 * recursion counts once.  Not deeper than depth_max.  -ENOMEM.
 */
int tree_make(const struct stacks *stacks, size_t type, bool callers, uint32_t depth_max,
	      bool (*matches)(void *ctx, uint32_t function), void *ctx, struct tree *out);
void tree_fini(struct tree *tree);

#endif

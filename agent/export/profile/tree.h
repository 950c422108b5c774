/* agent/export/profile/tree.h: the callers of a function, or the functions that it calls, as a tree. */
#ifndef AGENT_EXPORT_PROFILE_TREE_H
#define AGENT_EXPORT_PROFILE_TREE_H

#include "agent/export/profile/stacks.h"

struct tree_node {
	uint32_t function, module;
	uint32_t parent; /* UW_HASH_NONE: this is a root */
	uint32_t depth;
	int64_t value;	      /* sum over the stacks that lead here */
	uint32_t child, next; /* the heaviest child; the next sibling; UW_HASH_NONE: none */
};

struct tree {			 /* all zero: empty */
	struct tree_node *nodes; /* parents before children */
	size_t n_nodes, room_nodes;
	uint32_t
		first; /* first root, whose siblings are roots, too; UW_HASH_NONE: nothing matched */
	int64_t total; /* sum over all samples, matching or not */
	struct uw_hash_index by_place;
};

/*
 * Make a tree whose roots are the functions for which matches returns true. Below them are their
 * callers, or the functions that they call, down to depth_max. If a stack has several matching
 * functions, the innermost one (for callers) or the outermost one (for callees) counts, so that
 * recursion counts once. -ENOMEM.
 */
int tree_make(const struct stacks *stacks, size_t type, bool callers, uint32_t depth_max,
	      bool (*matches)(void *ctx, uint32_t function), void *ctx, struct tree *out);
void tree_fini(struct tree *tree);

#endif

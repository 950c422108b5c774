/*
 * agent/export/flame.h: the stacks of a profile as one tree, and that tree as a page for browsers.
 *
 * A node is a function of a module behind one way of calls from the root.  Below the root stand,
 * where asked for, the values of a label ("comm"), below those the reasons for which stacks ended
 * before their root, so that what is cut is not taken for whole: "truncated".  Those nodes are no
 * functions and have kinds of their own.
 */
#ifndef AGENT_EXPORT_FLAME_H
#define AGENT_EXPORT_FLAME_H

#include "agent/export/stacks.h"

#include <stdio.h>

enum {
	FLAME_NODES = 4 << 20, /* more than that no browser opens in a time that a person waits */
	FLAME_DEPTH = 2048,    /* frames of a stack, from its root; the rest counts as FLAME_DEEP */
	FLAME_TYPES = 6,       /* sample types that one page can show */
};

/* The name of the node for what lies beyond FLAME_DEPTH, as if it were a stop. */
#define FLAME_DEEP "too_deep"

enum flame_kind { /* as the page knows them; FLAME_INLINED may stand beside */
		  FLAME_USER,
		  FLAME_KERNEL,
		  FLAME_GROUP, /* a label's value */
		  FLAME_STOP,  /* the reason why the stacks beyond it are not whole */
		  FLAME_ROOT,
};
#define FLAME_INLINED 8

struct flame_frame {			  /* sorted as they are to stand side by side */
	const char *name, *module, *file; /* the profile's */
	int64_t line;			  /* where the function begins; 0: not known */
	unsigned int kind;
};

struct flame_node {	 /* in preorder: a node, then all beyond its first child, its second, … */
	uint32_t parent; /* of the root: itself */
	uint32_t frame;
	uint32_t depth;
	size_t values; /* index in flame.values of its n_types values */
};

struct flame_value {	   /* of one node and one sample type */
	int64_t now, base; /* of samples that end in this very node */
	int64_t guessed;   /* of all samples through the node: those in which a guess found it */
};

struct flame {
	const struct stacks *stacks;
	size_t types
		[FLAME_TYPES]; /* indices in stacks->types; the page shows the first one first */
	size_t n_types;
	struct flame_frame *frames;
	size_t n_frames;
	struct flame_node *nodes; /* nodes[0] is the root */
	size_t n_nodes;
	struct flame_value *values; /* nodes[i].values leads to those of a node */
	bool diff;		    /* there is a base */
	int64_t n_samples;	    /* by the type "samples"; -1: there is none */
	size_t n_negative; /* samples whose value of the first type is below zero: it counts as 0 */
};

/*
 * Merge all samples into a tree with the values of up to FLAME_TYPES sample types, of which type is
 * the first; by: NULL, or the key of the label whose values stand below the root.  stacks must
 * outlive the tree.  -E2BIG: more than FLAME_NODES nodes.
 */
int flame_new(const struct stacks *stacks, size_t type, const char *by, struct flame **out);
void flame_free(struct flame *flame); /* NULL is fine */

struct flame_page {
	const char *title;   /* clean or not; shown as text */
	const char *against; /* what the base is called; NULL: none */
};

/*
 * The page: HTML that needs nothing but itself and runs under the strict policy that it states.
 * Names from the profile are data in it, never markup.  0, or what the stream failed with.
 */
int flame_write(const struct flame *flame, const struct flame_page *page, FILE *out);

#endif

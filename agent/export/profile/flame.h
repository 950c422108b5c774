/*
 * agent/export/profile/flame.h: merges the stacks of a profile into one tree, and writes that tree as a
 * page for browsers.
 *
 * A node is a function of a module, reached from the root by one path of calls. Directly below the
 * root, if asked for, there are the values of a label ("comm"). Below these are the reasons why
 * stacks ended before their root, such as "truncated", so that an incomplete stack is not mistaken
 * for a complete one. These nodes are not functions and have kinds of their own.
 */
#ifndef AGENT_EXPORT_PROFILE_FLAME_H
#define AGENT_EXPORT_PROFILE_FLAME_H

#include "agent/export/profile/stacks.h"

#include <stdio.h>

enum {
	FLAME_NODES = 4 << 20, /* with more nodes a browser takes too long to open the page */
	FLAME_DEPTH = 2048, /* frames of a stack, from its root; deeper frames become FLAME_DEEP */
	FLAME_TYPES = 8,    /* sample types in one page; --off-cpu makes seven */
};

/* The name of the node for frames beyond FLAME_DEPTH; its kind is that of a stop reason. */
#define FLAME_DEEP "too_deep"

enum flame_kind { /* as the page's script knows them; FLAME_INLINED is a flag */
		  FLAME_USER,
		  FLAME_KERNEL,
		  FLAME_GROUP, /* the value of a label */
		  FLAME_STOP,  /* the reason why the stacks beyond it are incomplete */
		  FLAME_ROOT,
};
#define FLAME_INLINED 8
#define FLAME_INNER   16 /* times the lists of inner.h that have the function */

struct flame_frame {			  /* sorted in the order in which siblings are shown */
	const char *name, *module, *file; /* the profile's or the tree's own */
	int64_t line;			  /* first line of the function; 0: not known */
	unsigned int kind;
};

struct flame_node {	 /* in preorder: a node, then the subtrees of its children */
	uint32_t parent; /* of the root: 0 */
	uint32_t frame;
	uint32_t depth;
	uint32_t values; /* index of its n_types values in flame.now, base and guessed */
};

struct flame {
	const struct stacks *stacks;
	size_t types[FLAME_TYPES]; /* indices in stacks->types; the page shows types[0] first */
	size_t n_types;
	struct flame_frame *frames;
	size_t n_frames;
	struct flame_node *nodes; /* nodes[0] is the root */
	size_t n_nodes;
	/* See flame_node.values. base: NULL without diff; guessed: NULL if none is. */
	int64_t *now, *base; /* of samples whose innermost frame is the node */
	int64_t *guessed;    /* of samples through the node for which the frame was guessed */
	bool diff;	     /* the profile has a base to compare with */
	size_t n_negative;   /* samples with a negative value of the first type, which count as 0 */
};

struct flame_value { /* of one node and one sample type */
	int64_t now, base, guessed;
};

/* Return a value by its index in flame.now, base and guessed: of all nodes, in any order, each with its n_types values. */
static inline struct flame_value flame_value_at(const struct flame *f, size_t at)
{
	return (struct flame_value){ f->now[at], f->base ? f->base[at] : 0,
				     f->guessed ? f->guessed[at] : 0 };
}

static inline struct flame_value flame_value(const struct flame *f, size_t node, size_t type)
{
	return flame_value_at(f, f->nodes[node].values + type);
}

/*
 * Merge all samples into a tree with the values of up to FLAME_TYPES sample types, of which `type`
 * is the first. by is NULL, or the key of the label whose values are the nodes below the root.
 * stacks must outlive the tree. -E2BIG: more than FLAME_NODES nodes. -ENOMEM.
 */
int flame_new(const struct stacks *stacks, size_t type, const char *by, struct flame **out);
void flame_free(struct flame *flame); /* NULL is fine */

struct flame_page {
	const char *title;   /* sanitized and escaped here */
	const char *against; /* the base's name; NULL: none */
};

/*
 * Write the tree as an HTML page that needs no other file and runs under the strict content
 * security policy that it states. Names from the profile are data in it, never markup. Return 0, or
 * the stream's error.
 */
int flame_write(const struct flame *flame, const struct flame_page *page, FILE *out);

#endif

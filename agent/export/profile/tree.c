/* agent/export/profile/tree.c: builds trees of callers and callees. */
#include "agent/export/profile/tree.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_node(const struct tree_node *node, uint32_t parent, const struct stacks_frame *frame)
{
	return node->parent == parent && node->function == frame->function &&
	       node->module == frame->module;
}

/*
 * Return the index of parent's child with the function and module of frame, which is added if it is
 * new. UW_HASH_NONE: out of memory.
 */
static uint32_t node_id(struct tree *t, uint32_t parent, const struct stacks_frame *frame)
{
	uint64_t hash = hash_u64(hash_u64(parent, frame->function), frame->module);
	uint32_t id = UW_HASH_FIND(i, &t->by_place, hash, is_node(&t->nodes[i], parent, frame));

	if (id != UW_HASH_NONE)
		return id;
	if (t->n_nodes >= UW_HASH_NONE || array_grow(t->nodes, t->n_nodes, t->room_nodes))
		return UW_HASH_NONE;
	if (uw_hash_add(&t->by_place, hash, (uint32_t)t->n_nodes))
		return UW_HASH_NONE;
	t->nodes[t->n_nodes] =
		(struct tree_node){ .function = frame->function,
				    .module = frame->module,
				    .parent = parent,
				    .depth =
					    parent == UW_HASH_NONE ? 0 : t->nodes[parent].depth + 1,
				    .child = UW_HASH_NONE,
				    .next = UW_HASH_NONE };
	return (uint32_t)t->n_nodes++;
}

/* Add the frames of a stack from index `at` outwards (callers) or inwards. -ENOMEM. */
static int add_stack(struct tree *t, const struct stacks_frames *stack, size_t at, bool callers,
		     uint32_t depth_max, int64_t value)
{
	uint32_t node = UW_HASH_NONE;

	for (uint32_t depth = 0; depth <= depth_max; depth++) {
		node = node_id(t, node, &stack->frames[at]);
		if (node == UW_HASH_NONE)
			return -ENOMEM;
		t->nodes[node].value = stacks_sum(t->nodes[node].value, value);
		if (callers ? at + 1 >= stack->n : !at)
			break;
		at = callers ? at + 1 : at - 1;
	}
	return 0;
}

static uint64_t magnitude(int64_t value)
{
	return value < 0 ? -(uint64_t)value : (uint64_t)value;
}

struct order {
	const struct tree *t;
	const struct stacks *s;
};

/* Compare nodes, the lightest first: link_nodes() then puts each one before its siblings. */
static int lightest_first(const void *a, const void *b, void *ctx)
{
	const struct order *order = ctx;
	const struct tree_node *x = &order->t->nodes[*(const uint32_t *)a];
	const struct tree_node *y = &order->t->nodes[*(const uint32_t *)b];
	uint64_t left = magnitude(x->value), right = magnitude(y->value);
	int by_name;

	if (left != right)
		return left < right ? -1 : 1;
	by_name = strcmp(order->s->functions[y->function].name,
			 order->s->functions[x->function].name);
	return by_name ? by_name : *(const uint32_t *)b < *(const uint32_t *)a ? -1 : 1;
}

/* Link each node with its siblings, the heaviest first. */
static int link_nodes(struct tree *t, const struct stacks *s)
{
	struct order order = { t, s };
	uint32_t *ids = calloc(t->n_nodes + 1, sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	for (size_t i = 0; i < t->n_nodes; i++)
		ids[i] = (uint32_t)i;
	if (t->n_nodes)
		qsort_r(ids, t->n_nodes, sizeof(*ids), lightest_first, &order);
	for (size_t i = 0; i < t->n_nodes; i++) {
		struct tree_node *node = &t->nodes[ids[i]];
		uint32_t *first =
			node->parent == UW_HASH_NONE ? &t->first : &t->nodes[node->parent].child;

		node->next = *first;
		*first = ids[i];
	}
	free(ids);
	return 0;
}

int tree_make(const struct stacks *s, size_t type, bool callers, uint32_t depth_max,
	      bool (*matches)(void *ctx, uint32_t function), void *ctx, struct tree *out)
{
	struct stacks_frames stack = { 0 };
	struct tree t = { .first = UW_HASH_NONE };
	int err = 0;

	for (size_t i = 0; !err && i < s->n_samples; i++) {
		int64_t value = stacks_value(s, i, type);
		size_t at;

		t.total = stacks_sum(t.total, value);
		err = stacks_unfold(s, &s->samples[i], &stack);
		if (err)
			break;
		for (size_t j = 0; j < stack.n; j++) {
			at = callers ? j : stack.n - 1 - j;
			if (!matches(ctx, stack.frames[at].function))
				continue;
			err = add_stack(&t, &stack, at, callers, depth_max, value);
			break;
		}
	}
	if (!err)
		err = link_nodes(&t, s);
	free(stack.frames);
	if (err)
		tree_fini(&t);
	else
		*out = t;
	return err;
}

void tree_fini(struct tree *t)
{
	free(t->nodes);
	uw_hash_fini(&t->by_place);
	*t = (struct tree){ .first = UW_HASH_NONE };
}

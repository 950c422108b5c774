/*
 * agent/history/history_cut.c: moves what is too small to be seen to its callers, so that a long time has few stacks,
 * and few names are looked up.
 */
#include "agent/history/history_reading.h"

#include "agent/time_heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The part that a node has, of all: a number below WHOLE times the number of sample types. */
#define WHOLE ((double)((uint64_t)1 << 40))

/* Nodes are told by their index in the cache + 1; 0: there is none. */
struct cut_node {
	uint64_t part;	 /* of the node and all that it calls */
	uint32_t parent; /* then: the innermost one of itself and its callers that stays */
	bool used;	 /* by a sum, or as a caller of one that is */
};

struct cutting {
	struct cut_node *nodes; /* by index in the cache of nodes */
	size_t n;
	uint32_t *of; /* by sum: its node */
};

/* Return the largest part of its type's sum that a sum has. A negative value counts as 0. */
static uint64_t part_of(const struct reading *r, size_t sum, const double *whole)
{
	double most = 0;

	for (size_t t = 0; t < r->s->n_types; t++) {
		const int64_t value = history_sum_at(r, sum)->values[t];
		const double part = value > 0 ? (double)value / whole[t] : 0;

		most = part > most ? part : most;
	}
	return (uint64_t)(most * WHOLE);
}

/* Find a node in the cache, and give it a place beside it. Most of these places may never be touched. */
static int find_node(struct reading *r, struct cutting *c, int64_t id, uint32_t *out)
{
	size_t index, n;
	int err = history_node(r->h, id, &index);

	if (!err && index >= UINT32_MAX)
		err = -EFBIG;
	if (!err && index >= c->n) {
		const size_t cached = r->h->nodes.n_chunks * NODES_IN_PAGE;
		struct cut_node *nodes;

		n = cached > 2 * c->n ? cached : 2 * c->n;
		nodes = calloc(n, sizeof(*nodes));
		if (!nodes)
			return -ENOMEM;
		if (c->n)
			memcpy(nodes, c->nodes, c->n * sizeof(*nodes));
		free(c->nodes);
		c->nodes = nodes;
		c->n = n;
	}
	if (!err)
		*out = (uint32_t)index + 1;
	return err;
}

static void fetch_node(struct reading *r, const struct cutting *c, int64_t id)
{
	size_t index;

	if (history_node_fetch(r->h, id, &index) && index < c->n)
		__builtin_prefetch(&c->nodes[index]);
}

/* Give each node its own part. */
static int take_parts(struct reading *r, struct cutting *c)
{
	double *whole = calloc(r->s->n_types + 1, sizeof(*whole));
	int err = 0;

	c->of = calloc(r->n_sums + 1, sizeof(*c->of));
	if (!whole || !c->of)
		err = -ENOMEM;
	for (size_t i = 0; i < r->n_sums && !err; i++)
		for (size_t t = 0; t < r->s->n_types; t++) {
			const int64_t value = history_sum_at(r, i)->values[t];

			whole[t] += value > 0 ? (double)value : 0;
		}
	for (size_t i = 0; i < r->n_sums && !err; i++) {
		struct cut_node *node;

		if (i + HISTORY_NODES_AHEAD < r->n_sums)
			fetch_node(r, c,
				   (int64_t)history_sum_at(r, i + HISTORY_NODES_AHEAD)->key.node);
		if (!history_sum_at(r, i)->key.node)
			continue;
		err = find_node(r, c, (int64_t)history_sum_at(r, i)->key.node, &c->of[i]);
		if (err)
			break;
		node = &c->nodes[c->of[i] - 1];
		node->part += part_of(r, i, whole);
		node->used = true;
	}
	free(whole);
	return err;
}

/* Find the caller of a node, and add the node's part to it. */
static int add_to_caller(struct reading *r, struct cutting *c, size_t index)
{
	const struct history_node node = history_nodes(r->h)[index];
	uint32_t parent = 0;
	int err = node.frame ? 0 : -EBADMSG;

	if (!err && node.up)
		err = find_node(r, c, history_node_id(r->h, index) - node.up, &parent);
	if (!err && parent) {
		c->nodes[parent - 1].part += c->nodes[index].part;
		c->nodes[parent - 1].used = true;
		c->nodes[index].parent = parent;
	}
	return err;
}

static void fetch_caller(struct reading *r, const struct cutting *c, size_t index)
{
	const uint32_t up = history_nodes(r->h)[index].up;

	if (index < c->n && c->nodes[index].used && up)
		fetch_node(r, c, history_node_id(r->h, index) - up);
}

/* Find the innermost one of a node and its callers that stays. */
static void find_lasting(const struct cutting *c, size_t index, double least)
{
	struct cut_node *node = &c->nodes[index];

	if ((double)node->part >= least)
		node->parent = (uint32_t)index + 1;
	else if (node->parent)
		node->parent = c->nodes[node->parent - 1].parent;
}

/* A page of the cache, in a heap: that with the last nodes comes first. */
struct page {
	uint64_t before; /* how many pages there may be behind it */
	uint64_t chunk;
};

/*
 * Add the parts of all nodes to their callers', the last node first: a caller's id is lower. A page that is read on the
 * way has callers, and so comes later. *order: the pages as they came; the caller frees it.
 */
static int add_up(struct reading *r, struct cutting *c, size_t **order, size_t *n)
{
	const struct history_rows *rows = &r->h->nodes;
	struct time_heap heap = { .n = 0 };
	struct page page;
	size_t n_pushed = 0, room = 0;
	int err = 0;

	do {
		for (; n_pushed < rows->n_chunks && !err; n_pushed++) {
			page = (struct page){ UINT64_MAX - (uint64_t)rows->numbers[n_pushed],
					      n_pushed };
			err = time_heap_push(&heap, &page, sizeof(page));
		}
		if (!err)
			err = array_grow(*order, *n, room);
		if (err || !heap.n)
			break;
		time_heap_pop(&heap, &page, sizeof(page));
		(*order)[*n] = page.chunk * NODES_IN_PAGE;
		for (size_t i = NODES_IN_PAGE; i-- > 0 && !err;) {
			const size_t index = (*order)[*n] + i;

			if (i >= HISTORY_NODES_AHEAD)
				fetch_caller(r, c, index - HISTORY_NODES_AHEAD);
			if (index < c->n && c->nodes[index].used)
				err = add_to_caller(r, c, index);
		}
		(*n)++;
	} while (!err);
	free(heap.items);
	return err;
}

/* Find what stays, the callers first. */
static int go_through(struct reading *r, struct cutting *c)
{
	const double least = WHOLE / r->q->parts;
	size_t *order = NULL, n = 0;
	int err = add_up(r, c, &order, &n);

	while (n-- > 0 && !err)
		for (size_t index = order[n]; index < order[n] + NODES_IN_PAGE; index++)
			if (index < c->n && c->nodes[index].used)
				find_lasting(c, index, least);
	free(order);
	return err;
}

/* Move the sums of all nodes that do not stay. Return whether there are any. */
static bool move_sums(struct reading *r, const struct cutting *c)
{
	bool any = false;

	for (size_t i = 0; i < r->n_sums; i++) {
		const uint32_t last = c->of[i] ? c->nodes[c->of[i] - 1].parent : 0;

		if (last == c->of[i])
			continue;
		history_sum_at(r, i)->key.node =
			last ? (uint64_t)history_node_id(r->h, last - 1) & INT64_MAX : 0;
		history_sum_at(r, i)->key.cut = any = true;
	}
	return any;
}

static int make_location(struct reading *r)
{
	const struct stacks_function f = { .name = stacks_text(r->s, HISTORY_CUT), .placed = true };
	struct stacks_line line = { .function = f.name ? stacks_function(r->s, &f) : UW_HASH_NONE };

	r->cut_location =
		line.function == UW_HASH_NONE
			? UW_HASH_NONE
			: stacks_location(r->s, &(struct stacks_location){ .n_lines = 1 }, &line);
	return r->cut_location == UW_HASH_NONE ? -ENOMEM : 0;
}

int history_cut(struct reading *r)
{
	struct cutting c = { .n = 0 };
	int err = take_parts(r, &c);

	if (!err)
		err = go_through(r, &c);
	if (!err && move_sums(r, &c))
		err = make_location(r);
	if (!err)
		err = history_sums_merge(r);
	free(c.nodes);
	free(c.of);
	return err;
}

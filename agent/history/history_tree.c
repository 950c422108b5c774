/* agent/history/history_tree.c: makes a tree of the stacks of sums, and adds the sums to the profile in its order. */
#include "agent/history/history_reading.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int add_sample(struct reading *r, size_t index, const uint32_t *path, uint32_t n)
{
	const struct sum *sum = &r->sums[index];
	struct stacks_sample to = { .base = r->q->base, .n_locations = n + sum->cut };
	int err = array_reserve(r->ids, to.n_locations, r->room_ids);

	if (!err && sum->cut)
		r->ids[0] = r->cut_location;
	for (uint32_t i = 0; !err && i < n; i++)
		r->ids[sum->cut + i] = path[n - 1 - i];
	n = to.n_locations;
	if (!err)
		err = history_put_labels(r, sum, &n);
	to.n_labels = n - to.n_locations;
	return err ? err
		   : stacks_add(r->s, &to, r->ids, to.n_labels ? r->ids + to.n_locations : NULL,
				r->s->n_types ? r->values + index * r->s->n_types : NULL);
}

void history_tree_free(struct history_tree *t)
{
	free(t->next);
}

/* Frames with ids below this one are loaded in their order, with a set of 4 MiB at most. */
enum { ORDERED_FRAMES = 33554432 };

/* Mark the frame of a node, and those of its callers up to one that is marked. */
static int mark_frames(struct reading *r, size_t index, uint64_t **set, size_t *n_set)
{
	int err = 0;

	while (!err && !r->uses[index].found) {
		uint32_t frame = history_nodes(r->h)[index].frame;
		size_t before = *n_set, word = frame / 64;

		if (frame < ORDERED_FRAMES && word >= *n_set) {
			err = array_reserve(*set, word + 1, *n_set);
			if (err)
				break;
			memset(*set + before, 0, (*n_set - before) * sizeof(**set));
		}
		if (frame < ORDERED_FRAMES)
			(*set)[word] |= UINT64_C(1) << frame % 64;
		err = history_find_parent(r, index);
		if (err || !r->uses[index].parent)
			break;
		index = r->uses[index].parent - 1;
	}
	return err;
}

/* The nodes of the cache in the order of their ids, page by page. */
struct pages {
	size_t *first;
	size_t n;
};

/*
 * Load the frames of all sums in the order of their ids. Frames that were stored together are together in
 * memory, and so are their functions; stack by stack, each is somewhere else.
 */
static int load_frames(struct reading *r, const struct pages *pages)
{
	uint64_t *set = NULL;
	size_t n_set = 0;
	int err = 0;

	for (size_t i = 0; !err && i < pages->n * NODES_IN_PAGE; i++) {
		const size_t index = pages->first[i / NODES_IN_PAGE] + i % NODES_IN_PAGE;

		if (index < r->n_uses && r->uses[index].sum)
			err = mark_frames(r, index, &set, &n_set);
	}
	for (size_t i = 0; !err && i < n_set; i++)
		for (uint64_t left = set[i]; !err && left; left &= left - 1) {
			uint32_t ignored;

			err = history_load_frame(
				r, (int64_t)(i * 64 + (size_t)__builtin_ctzll(left)), &ignored);
		}
	free(set);
	return err;
}

/* Make a node and its callers, up to one that is there, children of their callers. */
static int add_branch(struct reading *r, struct history_tree *t, size_t index)
{
	int err = 0;

	while (!r->uses[index].beside) {
		uint32_t parent = r->uses[index].parent;
		uint32_t *first = parent ? &r->uses[parent - 1].child : &t->outermost;

		if (!r->uses[index].location)
			err = history_load_node(r, index);
		if (err)
			return err;
		r->uses[index].beside = *first ? *first : (uint32_t)LAST_CHILD;
		*first = (uint32_t)index + 1;
		if (!parent)
			break;
		index = parent - 1;
	}
	return 0;
}

/* Make the tree, from the last node to the first: a child is put before those that there are. */
static int grow_tree(struct reading *r, struct history_tree *t, const struct pages *pages)
{
	int err = 0;

	for (size_t i = pages->n * NODES_IN_PAGE; !err && i-- > 0;) {
		const size_t index = pages->first[i / NODES_IN_PAGE] + i % NODES_IN_PAGE;

		if (index < r->n_uses && r->uses[index].sum)
			err = add_branch(r, t, index);
	}
	return err;
}

/* Let each node have its sums, in their order. */
static int take_sums(struct reading *r, struct history_tree *t)
{
	int err = 0;

	if (r->n_sums >= UINT32_MAX)
		return -EFBIG;
	t->next = calloc(r->n_sums + 1, sizeof(*t->next));
	if (!t->next)
		return -ENOMEM;
	for (size_t i = r->n_sums; !err && i-- > 0;) {
		uint32_t *first = &t->alone;
		size_t index;

		if (r->sums[i].node) {
			err = history_find_node(r, (int64_t)r->sums[i].node, &index);
			if (err)
				break;
			first = &r->uses[index].sum;
		}
		t->next[i] = *first;
		*first = (uint32_t)i + 1;
	}
	return err;
}

int history_tree_make(struct reading *r, struct history_tree *t)
{
	struct pages pages = { .n = 0 };
	int err = take_sums(r, t);

	if (!err)
		err = history_nodes_in_order(r->h, &pages.first, &pages.n);
	if (!err)
		err = load_frames(r, &pages);
	if (!err)
		err = grow_tree(r, t, &pages);
	free(pages.first);
	return err;
}

/* Add a sum, and those after it of the same node, whose stack has these n locations, outermost first. */
static int add_sums(struct reading *r, const struct history_tree *t, uint32_t sum,
		    const uint32_t *path, uint32_t n)
{
	int err = 0;

	for (; sum && !err; sum = t->next[sum - 1])
		err = add_sample(r, sum - 1, path, n);
	return err;
}

int history_tree_add(struct reading *r, const struct history_tree *t)
{
	uint32_t *path = NULL, n = 0, at = t->outermost;
	size_t room = 0;
	int err = add_sums(r, t, t->alone, NULL, 0);

	while (at && !err) {
		const struct node_use *node = &r->uses[at - 1];

		err = array_grow(path, n, room);
		if (err)
			break;
		path[n++] = node->location - 1;
		err = add_sums(r, t, node->sum, path, n);
		if (node->child) {
			at = node->child;
			continue;
		}
		for (n--; at && r->uses[at - 1].beside == LAST_CHILD; n -= at != 0)
			at = r->uses[at - 1].parent;
		at = at ? r->uses[at - 1].beside : 0;
	}
	free(path);
	return err;
}

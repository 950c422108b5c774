/* agent/history/history_tree.c: makes a tree of the stacks of sums, and adds the sums to the profile in its order. */
#include "agent/history/history_reading.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int history_tree_add_sample(struct reading *r, size_t index, const uint32_t *path, uint32_t n)
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
	free(t->places);
	free(t->first_place);
	free(t->child);
	free(t->beside);
}

/* Frames with ids below this one are loaded in their order, with a set of 4 MiB at most. */
enum { ORDERED_FRAMES = 33554432 };

/* Mark the frame of a node, and those of its callers up to one that is marked. */
static int mark_frames(struct reading *r, int64_t row, uint64_t **set, size_t *n_set)
{
	size_t index;
	int err = history_find_node(r, row, &index);

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

/*
 * Load the frames of all sums in the order of their ids. Frames that were stored together are together in
 * memory, and so are their functions; stack by stack, each is somewhere else.
 */
static int load_frames(struct reading *r, const struct place *places)
{
	uint64_t *set = NULL;
	size_t n_set = 0;
	int err = 0;

	for (size_t i = 0; !err && i < r->n_sums; i++)
		if (places[i].node)
			err = mark_frames(r, (int64_t)places[i].node, &set, &n_set);
	for (size_t i = 0; !err && i < n_set; i++)
		for (uint64_t left = set[i]; !err && left; left &= left - 1) {
			uint32_t ignored;

			err = history_load_frame(
				r, (int64_t)(i * 64 + (size_t)__builtin_ctzll(left)), &ignored);
		}
	free(set);
	return err;
}

static int compare_places(const void *a, const void *b) /* for qsort */
{
	const struct place *x = a, *y = b;

	return (x->node > y->node) - (x->node < y->node);
}

/* Make a node and its callers, up to one that is there, children of their callers. */
static int add_branch(struct reading *r, struct history_tree *t, size_t index)
{
	int err = 0;

	while (!t->beside[index]) {
		uint32_t parent = r->uses[index].parent;
		uint32_t *first = parent ? &t->child[parent - 1] : &t->outermost;

		if (!r->uses[index].location)
			err = history_load_node(r, index);
		if (err)
			return err;
		t->beside[index] = *first ? *first : (uint32_t)LAST_CHILD;
		*first = (uint32_t)index + 1;
		if (!parent)
			break;
		index = parent - 1;
	}
	return 0;
}

/* Make the tree. Its places are there and sorted, and what is known of nodes is in r->uses. */
static int grow_tree(struct reading *r, struct history_tree *t)
{
	int err = 0;

	/* Most of these arrays is never touched: not each node of the cache is one of these. */
	t->n = r->n_uses;
	t->first_place = calloc(t->n + 1, sizeof(*t->first_place));
	t->child = calloc(t->n + 1, sizeof(*t->child));
	t->beside = calloc(t->n + 1, sizeof(*t->beside));
	if (!t->first_place || !t->child || !t->beside || r->n_sums >= UINT32_MAX)
		return -ENOMEM;
	for (size_t i = r->n_sums; !err && i-- > 0 && t->places[i].node;) {
		size_t index;

		err = history_find_node(r, (int64_t)t->places[i].node, &index);
		if (err)
			return err;
		t->first_place[index] = (uint32_t)i + 1;
		err = add_branch(r, t, index);
	}
	return err;
}

/* Add the sums of the node whose stack has these n locations, outermost first. */
static int add_sums_of(struct reading *r, const struct history_tree *t, size_t index,
		       const uint32_t *path, uint32_t n)
{
	uint32_t first = t->first_place[index];
	int err = 0;

	for (size_t i = first - 1;
	     first && !err && i < r->n_sums && t->places[i].node == t->places[first - 1].node;
	     i++) {
		err = history_tree_add_sample(r, t->places[i].sum, path, n);
	}
	return err;
}

/* Add the sums of all nodes, callers before what they call: so each has the most in common with the one before. */
int history_tree_add(struct reading *r, const struct history_tree *t)
{
	uint32_t *path = NULL, n = 0, at = t->outermost;
	size_t room = 0;
	int err = 0;

	while (at && !err) {
		err = array_grow(path, n, room);
		if (err)
			break;
		path[n++] = r->uses[at - 1].location - 1;
		err = add_sums_of(r, t, at - 1, path, n);
		if (t->child[at - 1]) {
			at = t->child[at - 1];
			continue;
		}
		for (n--; at && t->beside[at - 1] == LAST_CHILD; n -= at != 0)
			at = r->uses[at - 1].parent;
		at = at ? t->beside[at - 1] : 0;
	}
	free(path);
	return err;
}

/* Sort the sums by their nodes, and make their tree. Nothing is added to the profile but frames. */
int history_tree_make(struct reading *r, struct history_tree *t)
{
	int err;

	t->places = calloc(r->n_sums + 1, sizeof(*t->places));
	if (!t->places)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_sums; i++)
		t->places[i] = (struct place){ .node = r->sums[i].node, .sum = i };
	qsort(t->places, r->n_sums, sizeof(*t->places), compare_places);
	err = load_frames(r, t->places);
	return err ? err : grow_tree(r, t);
}

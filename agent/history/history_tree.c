/* agent/history/history_tree.c: makes a tree of the stacks of sums, and adds the sums to the profile in its order. */
#include "agent/history/history_reading.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void history_tree_free(struct history_tree *t)
{
	free(t->next);
}

/* Frames with ids below this one are loaded in their order, with a set of 4 MiB at most. */
enum { ORDERED_FRAMES = 33554432 };

struct frame_set {
	uint64_t *words;
	size_t n;
};

static int add_frame(struct reading *r, struct frame_set *set, uint32_t frame)
{
	const size_t before = set->n, word = frame / 64;
	uint32_t ignored;
	int err = 0;

	if (frame >= ORDERED_FRAMES)
		return history_load_frame(r, frame, &ignored);
	if (word >= set->n) {
		err = array_reserve(set->words, word + 1, set->n);
		if (!err)
			memset(set->words + before, 0, (set->n - before) * sizeof(*set->words));
	}
	if (!err)
		set->words[word] |= UINT64_C(1) << frame % 64;
	return err;
}

/*
 * Load the frames of all nodes in the order of their ids. Frames that were stored together are together in
 * memory, and so are their functions; stack by stack, each is somewhere else.
 */
static int load_frames(struct reading *r, const struct frame_set *set)
{
	int err = 0;

	for (size_t i = 0; !err && i < set->n; i++)
		for (uint64_t left = set->words[i]; !err && left; left &= left - 1) {
			uint32_t ignored;

			err = history_load_frame(
				r, (int64_t)(i * 64 + (size_t)__builtin_ctzll(left)), &ignored);
		}
	return err;
}

/* Make a node and its callers, up to one that is there, children of their callers. */
static int add_branch(struct reading *r, struct history_tree *t, size_t index,
		      struct frame_set *set)
{
	int err = 0;

	while (!err && !r->uses[index].beside) {
		uint32_t parent, *first;

		err = add_frame(r, set, history_nodes(r->h)[index].frame);
		if (!err)
			err = history_find_parent(r, index, &parent);
		if (err)
			break;
		first = parent ? &r->uses[parent - 1].child : &t->outermost;
		r->uses[index].beside = *first ? *first : (uint32_t)LAST_CHILD;
		*first = (uint32_t)index + 1;
		if (!parent)
			break;
		index = parent - 1;
	}
	return err;
}

/* The nodes of the cache in the order of their ids, page by page. */
struct pages {
	size_t *first;
	size_t n;
};

/* Make the tree, from the last node to the first: a child is put before those that there are. */
static int grow_tree(struct reading *r, struct history_tree *t, const struct pages *pages,
		     struct frame_set *set)
{
	int err = 0;

	for (size_t i = pages->n * NODES_IN_PAGE; !err && i-- > 0;) {
		const size_t index = pages->first[i / NODES_IN_PAGE] + i % NODES_IN_PAGE;

		if (index < r->n_uses && r->uses[index].sum)
			err = add_branch(r, t, index, set);
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

		/* Each node lies somewhere else in memory: let the CPU fetch some at the same time. */
		if (i >= HISTORY_NODES_AHEAD &&
		    history_node_fetch(
			    r->h, (int64_t)history_sum_at(r, i - HISTORY_NODES_AHEAD)->key.node,
			    &index) &&
		    index < r->n_uses)
			__builtin_prefetch(&r->uses[index]);
		if (history_sum_at(r, i)->key.node) {
			err = history_find_node(r, (int64_t)history_sum_at(r, i)->key.node, &index);
			if (err)
				break;
			/* Written before it is read: else the kernel gives each new page twice, the first time to be read. */
			r->uses[index].child = 0;
			first = &r->uses[index].sum;
		}
		t->next[i] = *first;
		*first = (uint32_t)i + 1;
	}
	return err;
}

/*
 * Give all nodes their locations, one page after the other: when the tree is gone through, each node lies somewhere else
 * in memory, and its row in the cache, too.
 */
static int locate_nodes(struct reading *r)
{
	const size_t n = r->h->nodes.n_chunks * NODES_IN_PAGE;
	int err = 0;

	for (size_t i = 0; i < n && i < r->n_uses && !err; i++)
		if (r->uses[i].beside && !r->uses[i].location)
			err = history_load_node(r, i);
	return err;
}

int history_tree_make(struct reading *r, struct history_tree *t)
{
	struct pages pages = { .n = 0 };
	struct frame_set set = { .n = 0 };
	int err = take_sums(r, t);

	if (!err)
		err = history_nodes_in_order(r->h, &pages.first, &pages.n);
	if (!err)
		err = grow_tree(r, t, &pages, &set);
	if (!err)
		err = load_frames(r, &set);
	if (!err)
		err = locate_nodes(r);
	free(pages.first);
	free(set.words);
	return err;
}

/* ---- adding it to the profile --------------------------------------------------------------- */

/* The node that was last seen with a location, and its parent. */
struct seen {
	uint32_t parent, child;
};

/* Where the descent is. */
struct way {
	uint32_t *locations, *nodes; /* innermost first: the last n of room */
	uint32_t n, n_frames;
	size_t room;
	uint32_t n_repeated; /* nodes on the way that are repeated */
	bool alone; /* none of the sums is cut, or can be equal to a sample that the profile had */
	struct seen *seen; /* by location */
	/*
	 * By location: how many lines it has, MANY_LINES at most. It is apart from the locations, as a small array stays
	 * in the CPU's caches.
	 */
	uint8_t *lines;
};

enum { MANY_LINES = UINT8_MAX };

static uint32_t lines_of(const struct reading *r, const struct way *w, uint32_t location)
{
	return w->lines[location] < MANY_LINES ? w->lines[location]
					       : r->s->locations[location].n_lines;
}

/* Let the last n numbers of an array that has room for so many be the last ones of a larger one. -ENOMEM. */
static int enlarge(uint32_t **numbers, size_t n, size_t room, size_t larger)
{
	uint32_t *copy = calloc(larger, sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	if (n)
		memcpy(copy + larger - n, *numbers + room - n, n * sizeof(*copy));
	free(*numbers);
	*numbers = copy;
	return 0;
}

static int make_room(struct way *w)
{
	const size_t room = w->room ? 2 * w->room : 64;
	int err = w->n < UINT32_MAX / 2 ? 0 : -ENOMEM;

	if (!err)
		err = enlarge(&w->locations, w->n, w->room, room);
	if (!err)
		err = enlarge(&w->nodes, w->n, w->room, room);
	if (!err)
		w->room = room;
	return err;
}

/* Return the innermost node of the way; 0: there is none. */
static uint32_t innermost(const struct way *w)
{
	return w->n ? w->nodes[w->room - w->n] : 0;
}

static int enter(const struct reading *r, struct way *w, uint32_t at)
{
	const struct node_use *node = &r->uses[at - 1];
	const uint32_t location = node->location - 1;
	int err = w->n == w->room ? make_room(w) : 0;

	if (err)
		return err;
	w->n++;
	w->locations[w->room - w->n] = location;
	w->nodes[w->room - w->n] = at;
	w->n_frames += lines_of(r, w, location);
	w->n_repeated += node->repeated;
	return w->n_frames > STACKS_DEPTH ? -EFBIG : 0;
}

/* Leave the innermost node, and return it. */
static const struct node_use *leave(const struct reading *r, struct way *w)
{
	const struct node_use *node = &r->uses[innermost(w) - 1];

	w->n--;
	w->n_frames -= lines_of(r, w, node->location - 1);
	w->n_repeated -= node->repeated;
	return node;
}

/* Return whether all sums are of whole stacks without labels and times: then only their values matter. */
static bool is_plain(const struct reading *r)
{
	return !r->q->labels && !r->q->times && !r->q->parts;
}

/* Let the CPU fetch what is needed when the descent comes to a node that was just reached. */
static void fetch(const struct reading *r, const struct history_tree *t, const struct way *w,
		  const struct node_use *node)
{
	__builtin_prefetch(&w->seen[node->location - 1]);
	if (node->child)
		__builtin_prefetch(&r->uses[node->child - 1]);
	if (!node->sum)
		return;
	__builtin_prefetch(&t->next[node->sum - 1]);
	__builtin_prefetch(history_sum_at(r, node->sum - 1));
}

/* Let the CPU fetch the second child of a node, of which the first was fetched before. */
static void fetch_second(const struct reading *r, const struct node_use *node)
{
	const uint32_t second = node->child ? r->uses[node->child - 1].beside : 0;

	if (second && second != LAST_CHILD)
		__builtin_prefetch(&r->uses[second - 1]);
}

/*
 * Mark those of the nodes that lie beside each other that have the same location. Nodes are stored again at times, so there
 * may be some; all stacks that are not below such nodes differ from each other.
 */
static void mark_repeated(struct reading *r, const struct history_tree *t, struct way *w,
			  uint32_t first)
{
	const uint32_t parent = innermost(w);

	for (uint32_t at = first; at && at != LAST_CHILD; at = r->uses[at - 1].beside)
		fetch(r, t, w, &r->uses[at - 1]);
	if (!first || r->uses[first - 1].beside == LAST_CHILD)
		return;
	for (uint32_t at = first; at != LAST_CHILD; at = r->uses[at - 1].beside) {
		struct node_use *node = &r->uses[at - 1];
		struct seen *seen = &w->seen[node->location - 1];

		/* The outermost nodes, which have no parent, come first. */
		if (seen->child && seen->parent == parent)
			node->repeated = r->uses[seen->child - 1].repeated = true;
		*seen = (struct seen){ .parent = parent, .child = at };
	}
}

/* Add a sum whose stack is the way. */
static int add_sample(struct reading *r, const struct way *w, size_t index)
{
	const struct sum *sum = history_sum_at(r, index);
	const uint32_t n_cut = sum->key.cut;
	struct stacks_sample to = { .base = r->q->base,
				    .n_locations = w->n + n_cut,
				    .n_frames = w->n_frames + n_cut,
				    .equal = !w->alone	     ? STACKS_EQUAL_ANY
					     : w->n_repeated ? STACKS_EQUAL_SOME
							     : STACKS_EQUAL_NONE };
	const uint32_t *locations = w->n ? w->locations + w->room - w->n : NULL;
	int err = n_cut ? array_reserve(r->ids, to.n_locations, r->room_ids) : 0;
	uint32_t n = 0;

	if (!err && n_cut) {
		r->ids[n++] = r->cut_location;
		for (uint32_t i = 0; i < w->n; i++)
			r->ids[n++] = locations[i];
	}
	if (!err && !is_plain(r))
		err = history_put_labels(r, &sum->key, &n);
	if (err)
		return err;
	to.n_labels = n_cut ? n - to.n_locations : n;
	return stacks_add(r->s, &to, n_cut ? r->ids : locations,
			  to.n_labels ? r->ids + n - to.n_labels : NULL,
			  r->s->n_types ? sum->values : NULL);
}

/* Add a sum, and those after it of the same node, whose stack is the way. */
static int add_sums(struct reading *r, const struct history_tree *t, const struct way *w,
		    uint32_t sum)
{
	int err = 0;

	for (; sum && !err; sum = t->next[sum - 1])
		err = add_sample(r, w, sum - 1);
	return err;
}

/* Add the sums of all nodes. */
static int descend(struct reading *r, const struct history_tree *t, struct way *w)
{
	uint32_t at = t->outermost;
	int err = 0;

	mark_repeated(r, t, w, at);
	while (at && !err) {
		const struct node_use *node = &r->uses[at - 1];

		err = enter(r, w, at);
		fetch_second(r, node);
		if (!err)
			err = add_sums(r, t, w, node->sum);
		if (err)
			break;
		at = node->child;
		if (at) {
			mark_repeated(r, t, w, at);
			continue;
		}
		do
			node = leave(r, w);
		while (node->beside == LAST_CHILD && w->n);
		at = node->beside == LAST_CHILD ? 0 : node->beside;
	}
	return err;
}

/* Return whether the profile has samples that may be equal to some that are added now. */
static bool has_like(const struct reading *r)
{
	for (size_t i = 0; i < r->s->n_samples; i++)
		if (r->s->samples[i].base == r->q->base)
			return true;
	return false;
}

int history_tree_add(struct reading *r, const struct history_tree *t)
{
	struct way w = { .alone = !r->q->parts && !has_like(r),
			 .seen = calloc(r->s->n_locations + 1, sizeof(*w.seen)),
			 .lines = calloc(r->s->n_locations + 1, sizeof(*w.lines)) };
	int err = w.seen && w.lines ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < r->s->n_locations; i++) {
		const uint32_t n = r->s->locations[i].n_lines;

		w.lines[i] = n < MANY_LINES ? (uint8_t)n : (uint8_t)MANY_LINES;
	}
	if (!err)
		err = add_sums(r, t, &w, t->alone);
	if (!err)
		err = descend(r, t, &w);
	free(w.locations);
	free(w.nodes);
	free(w.seen);
	free(w.lines);
	return err;
}

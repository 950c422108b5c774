/* agent/export/profile/flame.c: merges stacks into a tree and sorts it for display. */
#include "agent/export/profile/flame.h"

#include "agent/array.h"
#include "agent/export/profile/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct builder {
	struct flame *flame;
	const char *by; /* key of the label; NULL: none */
	size_t room_nodes, room_frames, room_values;
	struct uw_hash_index by_frame, by_node; /* nodes by parent and frame */
	struct strings texts;			/* names of nodes that are not functions */
	uint32_t *frame_of; /* by line of the profile: its frame; UW_HASH_NONE: not looked up yet */
	/*
	 * The way of the sample before this one, outermost location first: the nodes that lie on it are not
	 * looked up again. Samples of a history are in the order of their stacks.
	 */
	struct step {
		uint32_t location, node;
	} * way;
	uint32_t n_way, top; /* top: the node from which it goes */
};

struct mark { /* one range of a list of frame numbers: "2-5,9" */
	const char *next;
	uint32_t first,
		last; /* numbers of locations, 0 the innermost; UINT32_MAX: the list has ended */
};

/* ---- frames and nodes, each once ----------------------------------------------- */

/* Compare two frames; equal texts of a profile are the same pointer. */
static bool same_frame(const struct flame_frame *a, const struct flame_frame *b)
{
	return a->name == b->name && a->module == b->module && a->kind == b->kind;
}

/* Return the index of a frame, which is added if it is new. UW_HASH_NONE: out of memory. */
static uint32_t frame_id(struct builder *b, const struct flame_frame *frame)
{
	struct flame *f = b->flame;
	uint64_t hash = hash_u64((uint64_t)(uintptr_t)frame->name * 16 + frame->kind,
				 (uint64_t)(uintptr_t)frame->module);
	uint32_t id = UW_HASH_FIND(i, &b->by_frame, hash, same_frame(&f->frames[i], frame));

	if (id != UW_HASH_NONE) {
		/* The two may differ in that only one has a source file. */
		if (!f->frames[id].file[0]) {
			f->frames[id].file = frame->file;
			f->frames[id].line = frame->line;
		}
		return id;
	}
	if (f->n_frames >= UW_HASH_NONE || array_grow(f->frames, f->n_frames, b->room_frames))
		return UW_HASH_NONE;
	if (uw_hash_add(&b->by_frame, hash, (uint32_t)f->n_frames))
		return UW_HASH_NONE;
	f->frames[f->n_frames] = *frame;
	return (uint32_t)f->n_frames++;
}

/* Append the values of one more node, all zero. -ENOMEM. */
static int add_values(struct builder *b)
{
	struct flame *f = b->flame;
	size_t n = f->n_nodes * f->n_types;

	for (size_t t = 0; t < f->n_types; t++) {
		if (array_grow(f->values, n + t, b->room_values))
			return -ENOMEM;
		f->values[n + t] = (struct flame_value){ 0 };
	}
	return 0;
}

/* Find or add the child of parent with that frame. -E2BIG: too many nodes. */
static int add_node(struct builder *b, uint32_t parent, uint32_t frame, uint32_t *out)
{
	struct flame *f = b->flame;
	uint64_t hash = hash_u64(parent, frame);
	uint32_t id = UW_HASH_FIND(i, &b->by_node, hash,
				   f->nodes[i].parent == parent && f->nodes[i].frame == frame);
	int err;

	if (id == UW_HASH_NONE) {
		if (f->n_nodes == FLAME_NODES)
			return -E2BIG;
		err = array_grow(f->nodes, f->n_nodes, b->room_nodes);
		if (err)
			return err;
		id = (uint32_t)f->n_nodes;
		err = uw_hash_add(&b->by_node, hash, id);
		if (err)
			return err;
		err = add_values(b);
		if (err)
			return err;
		f->nodes[id] = (struct flame_node){ .parent = parent,
						    .frame = frame,
						    .depth = id ? f->nodes[parent].depth + 1 : 0,
						    .values = id * f->n_types };
		f->n_nodes++;
	}
	*out = id;
	return 0;
}

/* Go to the child of *at that is not a function but has this name; add it if it is new. */
static int enter_named(struct builder *b, uint32_t *at, const char *name, enum flame_kind kind)
{
	const char *stored = strings_keep(&b->texts, name, strlen(name));

	uint32_t frame = UW_HASH_NONE;

	if (stored)
		frame = frame_id(b,
				 &(struct flame_frame){
					 .name = stored, .module = "", .file = "", .kind = kind });
	return frame == UW_HASH_NONE ? -ENOMEM : add_node(b, *at, frame, at);
}

/* ---- which frames of a sample were guessed --------------------------------------- */

/* Parse a decimal number below UINT32_MAX and advance *at. False: there is none. */
static bool take_number(const char **at, uint32_t *out)
{
	uint64_t number = 0;
	const char *c = *at;

	for (; *c >= '0' && *c <= '9' && number <= UINT32_MAX; c++)
		number = number * 10 + (uint64_t)(*c - '0');
	if (c == *at || number >= UINT32_MAX)
		return false;
	*at = c;
	*out = (uint32_t)number;
	return true;
}

/* Parse the next range of the list. */
static void next_mark(struct mark *m)
{
	const char *c = m->next;

	m->first = m->last = UINT32_MAX;
	if (!take_number(&c, &m->first))
		return;
	m->last = m->first;
	if (*c == '-') {
		c++;
		if (!take_number(&c, &m->last))
			m->last = m->first;
	}
	m->next = *c == ',' ? c + 1 : "";
}

/*
 * Set guessed[i] for each location that the label "guessed" names. Anybody may have written the
 * label, so it is not trusted.
 */
static void mark_guessed(const struct stacks *s, const struct stacks_sample *sample, bool *guessed)
{
	const struct stacks_label *label = stacks_label(s, sample, "guessed");
	struct mark m = { .next = label && label->text ? label->text : "" };
	uint32_t least = 0;

	memset(guessed, 0, sample->n_locations * sizeof(*guessed));
	/*
	 * The numbers must ascend, as result.c writes them, so the work is bounded however
	 * long the label is.
	 */
	for (next_mark(&m); m.first >= least && m.first < sample->n_locations; next_mark(&m)) {
		for (uint32_t i = m.first; i <= m.last && i < sample->n_locations; i++)
			guessed[i] = true;
		if (m.last == UINT32_MAX)
			break;
		least = m.last + 1;
	}
}

/* ---- samples ------------------------------------------------------------------------ */

/* Return a sample's value, 0 if it is negative. */
static int64_t value_of(const struct stacks *s, size_t sample, size_t type)
{
	int64_t value = stacks_value(s, sample, type);

	return value > 0 ? value : 0;
}

/*
 * Go from the root to the nodes for the label's value and for the reason why the stack ended early.
 */
static int enter_heads(struct builder *b, const struct stacks_sample *sample, uint32_t *at)
{
	const struct stacks *s = b->flame->stacks;
	const struct stacks_label *label = b->by ? stacks_label(s, sample, b->by) : NULL;
	const struct stacks_label *stop = stacks_label(s, sample, "stop");
	char number[STACKS_NUMBER];
	int err = 0;

	if (b->by) {
		const char *text = stacks_label_text(label, number);

		err = enter_named(b, at, text[0] ? text : "(none)", FLAME_GROUP);
	}
	if (!err && stop && stop->text && stop->text[0])
		err = enter_named(b, at, stop->text, FLAME_STOP);
	return err;
}

/*
 * Go from *at to the nodes of a location's function and inlined calls. *cut: FLAME_DEPTH was
 * reached.
 */
static int enter_location(struct builder *b, uint32_t location, uint32_t *at, bool *cut)
{
	const struct stacks *s = b->flame->stacks;
	const struct stacks_location *l = &s->locations[location];
	const struct stacks_module *m = &s->modules[l->module];
	int err = 0;

	/* The function itself is the last line; it calls what was inlined into it. */
	for (uint32_t i = l->n_lines; !err && i-- > 0;) {
		const struct stacks_function *f =
			&s->functions[s->lines[l->first_line + i].function];
		uint32_t *frame = &b->frame_of[l->first_line + i];

		if (b->flame->nodes[*at].depth >= FLAME_DEPTH) {
			*cut = true;
			return enter_named(b, at, FLAME_DEEP, FLAME_STOP);
		}
		if (*frame == UW_HASH_NONE)
			*frame = frame_id(
				b, &(struct flame_frame){
					   .name = f->name,
					   .module = m->name,
					   .file = f->file,
					   .line = f->start_line,
					   .kind = (m->kernel ? FLAME_KERNEL : FLAME_USER) |
						   (i + 1 < l->n_lines ? FLAME_INLINED : 0) |
						   inner_of_function(f->name) * FLAME_INNER });
		err = *frame == UW_HASH_NONE ? -ENOMEM : add_node(b, *at, *frame, at);
	}
	return err;
}

/* Do the same for the location at this place of a stack, 0 the outermost. */
static int take_step(struct builder *b, uint32_t location, uint32_t place, uint32_t *at, bool *cut)
{
	struct step *step = &b->way[place];
	int err;

	if (place < b->n_way && step->location == location) {
		*at = step->node;
		return 0;
	}
	err = enter_location(b, location, at, cut);
	*step = (struct step){ location, *at };
	/* A node for frames beyond the limit is none of the location's own. */
	b->n_way = err || *cut ? 0 : place + 1;
	return err;
}

static void add_to(int64_t *sum, int64_t value)
{
	*sum = stacks_sum(*sum, value);
}

/* Add a sample's values to the tree. */
static int add_sample(struct builder *b, size_t number, bool *guessed)
{
	struct flame *f = b->flame;
	const struct stacks *s = f->stacks;
	const struct stacks_sample *sample = &s->samples[number];
	int64_t value[FLAME_TYPES];
	uint32_t at = 0;
	bool cut = false, any = false;
	int err;

	if (stacks_value(s, number, f->types[0]) < 0)
		f->n_negative++;
	for (size_t t = 0; t < f->n_types; t++) {
		value[t] = value_of(s, number, f->types[t]);
		any = any || value[t];
	}
	if (!any)
		return 0;
	err = enter_heads(b, sample, &at);
	if (b->top != at)
		b->n_way = 0;
	b->top = at;
	mark_guessed(s, sample, guessed);
	for (uint32_t i = sample->n_locations; !err && !cut && i-- > 0;) {
		uint32_t above = at;

		err = take_step(b, s->location_ids[sample->first_location + i],
				sample->n_locations - 1 - i, &at, &cut);
		/*
		 * All functions inlined at this address are guessed, too, because the guess was the
		 * address.
		 */
		for (uint32_t node = at; !err && guessed[i] && node != above;
		     node = f->nodes[node].parent)
			for (size_t t = 0; t < f->n_types; t++)
				add_to(&f->values[f->nodes[node].values + t].guessed, value[t]);
	}
	for (size_t t = 0; !err && t < f->n_types; t++) {
		struct flame_value *v = &f->values[f->nodes[at].values + t];

		add_to(sample->base ? &v->base : &v->now, value[t]);
	}
	return err;
}

/* Add all samples to the tree, and count them. */
static int add_samples(struct builder *b)
{
	struct flame *f = b->flame;
	const struct stacks *s = f->stacks;
	size_t samples = stacks_find_type(s, "samples");
	uint32_t most = 0;
	bool *guessed;
	int err = 0;

	for (size_t i = 0; i < s->n_samples; i++) {
		if (s->samples[i].n_locations > most)
			most = s->samples[i].n_locations;
		f->diff = f->diff || s->samples[i].base;
	}
	guessed = calloc((size_t)most + 1, sizeof(*guessed));
	b->way = calloc((size_t)most + 1, sizeof(*b->way));
	if (!guessed || !b->way) {
		free(guessed);
		return -ENOMEM;
	}
	if (samples == SIZE_MAX || strcmp(s->types[samples].unit, "count") != 0)
		f->n_samples = -1;
	for (size_t i = 0; !err && i < s->n_samples; i++) {
		err = add_sample(b, i, guessed);
		if (f->n_samples >= 0 && !s->samples[i].base)
			f->n_samples = stacks_sum(f->n_samples, value_of(s, i, samples));
	}
	free(guessed);
	return err;
}

/* ---- order ------------------------------------------------------------------------- */

/* Order frames as siblings are shown: by name and module, with stop reasons last. */
static int by_name(const void *a, const void *b, void *ctx)
{
	const struct flame_frame *frames = ctx;
	const struct flame_frame *x = &frames[*(const uint32_t *)a],
				 *y = &frames[*(const uint32_t *)b];
	int order = (x->kind == FLAME_STOP) - (y->kind == FLAME_STOP); /* stop reasons come last */

	order = order ? order : strcmp(x->name, y->name);
	order = order ? order : strcmp(x->module, y->module);
	return order ? order : (x->kind > y->kind) - (x->kind < y->kind);
}

/* Sort the frames in the order in which siblings are shown, and renumber the nodes' frames. */
static int sort_frames(struct flame *f)
{
	uint32_t *order = malloc((f->n_frames + 1) * sizeof(*order));
	uint32_t *rank = malloc((f->n_frames + 1) * sizeof(*rank));
	struct flame_frame *sorted = malloc((f->n_frames + 1) * sizeof(*sorted));
	int err = order && rank && sorted ? 0 : -ENOMEM;

	if (!err) {
		for (size_t i = 0; i < f->n_frames; i++)
			order[i] = (uint32_t)i;
		qsort_r(order, f->n_frames, sizeof(*order), by_name, f->frames);
		for (size_t i = 0; i < f->n_frames; i++) {
			rank[order[i]] = (uint32_t)i;
			sorted[i] = f->frames[order[i]];
		}
		for (size_t i = 0; i < f->n_nodes; i++)
			f->nodes[i].frame = rank[f->nodes[i].frame];
		free(f->frames);
		f->frames = sorted;
		sorted = NULL;
	}
	free(order);
	free(rank);
	free(sorted);
	return err;
}

/* Order the children of a node by frame. */
static int by_frame(const void *a, const void *b, void *ctx)
{
	const struct flame_node *nodes = ctx;
	const uint32_t x = nodes[*(const uint32_t *)a].frame, y = nodes[*(const uint32_t *)b].frame;

	return (x > y) - (x < y);
}

/*
 * Put the children of each node beside each other, sorted by frame: those of node i become order[first[i]] and so on, up
 * to order[first[i + 1]], which is not included. Most nodes have one child, which needs no sorting.
 */
static void sort_children(const struct flame *f, uint32_t *first, uint32_t *order)
{
	const size_t n = f->n_nodes;

	memset(first, 0, (n + 2) * sizeof(*first));
	for (size_t i = 1; i < n; i++)
		first[f->nodes[i].parent + 2]++;
	for (size_t i = 1; i <= n; i++)
		first[i + 1] += first[i];
	/* What is in the next node's place moves up to where this node's children end, and so becomes right. */
	for (size_t i = 1; i < n; i++)
		order[first[f->nodes[i].parent + 1]++] = (uint32_t)i;
	for (size_t i = 0; i < n; i++)
		if (first[i + 1] - first[i] > 1)
			qsort_r(order + first[i], first[i + 1] - first[i], sizeof(*order), by_frame,
				f->nodes);
}

/* Sort the nodes in preorder. A descent from the root remembers for each node which child comes next. */
static int sort_nodes(struct flame *f)
{
	size_t n = f->n_nodes;
	uint32_t *order = malloc((n + 1) * sizeof(*order)); /* all nodes but the root */
	uint32_t *first = malloc((n + 2) * sizeof(*first)); /* by old number, as sort_children */
	uint32_t *taken = calloc(n + 1, sizeof(*taken));    /* by old number: children */
	uint32_t *place = malloc((n + 1) * sizeof(*place)); /* by old number: the new number */
	struct flame_node *sorted = malloc((n + 1) * sizeof(*sorted));
	int err = order && first && taken && place && sorted ? 0 : -ENOMEM;
	uint32_t at = 0, done = 1;

	if (err)
		goto out;
	sort_children(f, first, order);
	sorted[0] = f->nodes[0];
	place[0] = 0;
	while (done < n) {
		uint32_t next = first[at] + taken[at];

		if (next < first[at + 1]) {
			uint32_t child = order[next];

			taken[at]++;
			place[child] = done;
			sorted[done] = f->nodes[child];
			sorted[done++].parent = place[at];
			at = child;
		} else {
			at = f->nodes[at].parent;
		}
	}
	free(f->nodes);
	f->nodes = sorted;
	sorted = NULL;
out:
	free(order);
	free(first);
	free(taken);
	free(place);
	free(sorted);
	return err;
}

/* What flame_new() allocates: the tree, and the texts that live as long as the tree. */
struct owned {
	struct flame flame;
	struct strings texts;
};

int flame_new(const struct stacks *stacks, size_t type, const char *by, struct flame **out)
{
	struct owned *owned = calloc(1, sizeof(*owned));
	struct builder b = { .by = by };
	uint32_t root = 0;
	int err;

	if (!owned)
		return -ENOMEM;
	b.flame = &owned->flame;
	b.flame->stacks = stacks;
	b.flame->types[b.flame->n_types++] = type;
	for (size_t t = 0; t < stacks->n_types && b.flame->n_types < FLAME_TYPES; t++)
		if (t != type)
			b.flame->types[b.flame->n_types++] = t;
	b.frame_of = malloc((stacks->n_lines + 1) * sizeof(*b.frame_of));
	if (b.frame_of)
		memset(b.frame_of, 0xff, stacks->n_lines * sizeof(*b.frame_of)); /* UW_HASH_NONE */
	err = b.frame_of ? enter_named(&b, &root, "all", FLAME_ROOT) : -ENOMEM;
	if (!err)
		err = add_samples(&b);
	if (!err)
		err = sort_frames(b.flame);
	if (!err)
		err = sort_nodes(b.flame);
	uw_hash_fini(&b.by_frame);
	uw_hash_fini(&b.by_node);
	free(b.frame_of);
	free(b.way);
	owned->texts = b.texts;
	if (err) {
		flame_free(b.flame);
		return err;
	}
	*out = b.flame;
	return 0;
}

void flame_free(struct flame *flame)
{
	struct owned *owned = (struct owned *)flame;

	if (!owned)
		return;
	free(flame->frames);
	free(flame->nodes);
	free(flame->values);
	strings_fini(&owned->texts);
	free(owned);
}

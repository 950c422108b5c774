/* agent/export/profile/flame.c: merges stacks into a tree and sorts it for display. */
#include "agent/export/profile/flame.h"

#include "agent/array.h"
#include "agent/export/profile/guessed.h"
#include "agent/export/profile/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct builder {
	struct flame *flame;
	const char *by; /* key of the label; NULL: none */
	size_t room_nodes, room_frames, room_kin, room_now, room_base, room_guessed;
	struct uw_hash_index by_frame;
	/*
	 * By node: its last child, and the next one of its parent; 0: there is none. Most nodes have one child, which is
	 * found by this; by_node has all others, by parent and frame.
	 */
	struct kin {
		uint32_t child, beside;
	} * kin;
	struct uw_hash_index by_node;
	struct strings texts; /* names of nodes that are not functions */
	/* By line of the profile, if its location has several: its frame; UW_HASH_NONE: not looked up yet. */
	uint32_t *frame_of;
	/*
	 * By location: the frame of its only line; UW_HASH_NONE: not looked up yet, or it has several lines. It is apart
	 * from the locations, as a small array stays in the CPU's caches.
	 */
	uint32_t *only_frame;
	/* By function: its frame in the module where it was seen last, if it was not inlined there; frame UW_HASH_NONE: none. */
	struct known {
		uint32_t frame, module;
	} * known;
	/*
	 * The way of the sample before this one, outermost location first: the nodes that lie on it are not
	 * looked up again. Samples of a history are in the order of their stacks.
	 */
	struct step {
		uint32_t location, node;
	} * way;
	uint32_t n_way, top; /* top: the node from which it goes */
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

/* Let an array of values have those of one more node, all zero. -ENOMEM. */
static int add_values(const struct flame *f, int64_t **values, size_t *room)
{
	const size_t n = f->n_nodes * f->n_types;
	int err = array_reserve(*values, n + f->n_types, *room);

	if (!err)
		memset(*values + n, 0, f->n_types * sizeof(**values));
	return err;
}

/* Add a child of parent, which has none with that frame. -E2BIG: too many nodes. */
static int add_child(struct builder *b, uint32_t parent, uint32_t frame)
{
	struct flame *f = b->flame;
	const uint32_t id = (uint32_t)f->n_nodes;
	uint32_t last = 0;
	int err = id < FLAME_NODES ? array_grow(f->nodes, f->n_nodes, b->room_nodes) : -E2BIG;

	if (!err)
		err = array_grow(b->kin, f->n_nodes, b->room_kin);
	if (!err)
		err = add_values(f, &f->now, &b->room_now);
	if (!err && f->diff)
		err = add_values(f, &f->base, &b->room_base);
	if (!err && f->guessed)
		err = add_values(f, &f->guessed, &b->room_guessed);
	if (!err && id)
		last = b->kin[parent].child;
	if (!err && last)
		err = uw_hash_add(&b->by_node, hash_u64(parent, f->nodes[last].frame), last);
	if (err)
		return err;
	f->nodes[id] = (struct flame_node){ .parent = parent,
					    .frame = frame,
					    .depth = id ? f->nodes[parent].depth + 1 : 0,
					    .values = (uint32_t)(id * f->n_types) };
	b->kin[id] = (struct kin){ .beside = last };
	if (id)
		b->kin[parent].child = id;
	f->n_nodes++;
	return 0;
}

/* Find or add the child of parent with that frame. -E2BIG: too many nodes. */
static int add_node(struct builder *b, uint32_t parent, uint32_t frame, uint32_t *out)
{
	const struct flame_node *nodes = b->flame->nodes;
	const uint32_t last = b->flame->n_nodes ? b->kin[parent].child : 0;
	uint32_t id = UW_HASH_NONE;
	int err = 0;

	if (last && nodes[last].frame == frame)
		id = last;
	else if (last && b->kin[last].beside)
		id = UW_HASH_FIND(i, &b->by_node, hash_u64(parent, frame),
				  nodes[i].parent == parent && nodes[i].frame == frame);
	if (id == UW_HASH_NONE) {
		id = (uint32_t)b->flame->n_nodes;
		err = add_child(b, parent, frame);
	}
	*out = id;
	return err;
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

static void mark_guessed(const struct stacks *s, const struct stacks_sample *sample, bool *guessed)
{
	const struct stacks_label *label = stacks_label(s, sample, "guessed");

	guessed_read(label ? label->text : NULL, sample->n_locations, guessed);
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

/* Return the frame of a function, which is added if it is new. UW_HASH_NONE: out of memory. */
static uint32_t function_frame(struct builder *b, uint32_t function, uint32_t module, bool inlined)
{
	const struct stacks *s = b->flame->stacks;
	const struct stacks_module *m = &s->modules[module];
	const struct stacks_function *f = &s->functions[function];
	struct known *known = &b->known[function];
	uint32_t frame;

	if (!inlined && known->frame != UW_HASH_NONE && known->module == module)
		return known->frame;
	frame = frame_id(b,
			 &(struct flame_frame){ .name = f->name,
						.module = m->name,
						.file = f->file,
						.line = f->start_line,
						.kind = (m->kernel ? FLAME_KERNEL : FLAME_USER) |
							(inlined ? FLAME_INLINED : 0) |
							inner_of_function(f->name) * FLAME_INNER });
	if (!inlined)
		*known = (struct known){ frame, module };
	return frame;
}

/*
 * Go from *at to the nodes of a location's function and inlined calls. *cut: FLAME_DEPTH was
 * reached.
 */
static int enter_location(struct builder *b, uint32_t location, uint32_t *at, bool *cut)
{
	const struct stacks *s = b->flame->stacks;
	const struct stacks_location *l = &s->locations[location];
	const uint32_t only = b->only_frame[location];
	int err = 0;

	if (only != UW_HASH_NONE && b->flame->nodes[*at].depth < FLAME_DEPTH)
		return add_node(b, *at, only, at);
	/* The function itself is the last line; it calls what was inlined into it. */
	for (uint32_t i = l->n_lines; !err && i-- > 0;) {
		uint32_t *frame = l->n_lines == 1 ? &b->only_frame[location]
						  : &b->frame_of[l->first_line + i];

		if (b->flame->nodes[*at].depth >= FLAME_DEPTH) {
			*cut = true;
			return enter_named(b, at, FLAME_DEEP, FLAME_STOP);
		}
		if (*frame == UW_HASH_NONE)
			*frame = function_frame(b, s->lines[l->first_line + i].function, l->module,
						i + 1 < l->n_lines);
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

/* Let the nodes from one to its caller `above`, which is not included, have values of guessed frames. -ENOMEM. */
static int add_guessed(struct builder *b, uint32_t node, uint32_t above, const int64_t *value)
{
	struct flame *f = b->flame;
	const size_t n = f->n_nodes * f->n_types;
	int err = 0;

	if (!f->guessed) {
		err = array_reserve(f->guessed, n, b->room_guessed);
		if (!err)
			memset(f->guessed, 0, n * sizeof(*f->guessed));
	}
	for (; !err && node != above; node = f->nodes[node].parent)
		for (size_t t = 0; t < f->n_types; t++)
			add_to(&f->guessed[f->nodes[node].values + t], value[t]);
	return err;
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
		if (!err && guessed[i])
			err = add_guessed(b, at, above, value);
	}
	for (size_t t = 0; !err && t < f->n_types; t++)
		add_to(&(sample->base ? f->base : f->now)[f->nodes[at].values + t], value[t]);
	return err;
}

/* Add all samples to the tree. */
static int add_samples(struct builder *b)
{
	struct flame *f = b->flame;
	const struct stacks *s = f->stacks;
	uint32_t most = 0;
	bool *guessed;
	int err = 0;

	for (size_t i = 0; i < s->n_samples; i++)
		if (s->samples[i].n_locations > most)
			most = s->samples[i].n_locations;
	guessed = calloc((size_t)most + 1, sizeof(*guessed));
	b->way = calloc((size_t)most + 1, sizeof(*b->way));
	if (!guessed || !b->way) {
		free(guessed);
		return -ENOMEM;
	}
	for (size_t i = 0; !err && i < s->n_samples; i++) {
		stacks_fetch(s, i, b->only_frame);
		err = add_sample(b, i, guessed);
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

/* Sort the children of a node by frame. Most nodes have one, which needs no sorting. */
static int sort_children(struct builder *b, uint32_t node, uint32_t **order, size_t *room)
{
	uint32_t *next = &b->kin[node].child;
	size_t n = 0;

	if (!*next || !b->kin[*next].beside)
		return 0;
	for (uint32_t child = *next; child; child = b->kin[child].beside) {
		if (array_grow(*order, n, *room))
			return -ENOMEM;
		(*order)[n++] = child;
	}
	qsort_r(*order, n, sizeof(**order), by_frame, b->flame->nodes);
	for (size_t i = 0; i < n; i++) {
		*next = (*order)[i];
		next = &b->kin[*next].beside;
	}
	*next = 0;
	return 0;
}

/* Sort the nodes in preorder. */
static int sort_nodes(struct builder *b)
{
	struct flame *f = b->flame;
	struct flame_node *sorted = malloc((f->n_nodes + 1) * sizeof(*sorted));
	uint32_t *order = NULL, at = 0;
	size_t room = 0, n = 0;
	int err = sorted ? 0 : -ENOMEM;

	while (!err && n < f->n_nodes) {
		const struct flame_node *node = &f->nodes[at];
		uint32_t child;

		err = sort_children(b, at, &order, &room);
		if (err)
			break;
		child = b->kin[at].child;
		sorted[n] = *node;
		/* From now on the node has its new number where its children were. */
		sorted[n].parent = at ? b->kin[node->parent].child : 0;
		b->kin[at].child = (uint32_t)n++;
		for (; !child && at; at = f->nodes[at].parent)
			child = b->kin[at].beside;
		at = child;
	}
	free(order);
	if (err) {
		free(sorted);
		return err;
	}
	free(f->nodes);
	f->nodes = sorted;
	return 0;
}

/* What flame_new() allocates: the tree, and the texts that live as long as the tree. */
struct owned {
	struct flame flame;
	struct strings texts;
};

/* Return size bytes of UW_HASH_NONE; the caller frees them. NULL: no memory. */
static void *none_yet(size_t size)
{
	void *ids = malloc(size + 1);

	if (ids)
		memset(ids, 0xff, size);
	return ids;
}

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
	b.flame->diff = stacks->compared;
	b.frame_of = none_yet(stacks->n_lines * sizeof(*b.frame_of));
	b.only_frame = none_yet(stacks->n_locations * sizeof(*b.only_frame));
	b.known = none_yet(stacks->n_functions * sizeof(*b.known));
	err = b.frame_of && b.only_frame && b.known ? enter_named(&b, &root, "all", FLAME_ROOT)
						    : -ENOMEM;
	if (!err)
		err = add_samples(&b);
	if (!err)
		err = sort_frames(b.flame);
	if (!err)
		err = sort_nodes(&b);
	uw_hash_fini(&b.by_frame);
	uw_hash_fini(&b.by_node);
	free(b.kin);
	free(b.frame_of);
	free(b.only_frame);
	free(b.known);
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
	free(flame->now);
	free(flame->base);
	free(flame->guessed);
	strings_fini(&owned->texts);
	free(owned);
}

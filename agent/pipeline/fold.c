/*
 * agent/pipeline/fold.c: folds samples into profile entries, and tracks which allocations are still
 * live.
 */
#include "agent/pipeline/fold.h"

#include "agent/array.h"
#include "agent/hash.h"
#include "agent/pipeline/heap.h"
#include "agent/process/modules.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct fold {
	struct profile *profile; /* being filled; the fold owns its arrays until fold_take */
	struct location *locations;
	size_t room_locations, room_entries, room_ids;
	struct uw_hash_index by_location;
	struct uw_hash_index by_stack;
	struct heap heap; /* live allocations; their entries are in the current profile */
};

int fold_new(bool separate, struct fold **out)
{
	struct fold *fold = calloc(1, sizeof(*fold));

	if (fold)
		fold->profile = calloc(1, sizeof(*fold->profile));
	if (!fold || !fold->profile) {
		fold_free(fold);
		return -ENOMEM;
	}
	fold->profile->separate = separate;
	*out = fold;
	return 0;
}

void fold_free(struct fold *fold)
{
	if (!fold)
		return;
	if (fold->profile)
		fold->profile->locations = fold->locations;
	profile_free(fold->profile);
	uw_hash_fini(&fold->by_location);
	uw_hash_fini(&fold->by_stack);
	heap_fini(&fold->heap);
	free(fold);
}

void profile_free(struct profile *profile)
{
	_Atomic size_t *users = profile ? profile->users : NULL;

	if (!profile)
		return;
	free(profile->entries);
	free(profile->location_ids);
	free((void *)(uintptr_t)profile->locations);
	free(profile);
	/* Last: then its modules may be closed. */
	if (users)
		(void)atomic_fetch_sub(users, 1);
}

void fold_note_modules(const struct fold *fold)
{
	for (size_t i = 0; i < fold->profile->n_locations; i++)
		modules_note_counted(fold->locations[i].module);
}

void fold_note_names(const struct fold *fold)
{
	const struct profile *p = fold->profile;

	for (size_t i = 0; i < p->n_entries; i++) {
		strings_mark(p->entries[i].comm);
		strings_mark(p->entries[i].process_comm);
		for (size_t j = 0; j < PROFILE_LABELS; j++)
			strings_mark(p->entries[i].labels[j]);
	}
}

static bool same_location(const struct location *a, const struct location *b)
{
	return a->vaddr == b->vaddr && a->module == b->module && a->ra_bytes == b->ra_bytes &&
	       a->confidence == b->confidence;
}

int fold_location(struct fold *fold, const struct location *location, uint32_t *out)
{
	uint64_t hash =
		hash_u64((uint64_t)location->module->id << 8 |
				 (unsigned int)location->confidence << 1 | location->ra_bytes,
			 location->vaddr);
	uint32_t id = UW_HASH_FIND(i, &fold->by_location, hash,
				   same_location(&fold->locations[i], location));
	int err;

	if (id == UW_HASH_NONE) {
		id = (uint32_t)fold->profile->n_locations;
		err = array_grow(fold->locations, id, fold->room_locations);
		if (!err)
			err = uw_hash_add(&fold->by_location, hash, id);
		if (err)
			return err;
		fold->locations[id] = *location;
		fold->profile->n_locations++;
	}
	*out = id;
	return 0;
}

/* Compare entry e of a profile with a sample. Names and labels are compared by pointer. */
static bool same_line(const struct profile *p, const struct profile_entry *e,
		      const struct fold_sample *s)
{
	return e->event == s->event && e->stop == s->stop && e->confidence == s->confidence &&
	       e->has_user == s->has_user && e->stack_cut == s->stack_cut && e->pid == s->pid &&
	       e->tid == s->tid && e->comm == s->comm && e->process_comm == s->process_comm &&
	       e->cgroup_id == s->cgroup_id && !memcmp(e->labels, s->labels, sizeof(e->labels)) &&
	       e->n_locations == s->n_locations && e->n_kernel == s->n_kernel &&
	       (!s->n_locations || !memcmp(p->location_ids + e->first_location, s->locations,
					   s->n_locations * sizeof(*s->locations)));
}

static uint64_t hash_line(const struct fold_sample *s)
{
	uint64_t hash = hash_u64((uint64_t)s->pid << 32 | s->tid,
				 (uint64_t)s->event << 16 | (uint64_t)s->stop << 8 |
					 (uint64_t)s->confidence << 1 | s->has_user);

	return hash_bytes(hash, s->locations, s->n_locations * sizeof(*s->locations));
}

/* Return the entry for samples like this one; add it if needed, or if all are separate. -ENOMEM. */
static int entry_of(struct fold *fold, const struct fold_sample *s, uint32_t *out)
{
	struct profile *p = fold->profile;
	size_t first = p->n_location_ids;
	uint64_t hash = p->separate ? 0 : hash_line(s);
	uint32_t id = p->separate ? UW_HASH_NONE
				  : UW_HASH_FIND(i, &fold->by_stack, hash,
						 same_line(p, &p->entries[i], s));
	int err;

	if (id == UW_HASH_NONE) {
		if (first + s->n_locations > UINT32_MAX)
			return -ENOMEM;
		err = array_reserve(p->location_ids, first + s->n_locations, fold->room_ids);
		if (!err)
			err = array_grow(p->entries, p->n_entries, fold->room_entries);
		id = (uint32_t)p->n_entries;
		if (!err && !p->separate)
			err = uw_hash_add(&fold->by_stack, hash, id);
		if (err)
			return err;
		if (s->n_locations)
			memcpy(p->location_ids + first, s->locations,
			       s->n_locations * sizeof(*s->locations));
		p->entries[p->n_entries++] = (struct profile_entry){
			.event = s->event,
			.stop = s->stop,
			.confidence = s->confidence,
			.has_user = s->has_user,
			.stack_cut = s->stack_cut,
			.pid = s->pid,
			.tid = s->tid,
			.comm = s->comm,
			.process_comm = s->process_comm,
			.cgroup_id = s->cgroup_id,
			.first_location = (uint32_t)first,
			.n_locations = s->n_locations,
			.n_kernel = s->n_kernel,
			.time_ns = p->separate ? s->time_ns : 0,
		};
		memcpy(p->entries[id].labels, s->labels, sizeof(s->labels));
		p->n_location_ids += s->n_locations;
	}
	*out = id;
	return 0;
}

/* Count an allocation as live. */
static void live(struct profile_entry *entry, const struct event_alloc *alloc)
{
	entry->live_objects += alloc->objects;
	entry->live += event_alloc_bytes(alloc, alloc->size);
}

/* Count an allocation. If it cannot be tracked, it counts as allocated but never as live. */
static int add_alloc(struct fold *fold, const struct fold_sample *s, uint32_t id)
{
	const struct heap_piece piece = { s->alloc, s->owner, id };
	struct profile_entry *entry = &fold->profile->entries[id];
	int err = s->alloc.tracked ? heap_add(&fold->heap, &piece) : -ENOSPC;

	if (err && err != -ENOSPC)
		return err;
	entry->objects += s->alloc.objects;
	entry->value += event_alloc_bytes(&s->alloc, s->alloc.size);
	if (!err)
		live(entry, &s->alloc);
	return 0;
}

int fold_add(struct fold *fold, const struct fold_sample *s)
{
	struct profile *p = fold->profile;
	struct profile_entry *entry;
	uint32_t id;
	int err = entry_of(fold, s, &id);

	if (!err && s->alloc.id)
		err = add_alloc(fold, s, id);
	if (err)
		return err;
	entry = &p->entries[id];
	entry->n_samples++;
	if (!s->alloc.id)
		entry->value += s->value;
	entry->n_off_cpu += s->n_off_cpu;
	entry->runnable += s->runnable;
	if (!p->start_ns || s->time_ns < p->start_ns)
		p->start_ns = s->time_ns;
	if (s->time_ns > p->end_ns)
		p->end_ns = s->time_ns;
	return 0;
}

/* Subtract freed memory from its entry. */
static void give_back(struct fold *fold, const struct event_freed *freed)
{
	struct profile_entry *entry;
	struct heap_piece piece;
	uint64_t bytes;
	bool whole;

	if (!heap_freed(&fold->heap, freed, &piece, &whole))
		return;
	entry = &fold->profile->entries[piece.entry];
	bytes = event_alloc_bytes(&piece.alloc, piece.alloc.size);
	/* The parts may have been rounded differently from the whole. */
	entry->live -= bytes < entry->live ? bytes : entry->live;
	if (whole)
		entry->live_objects -= piece.alloc.objects;
}

void fold_event(struct fold *fold, const struct event *event)
{
	switch (event->type) {
	case EVENT_FREED:
		give_back(fold, &event->freed);
		break;
	case EVENT_EXIT:
		if (event->pid == event->tid)
			heap_ends(&fold->heap, event->pid);
		break;
	case EVENT_FORK:
		if (event->pid != event->fork.parent_pid)
			heap_renewed(&fold->heap, event->pid);
		break;
	case EVENT_EXEC:
		heap_renewed(&fold->heap, event->pid);
		break;
	default:
		break;
	}
}

/* Count memory from earlier profiles that is still live in the new profile, too. -ENOMEM. */
static int carry_over(struct fold *fold, const struct profile *from,
		      const struct location *locations)
{
	uint32_t *to = from->n_entries ? malloc(from->n_entries * sizeof(*to)) : NULL;
	uint32_t *stack = NULL;
	size_t room = 0;
	int err = !from->n_entries || to ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < from->n_entries; i++)
		to[i] = UINT32_MAX;
	for (size_t i = 0; !err && i < fold->heap.n; i++) {
		struct heap_piece *piece = &fold->heap.pieces[i];
		const struct profile_entry *e = &from->entries[piece->entry];
		struct fold_sample s = { .event = e->event,
					 .stop = e->stop,
					 .confidence = e->confidence,
					 .has_user = e->has_user,
					 .stack_cut = e->stack_cut,
					 .pid = e->pid,
					 .tid = e->tid,
					 .comm = e->comm,
					 .process_comm = e->process_comm,
					 .cgroup_id = e->cgroup_id,
					 .n_locations = e->n_locations,
					 .n_kernel = e->n_kernel };

		memcpy(s.labels, e->labels, sizeof(s.labels));
		if (to[piece->entry] == UINT32_MAX) {
			err = array_reserve(stack, e->n_locations, room);
			for (uint32_t j = 0; !err && j < e->n_locations; j++)
				err = fold_location(
					fold, &locations[from->location_ids[e->first_location + j]],
					&stack[j]);
			s.locations = stack;
			if (!err)
				err = entry_of(fold, &s, &to[piece->entry]);
		}
		if (err)
			break;
		piece->entry = to[piece->entry];
		live(&fold->profile->entries[piece->entry], &piece->alloc);
	}
	if (err) /* their entries do not belong to this profile */
		heap_fini(&fold->heap);
	free(stack);
	free(to);
	return err;
}

int fold_take(struct fold *fold, struct profile **out)
{
	struct profile *fresh = calloc(1, sizeof(*fresh));
	const struct location *locations = fold->locations;

	if (!fresh)
		return -ENOMEM;
	fold->profile->locations = fold->locations;
	fresh->separate = fold->profile->separate;
	*out = fold->profile;
	fold->profile = fresh;
	fold->locations = NULL;
	fold->room_locations = fold->room_entries = fold->room_ids = 0;
	uw_hash_clear(&fold->by_location);
	uw_hash_clear(&fold->by_stack);
	heap_forget_ended(&fold->heap);
	/* If there is no memory, the next profile only lacks what was live before. */
	if (fold->heap.n)
		(void)carry_over(fold, *out, locations);
	return 0;
}

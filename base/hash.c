/* base/hash.c: open addressing with linear probing, at most three quarters full (hash.h). */
#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * Put slot into the first free place from its home position on. The index must have a free slot.
 */
static void place(struct uw_hash_index *index, struct uw_hash_slot slot)
{
	size_t mask = index->n_slots - 1, i = slot.hash & mask;

	while (index->slots[i].past)
		i = (i + 1) & mask;
	index->slots[i] = slot;
}

/*
 * Double the number of slots (64 at first) and insert all entries again. The low 32 bits of the
 * hash in each slot are enough for that; the caller's elements are not read.
 */
static int grow(struct uw_hash_index *index)
{
	struct uw_hash_index bigger = { .n_slots = index->n_slots ? index->n_slots * 2 : 64 };

	bigger.slots = calloc(bigger.n_slots, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < index->n_slots; i++)
		if (index->slots[i].past)
			place(&bigger, index->slots[i]);
	bigger.n_used = index->n_used;
	free(index->slots);
	*index = bigger;
	return 0;
}

/*
 * Grow before the index is more than three quarters full: with linear probing searches get long
 * beyond that.
 */
int uw_hash_add(struct uw_hash_index *index, uint64_t hash, uint32_t id)
{
	if (index->n_used * 4 >= index->n_slots * 3) {
		int err = grow(index);

		if (err)
			return err;
	}
	place(index, (struct uw_hash_slot){ .hash = (uint32_t)hash, .past = id + 1 });
	index->n_used++;
	return 0;
}

/* Return the number of the slot with this hash and id; n_slots: there is none. */
static size_t slot_of(const struct uw_hash_index *index, uint64_t hash, uint32_t id)
{
	size_t mask = index->n_slots - 1;

	if (!index->n_slots)
		return 0;
	for (size_t i = (uint32_t)hash & mask; index->slots[i].past; i = (i + 1) & mask)
		if (index->slots[i].past == id + 1 && index->slots[i].hash == (uint32_t)hash)
			return i;
	return index->n_slots;
}

void uw_hash_renumber(struct uw_hash_index *index, uint64_t hash, uint32_t from, uint32_t to)
{
	size_t i = slot_of(index, hash, from);

	if (i < index->n_slots)
		index->slots[i].past = to + 1;
}

/* Remove without leaving a tombstone: entries after the removed one move back. */
void uw_hash_remove(struct uw_hash_index *index, uint64_t hash, uint32_t id)
{
	size_t mask = index->n_slots - 1, hole = slot_of(index, hash, id);

	if (hole == index->n_slots)
		return;
	/*
	 * Close the gap: an entry that was pushed past the hole by the linear probing moves back
	 * into it.
	 */
	for (size_t i = (hole + 1) & mask; index->slots[i].past; i = (i + 1) & mask) {
		size_t home = index->slots[i].hash & mask;

		if (((i - home) & mask) >= ((i - hole) & mask)) {
			index->slots[hole] = index->slots[i];
			hole = i;
		}
	}
	index->slots[hole].past = 0;
	index->n_used--;
}

void uw_hash_clear(struct uw_hash_index *index)
{
	if (index->n_slots)
		memset(index->slots, 0, index->n_slots * sizeof(*index->slots));
	index->n_used = 0;
}

void uw_hash_fini(struct uw_hash_index *index)
{
	free(index->slots);
	*index = (struct uw_hash_index){ 0 };
}

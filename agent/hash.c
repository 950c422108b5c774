/*
 * agent/hash.c: open addressing with linear probing, at most three quarters full; and the string
 * pool.
 */
#include "agent/hash.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

uint64_t hash_secret;

/*
 * Without a secret an attacker can make look-ups slow. That is no reason to do nothing, so a failure
 * is ignored.
 */
void hash_randomize(void)
{
	(void)getrandom(&hash_secret, sizeof(hash_secret), GRND_NONBLOCK);
}

/*
 * Hash words of eight bytes; the last word is padded with zeros. The length is hashed first, so
 * that the padding cannot be confused with zero bytes of the input.
 */
uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t n)
{
	const uint8_t *p = bytes;
	uint64_t h = hash_u64(seed, n);

	for (; n >= 8; p += 8, n -= 8) {
		uint64_t word;

		memcpy(&word, p, 8);
		h = hash_u64(h, word);
	}
	if (n) {
		uint64_t word = 0;

		memcpy(&word, p, n);
		h = hash_u64(h, word);
	}
	return h;
}

/*
 * Put slot into the first free place from its home position on. The index must have a free slot.
 */
static void place(struct hash_index *index, struct hash_slot slot)
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
static int grow(struct hash_index *index)
{
	struct hash_index bigger = { .n_slots = index->n_slots ? index->n_slots * 2 : 64 };

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
int hash_add(struct hash_index *index, uint64_t hash, uint32_t id)
{
	if (index->n_used * 4 >= index->n_slots * 3) {
		int err = grow(index);

		if (err)
			return err;
	}
	place(index, (struct hash_slot){ .hash = (uint32_t)hash, .past = id + 1 });
	index->n_used++;
	return 0;
}

/* Return the number of the slot with this hash and id; n_slots: there is none. */
static size_t slot_of(const struct hash_index *index, uint64_t hash, uint32_t id)
{
	size_t mask = index->n_slots - 1;

	if (!index->n_slots)
		return 0;
	for (size_t i = (uint32_t)hash & mask; index->slots[i].past; i = (i + 1) & mask)
		if (index->slots[i].past == id + 1 && index->slots[i].hash == (uint32_t)hash)
			return i;
	return index->n_slots;
}

void hash_renumber(struct hash_index *index, uint64_t hash, uint32_t from, uint32_t to)
{
	size_t i = slot_of(index, hash, from);

	if (i < index->n_slots)
		index->slots[i].past = to + 1;
}

/* Remove without leaving a tombstone: entries after the removed one move back. */
void hash_remove(struct hash_index *index, uint64_t hash, uint32_t id)
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

void hash_clear(struct hash_index *index)
{
	if (index->n_slots)
		memset(index->slots, 0, index->n_slots * sizeof(*index->slots));
	index->n_used = 0;
}

void hash_fini(struct hash_index *index)
{
	free(index->slots);
	*index = (struct hash_index){ 0 };
}

/* Return whether the string is these n bytes, which hold no NUL: strncmp compares all of them. */
static bool is_string(const char *string, const char *bytes, size_t n)
{
	return !strncmp(string, bytes, n) && !string[n];
}

const char *strings_keep(struct strings *pool, const char *bytes, size_t n)
{
	size_t length = strnlen(bytes, n);
	uint64_t hash = hash_bytes(0, bytes, length);
	struct hash_search at;
	uint32_t id = hash_first(&pool->index, hash, &at);
	char *copy;

	while (id != HASH_NONE && !is_string(pool->strings[id], bytes, length))
		id = hash_next(&at);
	if (id != HASH_NONE)
		return pool->strings[id];
	if (array_grow(pool->strings, pool->n, pool->room))
		return NULL;
	copy = strndup(bytes, length);
	if (!copy || hash_add(&pool->index, hash, (uint32_t)pool->n)) {
		free(copy);
		return NULL;
	}
	pool->strings[pool->n++] = copy;
	return copy;
}

void strings_fini(struct strings *pool)
{
	for (size_t i = 0; i < pool->n; i++)
		free(pool->strings[i]);
	free(pool->strings);
	hash_fini(&pool->index);
	*pool = (struct strings){ 0 };
}

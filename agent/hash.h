/*
 * agent/hash.h: a hash index and a string pool.
 *
 * The index maps a hash to a small number (id), which is the position of an element in an array
 * that the caller owns. The pool stores each distinct string once. Neither takes locks: the caller
 * serializes access.
 */
#ifndef AGENT_HASH_H
#define AGENT_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A number that goes into every hash, so that nobody can prepare names or addresses that collide. It
 * is 0 until hash_randomize() is called, which the program does once at its start, before any index
 * is made. Hashes are compared within one process only.
 */
extern uint64_t hash_secret;
void hash_randomize(void);

/*
 * Hash n bytes. The hash is fast and not cryptographic, and its value depends on the machine's byte
 * order.
 */
uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t n);
/*
 * Hash a number. Multiply by 2^64 / golden ratio (Fibonacci hashing), and fold the high half of the
 * product into the low one: the index uses the low bits as the position of a slot. The product's low
 * half alone would not do: bit 63 of the number reaches nothing but bit 63 of it.
 */
static inline uint64_t hash_u64(uint64_t seed, uint64_t value)
{
	unsigned __int128 h =
		(unsigned __int128)(seed ^ value ^ hash_secret) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint64_t)h ^ (uint64_t)(h >> 64);
}

#define HASH_NONE UINT32_MAX

/*
 * A slot has eight bytes because the cost of a lookup is mostly cache misses: the smaller the
 * slots, the more of them fit in the CPU's caches.
 */
struct hash_slot {
	uint32_t hash; /* low half of the 64-bit hash */
	uint32_t past; /* id + 1; 0: free */
};

struct hash_index { /* all zero: empty */
	struct hash_slot *slots;
	size_t n_slots; /* 0 or a power of two */
	size_t n_used;
};

/*
 * Look up: hash_first returns an id whose hash has the same low 32 bits, hash_next another such id;
 * HASH_NONE: there are no more. The caller compares its own elements:
 *
 *	uint32_t id = hash_first(&index, hash, &at);
 *
 *	while (id != HASH_NONE && elements[id].key != key)
 *		id = hash_next(&at);
 *
 * The index must not change in between. These functions are inline because lookups are hot: after
 * inlining, struct hash_search is in registers and no comparison needs a call.
 */
struct hash_search {
	const struct hash_index *index;
	size_t i; /* of the slot to look at next, modulo n_slots */
	uint32_t hash;
};

static inline uint32_t hash_next(struct hash_search *at)
{
	/* The index is never full (see hash_add), so that a free slot ends every search. */
	for (;;) {
		const struct hash_slot *slot =
			&at->index->slots[at->i++ & (at->index->n_slots - 1)];

		if (!slot->past)
			return HASH_NONE;
		if (slot->hash == at->hash)
			return slot->past - 1;
	}
}

static inline uint32_t hash_first(const struct hash_index *index, uint64_t hash,
				  struct hash_search *at)
{
	*at = (struct hash_search){ .index = index, .i = (uint32_t)hash, .hash = (uint32_t)hash };
	return index->n_slots ? hash_next(at) : HASH_NONE;
}

/*
 * Add id. Neither the hash nor the id need be new to the index. Return 0 or -ENOMEM; on failure
 * the index is unchanged.
 */
int hash_add(struct hash_index *index, uint64_t hash, uint32_t id);
/* Remove the entry that was added with this hash and id, if there is one. */
void hash_remove(struct hash_index *index, uint64_t hash, uint32_t id);
/*
 * Change the id of the entry that was added with this hash and the id from, if there is one. For
 * arrays whose last element fills the gap of a removed one.
 */
void hash_renumber(struct hash_index *index, uint64_t hash, uint32_t from, uint32_t to);
void hash_clear(struct hash_index *index); /* removes all entries; the memory stays allocated */
/* Free the index's memory. The index is then empty and can be used again. */
void hash_fini(struct hash_index *index);

struct strings { /* all zero: empty */
	char **strings;
	size_t n, room;
	struct hash_index index;
};

/*
 * Return the pool's copy of the first n bytes, or of those before the first NUL if there is one.
 * The copy is NUL-terminated and borrowed until strings_fini. Return NULL only if memory runs out.
 */
const char *strings_keep(struct strings *pool, const char *bytes, size_t n);
void strings_fini(struct strings *pool);

#endif

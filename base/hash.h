/*
 * base/hash.h: a hash index. It maps a hash to a small number (id), which is the position of an
 * element in an array that the caller owns. It takes no locks: the caller serializes access.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Return the product of two numbers, its high half folded into the low one. */
static inline uint64_t uw_hash_product(uint64_t a, uint64_t b)
{
	unsigned __int128 h = (unsigned __int128)a * b;

	return (uint64_t)h ^ (uint64_t)(h >> 64);
}

/*
 * Hash a number. Multiply by 2^64 / golden ratio (Fibonacci hashing), and fold the high half of the
 * product into the low one: the index uses the low bits as the position of a slot. The product's low
 * half alone would not do: bit 63 of the number reaches nothing but bit 63 of it.
 */
static inline uint64_t uw_hash_u64(uint64_t value)
{
	return uw_hash_product(value, UINT64_C(0x9e3779b97f4a7c15));
}

#define UW_HASH_NONE UINT32_MAX

/*
 * A slot has eight bytes because the cost of a lookup is mostly cache misses: the smaller the
 * slots, the more of them fit in the CPU's caches.
 */
struct uw_hash_slot {
	uint32_t hash; /* low half of the 64-bit hash */
	uint32_t past; /* id + 1; 0: free */
};

struct uw_hash_index { /* all zero: empty */
	struct uw_hash_slot *slots;
	size_t n_slots; /* 0 or a power of two */
	size_t n_used;
};

static inline size_t uw_hash_memory(const struct uw_hash_index *index) /* bytes */
{
	return index->n_slots * sizeof(struct uw_hash_slot);
}

/*
 * The search behind UW_HASH_FIND: uw_hash_first returns an id whose hash has the same low 32 bits,
 * uw_hash_next another such id; UW_HASH_NONE: there are no more. The index must not change in between.
 * These functions are inline because lookups are hot: after inlining, struct uw_hash_search is in
 * registers and no comparison needs a call.
 */
struct uw_hash_search {
	const struct uw_hash_index *index;
	size_t i; /* of the slot to look at next, modulo n_slots */
	uint32_t hash;
};

static inline uint32_t uw_hash_next(struct uw_hash_search *at)
{
	/* The index is never full (see uw_hash_add), so that a free slot ends every search. */
	for (;;) {
		const struct uw_hash_slot *slot =
			&at->index->slots[at->i++ & (at->index->n_slots - 1)];

		if (!slot->past)
			return UW_HASH_NONE;
		if (slot->hash == at->hash)
			return slot->past - 1;
	}
}

static inline uint32_t uw_hash_first(const struct uw_hash_index *index, uint64_t hash,
				     struct uw_hash_search *at)
{
	*at = (struct uw_hash_search){ .index = index,
				       .i = (uint32_t)hash,
				       .hash = (uint32_t)hash };
	return index->n_slots ? uw_hash_next(at) : UW_HASH_NONE;
}

/* Let the CPU fetch where a search for this hash begins. */
static inline void uw_hash_prefetch(const struct uw_hash_index *index, uint64_t hash)
{
	if (index->n_slots)
		__builtin_prefetch(&index->slots[(uint32_t)hash & (index->n_slots - 1)]);
}

/*
 * Look up: return the first id i that was added with this hash and that fulfils the condition, or
 * UW_HASH_NONE. The condition compares an element of the caller with what is looked up:
 *
 *	id = UW_HASH_FIND(i, &index, hash, elements[i].key == key);
 */
#define UW_HASH_FIND(i, index, hash, condition)                        \
	__extension__({                                                \
		struct uw_hash_search search_;                         \
		uint32_t i = uw_hash_first((index), (hash), &search_); \
                                                                       \
		while (i != UW_HASH_NONE && !(condition))              \
			i = uw_hash_next(&search_);                    \
		i;                                                     \
	})

/*
 * Add id. Neither the hash nor the id need be new to the index. Return 0 or -ENOMEM; on failure
 * the index is unchanged.
 */
int uw_hash_add(struct uw_hash_index *index, uint64_t hash, uint32_t id);
/* Remove the entry that was added with this hash and id, if there is one. */
void uw_hash_remove(struct uw_hash_index *index, uint64_t hash, uint32_t id);
/*
 * Change the id of the entry that was added with this hash and the id from, if there is one. For
 * arrays whose last element fills the gap of a removed one.
 */
void uw_hash_renumber(struct uw_hash_index *index, uint64_t hash, uint32_t from, uint32_t to);
void uw_hash_clear(
	struct uw_hash_index *index); /* removes all entries; the memory stays allocated */
/* Free the index's memory. The index is then empty and can be used again. */
void uw_hash_fini(struct uw_hash_index *index);

#endif

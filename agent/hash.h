/*
 * agent/hash.h: an index from hash to small numbers (places in an array of the
 * caller's) and a pool of strings kept once.
 */
#ifndef AGENT_HASH_H
#define AGENT_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t n);
uint64_t hash_u64(uint64_t seed, uint64_t value);

#define HASH_NONE UINT32_MAX

/* Eight bytes: what a look-up costs is how much of them the CPU's caches hold. */
struct hash_slot {
	uint32_t hash; /* its low half */
	uint32_t past; /* id + 1; 0: free */
};

struct hash_index { /* all zero: empty */
	struct hash_slot *slots;
	size_t n_slots; /* 0 or a power of two */
	size_t n_used;
};

typedef bool (*hash_equal_fn)(const void *ctx, uint32_t id);

/* The id with this hash for which equal says so, or HASH_NONE. */
uint32_t hash_find(const struct hash_index *index, uint64_t hash, hash_equal_fn equal,
		   const void *ctx);
int hash_add(struct hash_index *index, uint64_t hash, uint32_t id); /* -ENOMEM */
void hash_remove(struct hash_index *index, uint64_t hash, uint32_t id);
void hash_clear(struct hash_index *index); /* empty again, memory kept */
void hash_fini(struct hash_index *index);

struct strings { /* all zero: empty */
	char **strings;
	size_t n, room;
	struct hash_index index;
};

/* The pool's own copy, NUL-terminated, for the pool's life; NULL only when out of memory. */
const char *strings_keep(struct strings *pool, const char *bytes, size_t n);
void strings_fini(struct strings *pool);

#endif

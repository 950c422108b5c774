/*
 * agent/hash.h: hashes with a secret, for the index of base/hash.h, and a pool that stores each
 * distinct string once. They take no locks: the caller serializes access.
 */
#ifndef AGENT_HASH_H
#define AGENT_HASH_H

#include "base/hash.h"

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
 * Hash a number. The secret goes into both factors: of a hash of seed ^ value it would be known which pairs collide,
 * whatever the secret is.
 */
static inline uint64_t hash_u64(uint64_t seed, uint64_t value)
{
	uint64_t other = hash_secret << 32 | hash_secret >> 32;

	return uw_hash_product(seed ^ hash_secret ^ UINT64_C(0x9e3779b97f4a7c15),
			       value ^ other ^ UINT64_C(0xd1b54a32d192ed03));
}

struct strings {	/* all zero: empty */
	char **strings; /* each has a byte before it: its mark */
	size_t n, room;
	struct uw_hash_index index;
};

/*
 * Return the pool's copy of the first n bytes, or of those before the first NUL if there is one.
 * The copy is NUL-terminated and borrowed until strings_fini. Return NULL only if memory runs out.
 */
const char *strings_keep(struct strings *pool, const char *bytes, size_t n);
/*
 * strings_mark marks a string that a pool returned; NULL is fine. strings_sweep then frees all
 * strings without a mark, and takes the marks away.
 */
void strings_mark(const char *string);
void strings_sweep(struct strings *pool);
void strings_fini(struct strings *pool);

#endif

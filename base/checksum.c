/* base/checksum.c: computes XXH64 checksums. */
#include "base/checksum.h"

#include <endian.h>
#include <string.h>

/* The algorithm and its constants are those of the xxHash specification, XXH64. */
#define PRIME_1 0x9e3779b185ebca87u
#define PRIME_2 0xc2b2ae3d27d4eb4fu
#define PRIME_3 0x165667b19e3779f9u
#define PRIME_4 0x85ebca77c2b2ae63u
#define PRIME_5 0x27d4eb2f165667c5u

static inline uint64_t little8(const uint8_t *p)
{
	uint64_t value;

	memcpy(&value, p, 8);
	return le64toh(value);
}

static inline uint32_t little4(const uint8_t *p)
{
	uint32_t value;

	memcpy(&value, p, 4);
	return le32toh(value);
}

/* Rotate left. */
static inline uint64_t turn(uint64_t value, unsigned int bits)
{
	return value << bits | value >> (64 - bits);
}

/* The specification's "round": add a word to a lane. */
static inline uint64_t mix(uint64_t lane, uint64_t word)
{
	return turn(lane + word * PRIME_2, 31) * PRIME_1;
}

/*
 * The algorithm is in xxHash's doc/xxhash_spec.md: four lanes over stripes of 32 bytes, then the
 * rest in steps of 8, 4 and 1 bytes, then the final mix.
 */
uint64_t uw_checksum(const void *data, size_t size, uint64_t seed)
{
	const uint8_t *p = data;
	size_t left = size;
	uint64_t hash = seed + PRIME_5;

	if (left >= 32) {
		/*
		 * Four variables instead of an array: compilers store an array in memory, with
		 * twice the instructions.
		 */
		uint64_t a = seed + PRIME_1 + PRIME_2, b = seed + PRIME_2, c = seed,
			 d = seed - PRIME_1;

		for (; left >= 32; left -= 32, p += 32) {
			a = mix(a, little8(p));
			b = mix(b, little8(p + 8));
			c = mix(c, little8(p + 16));
			d = mix(d, little8(p + 24));
		}
		hash = turn(a, 1) + turn(b, 7) + turn(c, 12) + turn(d, 18);
		hash = (hash ^ mix(0, a)) * PRIME_1 + PRIME_4;
		hash = (hash ^ mix(0, b)) * PRIME_1 + PRIME_4;
		hash = (hash ^ mix(0, c)) * PRIME_1 + PRIME_4;
		hash = (hash ^ mix(0, d)) * PRIME_1 + PRIME_4;
	}
	hash += size;
	for (; left >= 8; left -= 8, p += 8)
		hash = turn(hash ^ mix(0, little8(p)), 27) * PRIME_1 + PRIME_4;
	if (left >= 4) {
		hash = turn(hash ^ little4(p) * PRIME_1, 23) * PRIME_2 + PRIME_3;
		left -= 4;
		p += 4;
	}
	for (; left; left--, p++)
		hash = turn(hash ^ *p * PRIME_5, 11) * PRIME_1;
	hash = (hash ^ hash >> 33) * PRIME_2;
	hash = (hash ^ hash >> 29) * PRIME_3;
	return hash ^ hash >> 32;
}

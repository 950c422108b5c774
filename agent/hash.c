/* agent/hash.c: hashes with a secret, and the string pool. */
#include "agent/hash.h"

#include "agent/array.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { UNMARKED, MARKED }; /* the byte before a string */

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

/* Return whether the string is these n bytes, which hold no NUL: strncmp compares all of them. */
static bool is_string(const char *string, const char *bytes, size_t n)
{
	return !strncmp(string, bytes, n) && !string[n];
}

const char *strings_keep(struct strings *pool, const char *bytes, size_t n)
{
	size_t length = strnlen(bytes, n);
	uint64_t hash = hash_bytes(0, bytes, length);
	uint32_t id =
		UW_HASH_FIND(i, &pool->index, hash, is_string(pool->strings[i], bytes, length));
	char *copy;

	if (id != UW_HASH_NONE)
		return pool->strings[id];
	if (array_grow(pool->strings, pool->n, pool->room))
		return NULL;
	copy = malloc(length + 2);
	if (!copy || uw_hash_add(&pool->index, hash, (uint32_t)pool->n)) {
		free(copy);
		return NULL;
	}
	*copy++ = UNMARKED;
	memcpy(copy, bytes, length);
	copy[length] = '\0';
	pool->strings[pool->n++] = copy;
	return copy;
}

void strings_mark(const char *string)
{
	if (string)
		*((char *)(uintptr_t)string - 1) = MARKED;
}

/* The indexes in the array change, so the index is made again; it has room for all that are left. */
void strings_sweep(struct strings *pool)
{
	size_t n = pool->n;

	pool->n = 0;
	uw_hash_clear(&pool->index);
	for (size_t i = 0; i < n; i++) {
		char *string = pool->strings[i];

		if (string[-1] == UNMARKED) {
			free(string - 1);
			continue;
		}
		string[-1] = UNMARKED;
		(void)uw_hash_add(&pool->index, hash_bytes(0, string, strlen(string)),
				  (uint32_t)pool->n);
		pool->strings[pool->n++] = string;
	}
}

void strings_fini(struct strings *pool)
{
	for (size_t i = 0; i < pool->n; i++)
		free(pool->strings[i] - 1);
	free(pool->strings);
	uw_hash_fini(&pool->index);
	*pool = (struct strings){ 0 };
}

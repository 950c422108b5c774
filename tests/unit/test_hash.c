/* tests/unit/test_hash.c: tests the hash index against a plain array, and the table of strings. */
#include "agent/hash.h"

#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

/* Few distinct hashes, so that chains are long and removal has to close gaps. */
static uint64_t weak(uint32_t id)
{
	return id % 7;
}

/* Look up id among all others with the same hash. */
static bool has(const struct uw_hash_index *index, uint32_t id)
{
	struct uw_hash_search at;
	uint32_t found = uw_hash_first(index, weak(id), &at);

	while (found != UW_HASH_NONE && found != id)
		found = uw_hash_next(&at);
	return found == id;
}

static void test_index_agrees_with_a_plain_array(void)
{
	struct uw_hash_index index = { 0 };
	bool there[300] = { 0 };

	srand(1);
	for (int step = 0; step < 20000; step++) {
		uint32_t id = (uint32_t)rand() % 300;

		if (there[id])
			uw_hash_remove(&index, weak(id), id);
		else
			CHECK(!uw_hash_add(&index, weak(id), id), "memory");
		there[id] = !there[id];
		id = (uint32_t)rand() % 300;
		CHECK(has(&index, id) == there[id], "found exactly what was added");
	}
	uw_hash_clear(&index);
	for (uint32_t id = 0; id < 300; id++)
		CHECK(!has(&index, id), "cleared");
	uw_hash_fini(&index);
}

/*
 * Bit 63 of one word and bits 63 and 34 of the next: with the low half of a product alone, such
 * words have the same hash under every secret.
 */
static void test_collisions_cannot_be_prepared(void)
{
	unsigned int same = 0;

	for (int round = 0; round < 1000; round++) {
		uint64_t words[2] = { (uint64_t)rand(), (uint64_t)rand() }, others[2];

		others[0] = words[0] ^ UINT64_C(1) << 63;
		others[1] = words[1] ^ UINT64_C(1) << 63 ^ UINT64_C(1) << 34;
		hash_randomize();
		same += (uint32_t)hash_bytes(0, words, sizeof(words)) ==
			(uint32_t)hash_bytes(0, others, sizeof(others));
	}
	CHECK(same < 10, "words that differ in high bits have different hashes");
	same = 0;
	for (uint64_t i = 0; i < 1000; i++)
		same += (uint32_t)hash_u64(i, i ^ 12345) ==
			(uint32_t)hash_u64(i + 1, (i + 1) ^ 12345);
	CHECK(same < 10, "nor can seeds be");
}

/* A dense array: the last element fills the gap of a removed one. Its keys are hashed weakly. */
static void test_elements_can_move(void)
{
	struct uw_hash_index index = { 0 };
	uint32_t keys[200], n = 0;

	srand(2);
	for (int step = 0; step < 20000; step++) {
		uint32_t key = (uint32_t)rand() % 200;
		struct uw_hash_search at;
		uint32_t id = uw_hash_first(&index, weak(key), &at);

		while (id != UW_HASH_NONE && keys[id] != key)
			id = uw_hash_next(&at);
		for (uint32_t i = 0; i < n; i++)
			CHECK((keys[i] == key) == (i == id), "the index knows where a key is");
		if (id == UW_HASH_NONE) {
			keys[n] = key;
			CHECK(!uw_hash_add(&index, weak(key), n++), "memory");
			continue;
		}
		uw_hash_remove(&index, weak(key), id);
		keys[id] = keys[--n];
		if (id != n)
			uw_hash_renumber(&index, weak(keys[id]), n, id);
		CHECK(index.n_used == n, "one entry for each key");
	}
	uw_hash_fini(&index);
}

/* An id may be in the index with two hashes, here of overlapping chains. */
static void test_remove_looks_at_the_hash(void)
{
	struct uw_hash_index index = { 0 };
	struct uw_hash_search at;

	CHECK(!uw_hash_add(&index, 64, 1) && !uw_hash_add(&index, 0, 1), "memory");
	uw_hash_remove(&index, 0, 1);
	CHECK(uw_hash_first(&index, 64, &at) == 1 && uw_hash_first(&index, 0, &at) == UW_HASH_NONE,
	      "the other entry stays");
	uw_hash_fini(&index);
}

static void test_strings_are_kept_once(void)
{
	struct strings pool = { 0 };
	const char *a = strings_keep(&pool, "abcdef", 3), *b = strings_keep(&pool, "abc", 100);

	CHECK(a && a == b && !strcmp(a, "abc"), "same text, same pointer");
	CHECK(strings_keep(&pool, "ab", 2) != a, "a prefix is another string");
	CHECK(!strcmp(strings_keep(&pool, "", 0), ""), "the empty string");
	for (int i = 0; i < 1000; i++) {
		char text[16];

		(void)snprintf(text, sizeof(text), "s%d", i);
		CHECK(!strcmp(strings_keep(&pool, text, sizeof(text)), text), text);
	}
	CHECK(strings_keep(&pool, "abc", 3) == a, "and stays where it is");
	strings_fini(&pool);
}

int main(void)
{
	test_index_agrees_with_a_plain_array();
	test_collisions_cannot_be_prepared();
	test_elements_can_move();
	test_remove_looks_at_the_hash();
	test_strings_are_kept_once();
	return check_done();
}

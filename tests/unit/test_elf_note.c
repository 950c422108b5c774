/* tests/unit/test_elf_note.c: tests how the notes of ELF files are read. */
#include "base/elf_note.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

#define ID "0123456789abcdefghij"
enum { ID_SIZE = sizeof(ID) - 1 };

struct notes {
	uint8_t bytes[512];
	size_t size;
};

/* Append a note, padded to align. claimed: the contents' size in its header. */
static void put_claim(struct notes *n, size_t align, const char *owner, size_t owner_size,
		      uint32_t type, const char *contents, size_t size, uint32_t claimed)
{
	uint32_t head[3] = { (uint32_t)owner_size, claimed, type };
	size_t start = n->size, mask = align - 1;

	memcpy(n->bytes + n->size, head, sizeof(head));
	memcpy(n->bytes + start + 12, owner, owner_size);
	n->size = start + ((12 + owner_size + mask) & ~mask);
	memcpy(n->bytes + n->size, contents, size);
	n->size += (size + mask) & ~mask;
}

static void put(struct notes *n, size_t align, const char *owner, uint32_t type,
		const char *contents, size_t size)
{
	put_claim(n, align, owner, strlen(owner) + 1, type, contents, size, (uint32_t)size);
}

/*
 * Look for the build-id in a copy of exactly size bytes that begins at an odd address, so that the
 * sanitizers see every read that is out of bounds or not aligned.
 */
static bool find(const struct notes *n, size_t size, uint64_t align, struct uw_build_id *out)
{
	uint8_t *copy = malloc(size + 1);
	bool found;

	CHECK(copy != NULL, "memory");
	memcpy(copy + 1, n->bytes, size);
	found = uw_note_build_id(copy + 1, size, align, out);
	free(copy);
	return found;
}

static bool finds_id(const struct notes *n, uint64_t align)
{
	struct uw_build_id id = { .size = 0 };

	return find(n, n->size, align, &id) && id.size == ID_SIZE && !memcmp(id.bytes, ID, ID_SIZE);
}

static void test_the_build_id_is_found_among_others(void)
{
	static const size_t aligns[] = { 4, 8 };

	for (size_t i = 0; i < 2; i++) {
		struct notes n = { .size = 0 };

		/* Other owners and types; contents of 1 to 3 bytes are padded. */
		put(&n, aligns[i], "GNU", NT_GNU_ABI_TAG, "a", 1);
		put(&n, aligns[i], "Go", NT_GNU_BUILD_ID, "bc", 2);
		put(&n, aligns[i], "stapsdt", NT_GNU_BUILD_ID, "def", 3);
		put(&n, aligns[i], "GNU", NT_GNU_PROPERTY_TYPE_0, "", 0);
		put(&n, aligns[i], "GNU", NT_GNU_BUILD_ID, ID, ID_SIZE);
		put(&n, aligns[i], "GNU", NT_GNU_BUILD_ID, "later", 5);
		CHECK(finds_id(&n, aligns[i]), "the first one");
	}
}

static void test_owners_may_be_empty_or_not_terminated(void)
{
	struct notes n = { .size = 0 };

	put_claim(&n, 4, "", 0, NT_GNU_BUILD_ID, "xxxx", 4, 4);
	put_claim(&n, 4, "GNU", 3, NT_GNU_BUILD_ID, "xxxx", 4, 4);
	put(&n, 4, "GNU", NT_GNU_BUILD_ID, ID, ID_SIZE);
	CHECK(finds_id(&n, 4), "these are of other owners");
}

/* Zeros behind the notes are notes without owner and contents. */
static void test_zeros_are_passed_over(void)
{
	struct notes n = { .size = 36 };
	struct uw_build_id id;

	put(&n, 4, "GNU", NT_GNU_BUILD_ID, ID, ID_SIZE);
	CHECK(finds_id(&n, 4), "behind zeros");
	n = (struct notes){ .size = 100 };
	CHECK(!find(&n, n.size, 4, &id), "zeros alone");
	CHECK(!find(&n, 0, 4, &id), "nothing");
}

static void test_other_sizes_are_no_build_id(void)
{
	static const char zeros[UW_BUILD_ID_MAX + 1];
	struct notes n = { .size = 0 };
	struct uw_build_id id;

	put(&n, 4, "GNU", NT_GNU_BUILD_ID, "", 0);
	put(&n, 4, "GNU", NT_GNU_BUILD_ID, zeros, UW_BUILD_ID_MAX + 1);
	CHECK(!find(&n, n.size, 4, &id), "empty or too long");
	put(&n, 4, "GNU", NT_GNU_BUILD_ID, zeros, UW_BUILD_ID_MAX);
	CHECK(find(&n, n.size, 4, &id) && id.size == UW_BUILD_ID_MAX, "the longest");
}

static void test_notes_that_are_cut_short_end_the_search(void)
{
	struct notes n = { .size = 0 };
	size_t whole;

	put(&n, 4, "stapsdt", 3, "abc", 3);
	whole = n.size + 12 + 4 + 5; /* the last note may lack its padding */
	put(&n, 4, "GNU", NT_GNU_BUILD_ID, "12345", 5);
	for (size_t size = 0; size <= n.size; size++) {
		struct uw_build_id id = { .size = 77 };

		CHECK(find(&n, size, 4, &id) == (size >= whole), "cut");
		CHECK(id.size == (size >= whole ? 5 : 77), "unchanged if there is none");
	}
}

/* Sizes of nearly 4 GiB, whose padding does not fit in 32 bits. */
static void test_large_claims_do_not_wrap_around(void)
{
	static const uint32_t claims[] = { 64, INT32_MAX, 0xfffffff0, 0xfffffffc, UINT32_MAX };
	struct uw_build_id id;

	for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
		struct notes n = { .size = 0 };

		put_claim(&n, 4, "GNU", 4, NT_GNU_ABI_TAG, "", 0, claims[i]);
		put(&n, 4, "GNU", NT_GNU_BUILD_ID, ID, ID_SIZE);
		CHECK(!find(&n, n.size, 4, &id), "contents");
		memcpy(n.bytes, &claims[i], 4);
		memset(n.bytes + 4, 0, 4);
		CHECK(!find(&n, n.size, 4, &id), "owner");
		CHECK(!find(&n, n.size, 8, &id), "owner, with the other alignment");
	}
}

int main(void)
{
	test_the_build_id_is_found_among_others();
	test_owners_may_be_empty_or_not_terminated();
	test_zeros_are_passed_over();
	test_other_sizes_are_no_build_id();
	test_notes_that_are_cut_short_end_the_search();
	test_large_claims_do_not_wrap_around();
	return check_done();
}

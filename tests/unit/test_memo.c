#include "unwinder/memo.h"

#include "tests/check.h"

/* As many as there is room for are not all kept, but what is found is what was kept. */
static void test_what_is_found_was_kept(void)
{
	struct uw_memo memo = { 0 };
	uint64_t n = 5000, found = 0;

	for (uint64_t i = 0; i < n; i++)
		uw_memo_keep(&memo, i * 7 | (i & 1) << 63, i * 3, (uint8_t)(i % 5), 1 << 20);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t word = 1;
		uint8_t stepper = 9;

		if (!uw_memo_find(&memo, i * 7 | (i & 1) << 63, &word, &stepper))
			continue;
		found++;
		CHECK(word == i * 3 && stepper == i % 5, "the word is its own");
		CHECK(!uw_memo_find(&memo, i * 7 | (~i & 1) << 63, &word, &stepper),
		      "exact is another key");
	}
	CHECK(found > n / 2, "most are still there");
	uw_memo_fini(&memo);
}

/* A few take little room, and what they said is there when there is more. */
static void test_it_grows_with_what_is_kept(void)
{
	struct uw_memo memo = { 0 };
	uint64_t word, found = 0;
	uint8_t stepper;

	uw_memo_keep(&memo, 0, 7, 1, 1 << 24);
	CHECK(memo.bits == 8, "256 slots at first");
	for (uint64_t i = 1; i < 160; i++)
		uw_memo_keep(&memo, i * 11, i, 1, 1 << 24);
	CHECK(memo.bits == 10, "then 1,024");
	for (uint64_t i = 1; i < 128; i++)
		found += uw_memo_find(&memo, i * 11, &word, &stepper) && word == i;
	CHECK(found > 64, "early ones outlive its growing");
	for (uint64_t i = 160; i < 20000; i++)
		uw_memo_keep(&memo, i * 11, i, 1, 1 << 24);
	CHECK(memo.bits == 14, "16,384 at most");
	uw_memo_fini(&memo);
	memo = (struct uw_memo){ 0 };
	for (uint64_t i = 0; i < 20000; i++)
		uw_memo_keep(&memo, i * 11, i, 1, 2048);
	CHECK(memo.bits == 8, "a small file's stays small");
	uw_memo_fini(&memo);
}

static void test_an_empty_memo_knows_nothing(void)
{
	struct uw_memo memo = { 0 };
	uint64_t word;
	uint8_t stepper;

	CHECK(!uw_memo_find(&memo, 0, &word, &stepper), "nothing kept");
	uw_memo_keep(&memo, 5, 3, 1, 0);
	CHECK(!uw_memo_find(&memo, 0, &word, &stepper), "a free slot is no key");
	CHECK(uw_memo_find(&memo, 5, &word, &stepper) && word == 3 && stepper == 1, "the one kept");
	uw_memo_fini(&memo);
}

/* Somebody else is at it: nobody waits, nothing is said. */
static void test_a_memo_in_use_is_passed_by(void)
{
	struct uw_memo memo = { 0 };
	uint64_t word;
	uint8_t stepper;

	uw_memo_keep(&memo, 5, 3, 1, 0);
	atomic_store(&memo.busy, true);
	CHECK(!uw_memo_find(&memo, 5, &word, &stepper), "in use");
	uw_memo_keep(&memo, 6, 3, 1, 0);
	atomic_store(&memo.busy, false);
	CHECK(uw_memo_find(&memo, 5, &word, &stepper) && !uw_memo_find(&memo, 6, &word, &stepper),
	      "as it was");
	uw_memo_fini(&memo);
}

int main(void)
{
	test_what_is_found_was_kept();
	test_it_grows_with_what_is_kept();
	test_an_empty_memo_knows_nothing();
	test_a_memo_in_use_is_passed_by();
	return check_done();
}

/* tests/unit/test_memo.c: tests the rule cache of an object. */
#include "unwinder/rule/rule_cache.h"

#include "tests/check.h"

/* Not all rules are cached, even if there is room for so many; but what is found was stored. */
static void test_what_is_found_was_kept(void)
{
	struct uw_memo memo;
	uint64_t n = 5000, found = 0;

	uw_memo_init(&memo, 1 << 20);
	for (uint64_t i = 0; i < n; i++)
		uw_memo_keep(&memo, i * 7 | (i & 1) << 63, i * 3, (uint8_t)(i % 5));
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

static void test_its_room_fits_the_section(void)
{
	static const struct {
		uint64_t size;
		unsigned int bits;
	} cases[] = { { 0, 8 },	      { 2048, 8 },     { 1 << 14, 8 },
		      { 100000, 11 }, { 1 << 20, 14 }, { UINT64_MAX, 14 } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct uw_memo memo;

		uw_memo_init(&memo, cases[i].size);
		CHECK(memo.slots && memo.bits == cases[i].bits, "256 to 16,384 slots");
		uw_memo_fini(&memo);
	}
}

static void test_an_empty_memo_knows_nothing(void)
{
	struct uw_memo memo = { 0 };
	uint64_t word;
	uint8_t stepper;

	uw_memo_keep(&memo, 5, 3, 1);
	CHECK(!uw_memo_find(&memo, 5, &word, &stepper), "without room");
	uw_memo_fini(&memo);
	uw_memo_init(&memo, 0);
	CHECK(!uw_memo_find(&memo, 0, &word, &stepper), "nothing kept");
	uw_memo_keep(&memo, 5, 3, 1);
	CHECK(!uw_memo_find(&memo, 0, &word, &stepper), "a free slot is no key");
	CHECK(uw_memo_find(&memo, 5, &word, &stepper) && word == 3 && stepper == 1, "the one kept");
	uw_memo_fini(&memo);
}

/* Another thread uses the cache: a lookup does not wait and finds nothing. */
static void test_a_memo_in_use_is_passed_by(void)
{
	struct uw_memo memo;
	uint64_t word;
	uint8_t stepper;

	uw_memo_init(&memo, 0);
	uw_memo_keep(&memo, 5, 3, 1);
	atomic_store(&memo.busy, true);
	CHECK(!uw_memo_find(&memo, 5, &word, &stepper), "in use");
	uw_memo_keep(&memo, 6, 3, 1);
	atomic_store(&memo.busy, false);
	CHECK(uw_memo_find(&memo, 5, &word, &stepper) && !uw_memo_find(&memo, 6, &word, &stepper),
	      "as it was");
	uw_memo_fini(&memo);
}

int main(void)
{
	test_what_is_found_was_kept();
	test_its_room_fits_the_section();
	test_an_empty_memo_knows_nothing();
	test_a_memo_in_use_is_passed_by();
	return check_done();
}

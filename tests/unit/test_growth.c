#include "base/growth.h"

#include "tests/check.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

static void test_arrays_grow_to_their_limit(void)
{
	uint32_t *numbers = NULL;
	size_t room = 0, n = 0, moves = 0, before;
	int err = 0;

	for (; n < 1000 && !err; moves += room != before) {
		before = room;
		err = UW_ARRAY_GROW(numbers, n, room, 1000);
		if (!err)
			numbers[n] = (uint32_t)n;
		n += !err;
	}
	CHECK(!err && n == 1000 && room == 1000 && moves == 5, "64, 128, 256, 512, 1000");
	CHECK(numbers && numbers[0] == 0 && numbers[999] == 999, "the elements stay");
	CHECK(UW_ARRAY_GROW(numbers, n, room, 1000) == -E2BIG && room == 1000, "one more");
	CHECK(!UW_ARRAY_RESERVE(numbers, 5000, room, SIZE_MAX) && room == 5000, "many at once");
	free(numbers);
}

static void test_small_limits_hold(void)
{
	uint64_t *numbers = NULL;
	size_t room = 0;

	CHECK(!UW_ARRAY_RESERVE(numbers, 0, room, 10) && !numbers, "nothing is needed");
	CHECK(!UW_ARRAY_GROW(numbers, 0, room, 10) && room >= 1 && room <= 10, "below the least");
	CHECK(UW_ARRAY_GROW(numbers, 10, room, 10) == -E2BIG, "beyond the limit");
	free(numbers);
}

int main(void)
{
	test_arrays_grow_to_their_limit();
	test_small_limits_hold();
	return check_done();
}

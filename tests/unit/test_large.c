/* tests/unit/test_large.c: tests allocations on large pages: any size, and too much. */
#include "base/large.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"

#define MIB ((size_t)1 << 20)

/*
 * The memory is writable from beginning to end. From 2 MiB on it is aligned to 2 MiB, for large
 * pages.
 */
static void test_any_size_is_had(void)
{
	const size_t sizes[] = { 0, 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 5 * MIB };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t *memory = uw_large_alloc(sizes[i]);

		CHECK(memory, "memory");
		if (!memory)
			return;
		memset(memory, 0x5a, sizes[i]);
		CHECK(sizes[i] < 2 * MIB || (uintptr_t)memory % (2 * MIB) == 0, "aligned");
		CHECK(!sizes[i] || (memory[0] == 0x5a && memory[sizes[i] - 1] == 0x5a), "written");
		free(memory);
	}
}

static void test_too_much_is_not(void)
{
	CHECK(!uw_large_alloc(SIZE_MAX) && !uw_large_alloc(SIZE_MAX - 4 * MIB), "no such memory");
}

int main(void)
{
	test_any_size_is_had();
	test_too_much_is_not();
	return check_done();
}

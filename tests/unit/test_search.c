#include "base/search.h"

#include "tests/check.h"

#include <stdint.h>

static void test_counts_are_those_of_a_loop(void)
{
	struct {
		int before;
		uint64_t at;
	} a[20];
	static const uint64_t values[] = {
		0, 1, 2, 3, 4, 7, 8, 9, 1000, UINT64_MAX - 1, UINT64_MAX
	};

	for (size_t n = 0; n <= sizeof(a) / sizeof(a[0]); n++) {
		for (size_t i = 0; i < n; i++)
			a[i].at = i == 19 ? UINT64_MAX : i / 3 * 2; /* each three times */
		for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
			size_t upto = 0, below = 0;

			for (size_t i = 0; i < n; i++) {
				upto += a[i].at <= values[k];
				below += a[i].at < values[k];
			}
			CHECK(UW_COUNT_WHILE(m, n, a[m].at <= values[k]) == upto, "up to");
			CHECK(UW_COUNT_WHILE(m, n, a[m].at < values[k]) == below, "below");
		}
	}
	CHECK(UW_COUNT_WHILE(m, 11, values[m] <= 8) == 7, "an array of numbers");
	CHECK(UW_COUNT_WHILE(m, 0, m < 8) == 0, "nothing");
}

int main(void)
{
	test_counts_are_those_of_a_loop();
	return check_done();
}

/* tests/unit/test_limits.c: tests the table of limits: values, ranges, and counts. */
#include "agent/limits.h"

#include "unwinder/unwinder.h"

#include <errno.h>
#include <string.h>

#include "tests/check.h"

static void test_each_row_is_sound(void)
{
	size_t n;
	const struct limits_row *rows = limits_rows(&n);
	size_t n_own = 0;

	CHECK(n > 20, "rows");
	for (size_t i = 0; i < n; i++) {
		const struct limits_row *row = &rows[i];

		CHECK(limits_find(row->name, strlen(row->name)) == row, row->name);
		CHECK(row->least && row->least <= limits_value(row), row->name);
		CHECK(limits_value(row) <= limits_most(row), row->name);
		CHECK(!limits_count(row), row->name);
		CHECK(!strpbrk(row->name, "_= ") && row->beyond[0], row->name);
		n_own += !row->of_library;
	}
	CHECK(n_own == sizeof(struct limits) / sizeof(uint64_t), "each field of ours has a row");
	CHECK(n - n_own == sizeof(struct uw_limits) / sizeof(uint64_t), "and of the library's");
	CHECK(!limits_find("frame", 5) && !limits_find("framess", 7), "no other names");
	CHECK(limits_find("frames=3", 6), "the name ends where it is said to");
}

/* Every row sets a number of its own, and nothing else. */
static void test_each_row_sets_its_own(void)
{
	size_t n;
	const struct limits_row *rows = limits_rows(&n);

	for (size_t i = 0; i < n; i++) {
		uint64_t value = limits_value(&rows[i]);

		CHECK(limits_set(&rows[i], rows[i].least - 1) == -EINVAL, rows[i].name);
		CHECK(limits_set(&rows[i], limits_most(&rows[i]) + 1) == -EINVAL, rows[i].name);
		CHECK(limits_value(&rows[i]) == value, rows[i].name);
		CHECK(!limits_set(&rows[i], limits_most(&rows[i])), rows[i].name);
		CHECK(!limits_set(&rows[i], rows[i].least + i), rows[i].name);
	}
	for (size_t i = 0; i < n; i++)
		CHECK(limits_value(&rows[i]) == rows[i].least + i, rows[i].name);
}

static void test_what_is_reached_is_counted(void)
{
	const struct limits_row *row = limits_find("mappings", 8);
	struct uw_limits reached;

	limits_reach(mappings, 3);
	limits_reach(mappings, 1);
	CHECK(limits_count(row) == 4, "ours");
	uw_limits_reached(&reached);
	CHECK(!reached.operations && !reached.lines, "the library's: nothing was read");
}

static void test_the_library_refuses_values(void)
{
	struct uw_limits now, most;

	uw_limits_get(&now);
	uw_limits_most(&most);
	CHECK(!uw_limits_set(&most) && !uw_limits_set(&now), "all at once");
	now.rows = 0;
	CHECK(uw_limits_set(&now) == -EINVAL, "0 is no limit");
	now.rows = most.rows + 1;
	CHECK(uw_limits_set(&now) == -EINVAL, "more than a table can hold");
}

int main(void)
{
	test_each_row_is_sound();
	test_what_is_reached_is_counted();
	test_each_row_sets_its_own();
	test_the_library_refuses_values();
	return check_done();
}

/* tests/unit/test_when.c: points in time as options and requests have them. */
#include "agent/cli/when.h"
#include "tests/check.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define SECOND UINT64_C(1000000000)

static uint64_t parse(const char *text)
{
	uint64_t now = UINT64_C(1800000000) * SECOND + 250000000, out = 1;

	return when_parse(text, now, &out) ? 0 : out;
}

int main(void)
{
	static const char *const wrong[] = { "",
					     "-",
					     "-5",
					     "-m",
					     "-5x",
					     "5m",
					     "-1e3s",
					     "@",
					     "@x",
					     "1x",
					     "24:61",
					     "2026-13-01",
					     "2026-01-31x",
					     "2026-01-31 10:00x",
					     "-1..5s",
					     "@99999999999",
					     "-99999999999d",
					     "now ",
					     "T10:00",
					     "1969-01-01Z" };

	uint64_t given = 0;
	char epoch[] = "@0";

	(void)setenv("TZ", "Europe/Berlin", 1);
	tzset();
	CHECK(parse("now") == UINT64_C(1800000000250000000), "now");
	CHECK(parse("-10m") == UINT64_C(1799999400250000000), "before now");
	CHECK(parse("-1h30m") == UINT64_C(1799994600250000000), "two units");
	CHECK(parse("-250ms") == UINT64_C(1800000000) * SECOND, "milliseconds");
	CHECK(parse("+2s") == UINT64_C(1800000002250000000), "after now");
	CHECK(parse("-1w") == parse("-7d") && parse("-2min") == parse("-120s"), "units");
	CHECK(parse("@1790000000.5") == UINT64_C(1790000000500000000), "seconds since 1970");
	CHECK(parse("1790000000") == UINT64_C(1790000000) * SECOND, "without @");
	CHECK(parse("2026-01-31T12:00:00Z") == UINT64_C(1769860800) * SECOND, "UTC");
	CHECK(parse("2026-01-31 13:00:00") == UINT64_C(1769860800) * SECOND, "local time");
	CHECK(parse("2026-01-31 13:00") == UINT64_C(1769860800) * SECOND, "without seconds");
	CHECK(parse("2026-01-31T12:00:00.25Z") == UINT64_C(1769860800250000000), "a fraction");
	CHECK(parse("2026-01-31") == UINT64_C(1769814000) * SECOND, "a day begins at midnight");
	CHECK(parse("2026-07-31") == UINT64_C(1785448800) * SECOND, "in summer, too");
	/* 1800000000 is 2027-01-15 09:00:00 there. */
	CHECK(parse("today") == UINT64_C(1799967600) * SECOND, "today");
	CHECK(parse("yesterday") == UINT64_C(1799881200) * SECOND, "yesterday");
	CHECK(parse("08:00") == UINT64_C(1799996400) * SECOND, "a time of today");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(!parse(wrong[i]), wrong[i]);
	CHECK(!when_option(&given, "--from", epoch) && given == 1, "1970 is not: not given");
	return check_done();
}

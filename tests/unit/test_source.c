/* tests/unit/test_source.c: tests how the format of an input is recognised. */
#include "agent/source/source.h"

#include "tests/check.h"

static void test_formats_are_told_by_their_first_bytes(void)
{
	CHECK(source_detect("PERFILE2xxxxxxxx", 16) == SOURCE_PERFDATA, "perf.data");
	CHECK(source_detect("2ELIFREPxxxxxxxx", 16) == SOURCE_PERFDATA, "perf.data, big-endian");
	CHECK(source_detect("OFFWIND1xxxxxxxx", 16) == SOURCE_OWC, "capture file");
	CHECK(source_detect("PERFILE", 7) == SOURCE_UNKNOWN, "too short to tell");
	CHECK(source_detect("", 0) == SOURCE_UNKNOWN, "empty");
}

int main(void)
{
	test_formats_are_told_by_their_first_bytes();
	return check_done();
}

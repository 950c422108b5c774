/* tests/unit/test_checksum.c: tests XXH64 with published vectors. */
#include "base/checksum.h"

#include <string.h>

#include "tests/check.h"

/* Published vectors of XXH64. */
static const struct {
	const char *text;
	uint64_t hash;
} cases[] = {
	{ "", 0xef46db3751d8e999 },
	{ "a", 0xd24ec4f1a98c6e5b },
	{ "abc", 0x44bc2cf5ad770999 },
	{ "Nobody inspects the spammish repetition", 0xfbcea83c8a378bf1 },
};

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		CHECK(uw_checksum(cases[i].text, strlen(cases[i].text), 0) == cases[i].hash,
		      cases[i].text);
	CHECK(uw_checksum("abc", 3, 1) != uw_checksum("abc", 3, 0), "the seed counts");
	return check_done();
}

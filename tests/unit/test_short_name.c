/* tests/unit/test_short_name.c: tests how parameter lists are removed from names. */
#include "agent/cli/short_name.h"

#include "tests/check.h"

#include <string.h>

static const struct {
	const char *name, *is;
} cases[] = {
	{ "main", "main" },
	{ "a::f(int, char const*)", "a::f" },
	{ "a::f<int (int)>::g(std::function<void (int)>) const", "a::f<int (int)>::g" },
	{ "f(int) [clone .cold]", "f" },
	{ "(anonymous namespace)::S::run(int)", "(anonymous namespace)::S::run" },
	{ "operator()", "operator()" },
	{ "S::operator()(int) const", "S::operator()" },
	{ "S::operator<<(int)", "S::operator<<" },
	{ "S::operator<(S const&) const", "S::operator<" },
	{ "S::operator-><int>(int)", "S::operator-><int>" },
	{ "S::operator+(S const&)", "S::operator+" },
	{ "operator new(unsigned long)", "operator new" },
	{ "f(int)::{lambda(char)#1}::operator()(char) const", "f::{lambda(char)#1}::operator()" },
	{ "main.(*T).Method", "main.(*T).Method" },
	{ "<alloc::vec::Vec<T> as core::fmt::Debug>::fmt",
	  "<alloc::vec::Vec<T> as core::fmt::Debug>::fmt" },
	{ "f(", "f" },
	{ "f>)(<", "f>)" },
	{ "libc.so.6+0x1234", "libc.so.6+0x1234" },
	{ "", "" },
};

static void test_parameter_lists_go(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char out[128];

		short_name(cases[i].name, out, sizeof(out));
		if (strcmp(out, cases[i].is) != 0)
			(void)printf("%s: %s\n", cases[i].name, out);
		CHECK(!strcmp(out, cases[i].is), cases[i].name);
	}
}

static void test_no_more_than_there_is_room_for(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t size = 1; size < 12; size++) {
			char out[12];

			short_name(cases[i].name, out, size);
			CHECK(strlen(out) < size, cases[i].name);
		}
}

int main(void)
{
	test_parameter_lists_go();
	test_no_more_than_there_is_room_for();
	return check_done();
}

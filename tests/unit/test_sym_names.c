/* tests/unit/test_sym_names.c: tests sanitized, demangled and cut-off names. */
#include "symbolizer/symbolizer.h"

#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#define R "\xef\xbf\xbd" /* U+FFFD */

static const struct {
	const char *what, *in, *out;
} clean[] = {
	{ "plain", "main", "main" },
	{ "Latin, Greek, emoji stay", "caf\xc3\xa9 \xce\xbb \xf0\x9f\x98\x80",
	  "caf\xc3\xa9 \xce\xbb \xf0\x9f\x98\x80" },
	{ "C0 and DEL", "a\x1b[31m\x7f\n", "a" R "[31m" R R },
	{ "C1 (NEL, CSI)", "\xc2\x85\xc2\x9b", R R },
	{ "line and paragraph separator", "\xe2\x80\xa8\xe2\x80\xa9", R R },
	{ "right-to-left override, isolate, mark, Arabic letter mark",
	  "\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8f\xd8\x9c", R R R R },
	/* Unicode 15 tables 3-8 to 3-11: one U+FFFD per maximal subpart. */
	{ "table 3-8: non-shortest forms", "\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41",
	  R R R R R R R R "A" },
	{ "table 3-9: surrogates", "\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", R R R R R R R R "A" },
	{ "table 3-10: other ill-formed", "\xf4\x91\x92\x93\xff\x41\x80\xbf\x42",
	  R R R R R "A" R R "B" },
	{ "table 3-11: truncated", "\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A" },
	{ "first and last of each length",
	  "\xc2\xa0\xdf\xbf\xe0\xa0\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf",
	  "\xc2\xa0\xdf\xbf\xe0\xa0\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf" },
	{ "around the surrogates", "\xed\x9f\xbf\xee\x80\x80", "\xed\x9f\xbf\xee\x80\x80" },
	{ "beyond U+10FFFF", "\xf4\x90\x80\x80", R R R R },
	{ "cut short by the end", "x\xf0\x9f\x98", "x" R },
};

static void test_sanitized_text_is_utf8_without_controls(void)
{
	for (size_t i = 0; i < sizeof(clean) / sizeof(clean[0]); i++) {
		char *got = sym_sanitize(clean[i].in, strlen(clean[i].in), 0);

		CHECK(got && strcmp(got, clean[i].out) == 0, clean[i].what);
		free(got);
	}
}

static void check_limit(const char *in, size_t n, size_t limit, const char *want, const char *what)
{
	char *got = sym_sanitize(in, n, limit);

	CHECK(got && strcmp(got, want) == 0, what);
	free(got);
}

static void test_sanitized_text_is_cut_at_a_character(void)
{
	char big[70000];
	char *got;

	check_limit("abc\xc3\xa9", 5, 4, "abc", "half a character does not fit");
	check_limit("abc\xc3\xa9", 5, 5, "abc\xc3\xa9", "a whole one does");
	check_limit("ab\x01", 3, 4, "ab", "nor does half a replacement");
	check_limit("a\0b", 3, 0, "a" R "b", "a NUL within is a control character");
	check_limit("", 0, 0, "", "nothing");
	check_limit(NULL, 0, 0, "", "nothing at all");
	memset(big, 'x', sizeof(big));
	got = sym_sanitize(big, sizeof(big), 0);
	CHECK(got && strlen(got) == 65536, "64 KiB unless told");
	free(got);
}

/* Right-hand sides: c++filt -i (binutils 2.40) for C++; the Rust RFC 2603 and rustfilt for Rust. */
static const struct {
	const char *in, *out;
} names[] = {
	{ "main", "main" },
	{ "_Z", "_Z" },
	{ "_Zfoo", "_Zfoo" },
	{ "_ZN3foo3barEv", "foo::bar()" },
	{ "_Z1fRKSs", "f(std::string const&)" },
	{ "_ZNSt6vectorIiSaIiEE9push_backEOi",
	  "std::vector<int, std::allocator<int> >::push_back(int&&)" },
	{ "_ZN9wikipedia7article8print_toERSo", "wikipedia::article::print_to(std::ostream&)" },
	{ "_ZTv0_n24_N1AD0Ev", "virtual thunk to A::~A()" },
	{ "_Z3fooi.cold", "foo(int) [clone .cold]" },
	{ "_Z3fooi.part.0", "foo(int) [clone .part.0]" },
	{ "_Z3fooi.constprop.0.isra.1", "foo(int) [clone .constprop.0] [clone .isra.1]" },
	{ "_Z3fooi.llvm.1234567890", "foo(int) [clone .llvm.1234567890]" },
	{ "_Z3fooi.__uniq.12.llvm.34", "foo(int) [clone .__uniq.12] [clone .llvm.34]" },
	{ "_Z3fooi.Weird", "foo(int) [clone .Weird]" },
	{ "bar.constprop.0", "bar.constprop.0" },
	{ "_Z3fooi@plt", "foo(int)@plt" },
	{ "memcpy@plt", "memcpy@plt" },
	{ "_Z3fooi@@V_1", "foo(int)@@V_1" },
	{ "_Z3fooi.cold@plt", "foo(int) [clone .cold]@plt" },
	{ "_Z3foo\x01", "_Z3foo" R },
	/* Rust, legacy: the hash is removed. */
	{ "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad" },
	{ "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar"
	  "17h930b740aa94f1d3aE",
	  "<Test + 'static as foo::Bar<Test>>::bar" },
	{ "_ZN3foo17h05af221e174051e9E.llvm.9307", "foo [clone .llvm.9307]" },
	{ "_ZN3foo17h05af221e174051e9E.cold", "foo [clone .cold]" },
	/* Rust, v0: RFC 2603's examples. */
	{ "_RNvC6_123foo3bar", "123foo::bar" },
	{ "_RINbNbCskIICzLVPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_"
	  "ECs1iopQbuBiw2_3std",
	  "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>" },
	{ "_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y",
	  "utf8_idents::"
	  "\xe1\x83\xa1\xe1\x83\x90\xe1\x83\xad\xe1\x83\x9b\xe1\x83\x94\xe1\x83\x9a\xe1"
	  "\x83\x90\xe1\x83\x93_"
	  "\xe1\x83\x92\xe1\x83\x94\xe1\x83\x9b\xe1\x83\xa0\xe1\x83\x98\xe1\x83"
	  "\x94\xe1\x83\x9a\xe1\x83\x98_"
	  "\xe1\x83\xa1\xe1\x83\x90\xe1\x83\x93\xe1\x83\x98\xe1\x83\x9a"
	  "\xe1\x83\x98" },
	{ "_RNvC6_123foo3bar.llvm.42", "123foo::bar [clone .llvm.42]" },
};

static void test_names_become_readable(void)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char *got = sym_demangle(names[i].in);

		CHECK(got && strcmp(got, names[i].out) == 0, names[i].in);
		if (got && strcmp(got, names[i].out) != 0)
			(void)printf("  got %s\n", got);
		free(got);
	}
}

/* Each argument is a pair of two copies of the one before: the text doubles 30 times. */
static void test_an_expanding_name_stays_as_linked(void)
{
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
	char name[512] = "_Z1fSt4pairIiiE";
	char *got;

	for (int i = 0; i < 30; i++) {
		size_t n = strlen(name);

		(void)snprintf(name + n, sizeof(name) - n, "S_IS%c_S%c_E", digits[i], digits[i]);
		if (i < 5) {
			got = sym_demangle(name);
			CHECK(got && strncmp(got, "f(std::pair<int, int>, std::pair<std::p", 39) ==
					      0,
			      "a short one is shown");
			free(got);
		}
	}
	got = sym_demangle(name);
	CHECK(got && strcmp(got, name) == 0, "2^30 pairs are not");
	free(got);
}

static void test_long_names_are_cut_not_run_through(void)
{
	static const struct {
		const char *start;
		char repeat;
	} deep[] = {
		{ "_RINvC1a1f", 'R' }, /* references */
		{ "_RINvC1a1f", 'S' }, /* slices */
		{ "_RINvC1a1f", 'T' }, /* tuples */
		{ "_RINvC1a1f", 'F' }, /* functions */
		{ "_R", 'I' },	       /* generic arguments */
		{ "_RINvC1a1fB", '_' }, { "_Z1fI", 'N' }, { "_Z1fI", 'K' }, { "_ZN", 'D' },
	};
	size_t n = 1 << 20;
	char *name = malloc(n + 1);
	char *got;

	memset(name, 'P', n);
	memcpy(name, "_Z1f", 4);
	name[n] = '\0';
	got = sym_demangle(name);
	CHECK(got && strlen(got) == 65536 && strncmp(got, name, 65536) == 0, "cut at 64 KiB");
	free(got);
	for (size_t len = 900; len < 16384; len += 1031) { /* nested as deep as it is long */
		name[len] = '\0';
		got = sym_demangle(name);
		CHECK(got && *got, "deep nesting");
		free(got);
		name[len] = 'P';
	}
	for (size_t i = 0; i < sizeof(deep) / sizeof(deep[0]); i++) {
		for (size_t len = 60; len < 16384; len *= 4) {
			(void)memset(name, deep[i].repeat, len);
			memcpy(name, deep[i].start, strlen(deep[i].start));
			memcpy(name + len, "uEE", 4);
			got = sym_demangle(name);
			CHECK(got && *got, deep[i].start);
			free(got);
		}
	}
	free(name);
}

int main(void)
{
	test_sanitized_text_is_utf8_without_controls();
	test_sanitized_text_is_cut_at_a_character();
	test_names_become_readable();
	test_an_expanding_name_stays_as_linked();
	test_long_names_are_cut_not_run_through();
	return check_done();
}

#include "base/text.h"

#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

/* Unicode 15, table 3-7: first and last of each row, and their neighbours. */
static void test_decoding_follows_the_table(void)
{
	static const struct {
		const char *bytes;
		size_t n;
		uint32_t code;
	} cases[] = {
		{ "\x00", 1, 0 },
		{ "\x7f", 1, 0x7f },
		{ "\x80", 1, UW_TEXT_BAD },
		{ "\xc1\xbf", 1, UW_TEXT_BAD },
		{ "\xc2\x80", 2, 0x80 },
		{ "\xdf\xbf", 2, 0x7ff },
		{ "\xe0\x9f\xbf", 1, UW_TEXT_BAD },
		{ "\xe0\xa0\x80", 3, 0x800 },
		{ "\xed\x9f\xbf", 3, 0xd7ff },
		{ "\xed\xa0\x80", 1, UW_TEXT_BAD },
		{ "\xee\x80\x80", 3, 0xe000 },
		{ "\xef\xbf\xbf", 3, 0xffff },
		{ "\xf0\x8f\xbf\xbf", 1, UW_TEXT_BAD },
		{ "\xf0\x90\x80\x80", 4, 0x10000 },
		{ "\xf4\x8f\xbf\xbf", 4, 0x10ffff },
		{ "\xf4\x90\x80\x80", 1, UW_TEXT_BAD },
		{ "\xf5\x80\x80\x80", 1, UW_TEXT_BAD },
		/* §3.9: the maximal subpart is replaced as one. */
		{ "\xc2", 1, UW_TEXT_BAD },
		{ "\xe2\x82", 2, UW_TEXT_BAD },
		{ "\xe2\x82\x41", 2, UW_TEXT_BAD },
		{ "\xe2\x28\xa1", 1, UW_TEXT_BAD },
		{ "\xf0\x9f\x98", 3, UW_TEXT_BAD },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t size = cases[i].bytes[0] ? strlen(cases[i].bytes) : 1;
		uint32_t code;

		CHECK(uw_text_decode(cases[i].bytes, size, &code) == cases[i].n, "length");
		CHECK(code == cases[i].code, "code");
	}
}

/* UnicodeData.txt: category Cc, Zl and Zp; PropList.txt: Bidi_Control. */
static void test_controls_are_not_shown(void)
{
	static const uint32_t hidden[][2] = {
		{ 0, 0x1f },	    { 0x7f, 0x9f },	{ 0x61c, 0x61c },
		{ 0x200e, 0x200f }, { 0x2028, 0x202e }, { 0x2066, 0x2069 },
	};

	for (uint32_t c = 0; c < 0x110000; c++) {
		bool is_hidden = false;

		for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++)
			is_hidden |= c >= hidden[i][0] && c <= hidden[i][1];
		if (uw_text_is_shown(c) == is_hidden)
			CHECK(false, "shown or not");
	}
	CHECK(!uw_text_is_shown(UW_TEXT_BAD), "what is no character");
}

/* Every byte at every place of texts of some lengths; in exact memory, so that a sanitizer sees. */
static void test_plain_text_ends_where_it_does(void)
{
	static const size_t sizes[] = { 0, 1, 15, 16, 17, 31, 255, 256, 257, 600 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i];
		char *text = malloc(size ? size : 1);

		if (!text)
			exit(1);
		memset(text, 'x', size);
		CHECK(uw_text_plain_size(text, size, ' ') == size && uw_text_is_plain(text, size),
		      "all of it");
		for (size_t at = 0; at<size; at += size> 64 ? 7 : 1) {
			for (int byte = 0; byte < 256; byte++) {
				bool plain = byte >= 0x20 && byte < 0x7f;
				size_t want = plain ? size : at;

				text[at] = (char)byte;
				if (uw_text_plain_size(text, size, ' ') != want)
					CHECK(false, "the first byte that is not plain");
				want = byte == '\n' ? size : want;
				if (uw_text_plain_size(text, size, '\n') != want)
					CHECK(false, "or a newline");
			}
			text[at] = 'x';
		}
		free(text);
	}
}

static void test_columns_are_characters(void)
{
	CHECK(uw_text_columns("") == 0 && uw_text_columns("abc") == 3, "ASCII");
	CHECK(uw_text_columns("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80") == 3, "2, 3 and 4 bytes");
}

int main(void)
{
	test_decoding_follows_the_table();
	test_controls_are_not_shown();
	test_plain_text_ends_where_it_does();
	test_columns_are_characters();
	return check_done();
}

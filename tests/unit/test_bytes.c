/* tests/unit/test_bytes.c: tests the bounded reader of bytes: LEB128, words, strings, errors. */
#include "base/bytes.h"

#include <errno.h>
#include <string.h>

#include "tests/check.h"

static const struct {
	const char *name;
	size_t size;
	uint64_t value;
	int err;
	uint8_t in[11];
} ulebs[] = {
	/* 127, 128 and 12857 are examples of DWARF 5 §7.6, figure 22. */
	{ "2", 1, 2, 0, { 2 } },
	{ "127", 1, 127, 0, { 127 } },
	{ "128", 2, 128, 0, { 0 + 0x80, 1 } },
	{ "129", 2, 129, 0, { 1 + 0x80, 1 } },
	{ "12857", 2, 12857, 0, { 57 + 0x80, 100 } },
	{ "2^64-1", 10, UINT64_MAX, 0, { 255, 255, 255, 255, 255, 255, 255, 255, 255, 1 } },
	{ "2^64", 10, 0, -EBADMSG, { 128, 128, 128, 128, 128, 128, 128, 128, 128, 2 } },
	{ "2^70", 11, 0, -EBADMSG, { 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 1 } },
	{ "5, padded", 11, 5, 0, { 133, 128, 128, 128, 128, 128, 128, 128, 128, 128, 0 } },
	{ "empty", 0, 0, -EBADMSG, { 0 } },
	{ "cut short", 1, 0, -EBADMSG, { 0xff } },
};

static const struct {
	const char *name;
	size_t size;
	int64_t value;
	int err;
	uint8_t in[11];
} slebs[] = {
	/* DWARF 5 §7.6, figure 23. */
	{ "2", 1, 2, 0, { 2 } },
	{ "-2", 1, -2, 0, { 0x7e } },
	{ "127", 2, 127, 0, { 127 + 0x80, 0 } },
	{ "-127", 2, -127, 0, { 1 + 0x80, 0x7f } },
	{ "128", 2, 128, 0, { 0 + 0x80, 1 } },
	{ "-128", 2, -128, 0, { 0 + 0x80, 0x7f } },
	{ "129", 2, 129, 0, { 1 + 0x80, 1 } },
	{ "-129", 2, -129, 0, { 0x7f + 0x80, 0x7e } },
	{ "INT64_MAX", 10, INT64_MAX, 0, { 255, 255, 255, 255, 255, 255, 255, 255, 255, 0 } },
	{ "INT64_MIN", 10, INT64_MIN, 0, { 128, 128, 128, 128, 128, 128, 128, 128, 128, 0x7f } },
	{ "2^63", 10, 0, -EBADMSG, { 128, 128, 128, 128, 128, 128, 128, 128, 128, 1 } },
	{ "-1, padded", 11, -1, 0, { 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 127 } },
	{ "2^70-1", 11, 0, -EBADMSG, { 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0 } },
	{ "cut short", 1, 0, -EBADMSG, { 0xff } },
};

static void test_lebs_read_every_case(void)
{
	for (size_t i = 0; i < sizeof(ulebs) / sizeof(ulebs[0]); i++) {
		struct uw_bytes b = uw_bytes_of(ulebs[i].in, ulebs[i].size);

		CHECK(uw_bytes_uleb(&b) == ulebs[i].value, ulebs[i].name);
		CHECK(b.err == ulebs[i].err && uw_bytes_done(&b), ulebs[i].name);
	}
	for (size_t i = 0; i < sizeof(slebs) / sizeof(slebs[0]); i++) {
		struct uw_bytes b = uw_bytes_of(slebs[i].in, slebs[i].size);

		CHECK(uw_bytes_sleb(&b) == slebs[i].value, slebs[i].name);
		CHECK(b.err == slebs[i].err && uw_bytes_done(&b), slebs[i].name);
	}
}

enum { ROOM = 24 };

/* Write a number, of n bytes at least, where some bytes of others follow; is_signed: as SLEB128. Return its size. */
static size_t write_leb(uint8_t out[ROOM], int64_t value, bool is_signed, size_t n)
{
	size_t size = 0;
	bool more = true;

	memset(out, n % 2 ? 0xff : 0, ROOM);
	while (more) {
		uint8_t byte = value & 0x7f;

		value = is_signed ? value >> 7 : (int64_t)((uint64_t)value >> 7);
		more = is_signed ? value != (byte & 0x40 ? -1 : 0) : value != 0;
		more = more || size + 1 < n;
		out[size++] = (uint8_t)(byte | (more ? 0x80 : 0));
	}
	return size;
}

/* Read a number with each count of bytes behind it, from none on. */
static void check_leb(int64_t value, bool is_signed, size_t n)
{
	uint8_t in[ROOM];
	const size_t size = write_leb(in, value, is_signed, n);

	for (size_t behind = 0; size + behind <= ROOM; behind++) {
		struct uw_bytes b = uw_bytes_of(in, size + behind);
		int64_t got = is_signed ? uw_bytes_sleb(&b) : (int64_t)uw_bytes_uleb(&b);

		CHECK(got == value && !b.err && uw_bytes_left(&b) == behind,
		      is_signed ? "signed" : "unsigned");
		b = uw_bytes_of(in, size - 1);
		(void)(is_signed ? uw_bytes_sleb(&b) : (int64_t)uw_bytes_uleb(&b));
		CHECK(b.err == -EBADMSG, "cut short");
	}
}

static void test_lebs_of_each_length(void)
{
	for (unsigned int bit = 0; bit < 64; bit++)
		for (size_t n = 1; n <= 12; n++)
			for (int off = -1; off <= 1; off++) {
				int64_t value = (int64_t)((UINT64_C(1) << bit) + (uint64_t)off);

				check_leb(value, false, n);
				check_leb(value, true, n);
				check_leb((int64_t)(0 - (uint64_t)value), true, n);
			}
}

static void test_words_are_little_endian(void)
{
	const uint8_t in[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14 };
	struct uw_bytes b = uw_bytes_of(in, sizeof(in));

	CHECK(uw_bytes_u16(&b) == 0x0201, "u16");
	CHECK(uw_bytes_u32(&b) == 0x06050403, "u32");
	CHECK(uw_bytes_u64(&b) == 0x0e0d0c0b0a090807, "u64");
	CHECK(uw_bytes_done(&b) && !b.err, "all taken");
}

static void test_numbers_of_other_sizes(void)
{
	const uint8_t in[] = { 1, 2, 3, 4, 0xff };
	struct uw_bytes b = uw_bytes_of(in, sizeof(in));

	CHECK(uw_bytes_uint(&b, 3) == 0x030201, "three bytes");
	CHECK(uw_bytes_uint(&b, 1) == 4 && uw_bytes_uint(&b, 1) == 0xff, "one byte");
	CHECK(!b.err && uw_bytes_uint(&b, 1) == 0 && b.err == -EBADMSG, "no more");
	b = uw_bytes_of(in, sizeof(in));
	CHECK(uw_bytes_uint(&b, 8) == 0 && b.err == -EBADMSG && b.pos == in, "too few");
}

static void test_take_is_bounded_and_failure_sticks(void)
{
	/* A block of one byte, then a block that claims five bytes when one is left. */
	const uint8_t in[] = { 1, 0xaa, 5, 0xbb };
	struct uw_bytes b = uw_bytes_of(in, sizeof(in));
	struct uw_bytes good = uw_bytes_take(&b, uw_bytes_u8(&b));
	struct uw_bytes bad = uw_bytes_take(&b, uw_bytes_u8(&b));

	CHECK(uw_bytes_u8(&good) == 0xaa && uw_bytes_done(&good), "the block has one byte");
	CHECK(bad.err == -EBADMSG && uw_bytes_done(&bad), "the long block fails");
	CHECK(uw_bytes_u8(&b) == 0 && b.err == -EBADMSG, "so does every later read");
	CHECK(b.pos == in + 3, "pos still shows where");
	CHECK(uw_bytes_left(&b) == 0, "nothing is left after a failure");
	uw_bytes_skip(&b, 0);
	CHECK(b.err == -EBADMSG, "reading nothing does not make it good");
	CHECK(uw_bytes_take(&b, 0).err == -EBADMSG, "nor is a part of it good");
	CHECK(uw_bytes_uleb(&b) == 0 && uw_bytes_sleb(&b) == 0 && b.pos == in + 3, "nor a number");
}

static void test_strings_end_inside(void)
{
	struct uw_bytes b = uw_bytes_of("zR\0xyz", 6);

	CHECK(!strcmp(uw_bytes_string(&b), "zR"), "the first");
	CHECK(uw_bytes_string(&b)[0] == 0 && b.err == -EBADMSG, "the second has no end");
	b = uw_bytes_of(NULL, 0);
	CHECK(uw_bytes_string(&b)[0] == 0 && b.err == -EBADMSG, "nothing at all");
}

int main(void)
{
	test_lebs_read_every_case();
	test_lebs_of_each_length();
	test_words_are_little_endian();
	test_numbers_of_other_sizes();
	test_take_is_bounded_and_failure_sticks();
	test_strings_end_inside();
	return check_done();
}

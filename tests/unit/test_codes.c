/* tests/unit/test_codes.c: tests the cache of code bytes. */
#include "unwinder/rule/code_cache.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/check.h"

#define SIZE 8192

static uint8_t bytes[SIZE];

/* A file with these bytes, all different from their neighbours. */
static struct uw_source open_source(void)
{
	int fd = memfd_create("code", MFD_CLOEXEC);

	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (uint8_t)(i * 167 >> 3 ^ i);
	CHECK(fd >= 0 && write(fd, bytes, SIZE) == SIZE, "a file");
	return (struct uw_source){ .fd = fd, .size = SIZE };
}

static bool reads(struct uw_codes *codes, const struct uw_source *source, uint64_t least,
		  uint64_t most, uint64_t off, size_t size)
{
	uint8_t out[64];

	return !uw_codes_read(codes, source, least, most, off, out, size) &&
	       !memcmp(out, bytes + off, size);
}

static void test_every_place_reads_as_the_file_does(void)
{
	struct uw_codes codes = { .n = 0 };
	struct uw_source source = open_source();

	for (size_t i = 0; i < 40000; i++) {
		uint64_t least = i % 3 * 1000, most = SIZE - i % 5 * 700;
		size_t size = i * 7 % 65;
		uint64_t off = least + i * 7919 % (most - least - size + 1);

		CHECK(reads(&codes, &source, least, most, off, size), "the bytes");
	}
	CHECK(codes.n > UW_CODES, "more than it keeps");
	(void)close(source.fd);
}

static void test_what_was_read_is_not_read_again(void)
{
	struct uw_codes codes = { .n = 0 };
	struct uw_source source = open_source();

	CHECK(reads(&codes, &source, 0, SIZE, 1000, 32), "read");
	CHECK(pwrite(source.fd, "other", 5, 1010) == 5, "changed");
	CHECK(reads(&codes, &source, 0, SIZE, 1000, 32) &&
		      reads(&codes, &source, 0, SIZE, 990, 64) && codes.n == 1,
	      "kept, and what is around it");
	codes.busy = true;
	CHECK(!reads(&codes, &source, 0, SIZE, 1000, 32) && codes.busy, "in use: read by itself");
	(void)close(source.fd);
}

static void test_a_file_that_becomes_shorter(void)
{
	struct uw_codes codes = { .n = 0 };
	struct uw_source source = open_source();
	uint8_t out[32];

	CHECK(ftruncate(source.fd, 4096) == 0, "shorter");
	CHECK(reads(&codes, &source, 0, SIZE, 4096 - 32, 32), "what is left");
	CHECK(uw_codes_read(&codes, &source, 0, SIZE, 4096 - 31, out, 32) < 0, "and no more");
	CHECK(uw_codes_read(&codes, &source, 0, SIZE, SIZE - 31, out, 32) < 0, "outside");
	(void)close(source.fd);
}

static void test_an_image_needs_none(void)
{
	struct uw_codes codes = { .n = 0 };
	struct uw_source source = { .image = bytes, .fd = -1, .size = SIZE };

	CHECK(reads(&codes, &source, 0, SIZE, 77, 32) && codes.n == 0, "in place");
}

int main(void)
{
	test_every_place_reads_as_the_file_does();
	test_what_was_read_is_not_read_again();
	test_a_file_that_becomes_shorter();
	test_an_image_needs_none();
	return check_done();
}

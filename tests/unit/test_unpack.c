/*
 * tests/unit/test_unpack.c: tests decompression: contents come out as they were packed, damage and
 * wrong sizes are refused, and it can be stopped.
 */
#include "base/unpack.h"
#include "tests/check.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <lzma.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define CAP  ((uint64_t)16 << 20)
#define ROOM ((size_t)4 << 20)

static uint8_t packed[ROOM];

static size_t pack_zlib(const uint8_t *in, size_t size)
{
	uLongf n = ROOM;

	return compress2(packed, &n, in, size, 1) == Z_OK ? n : 0;
}

static size_t pack_zstd(const uint8_t *in, size_t size)
{
	size_t n = ZSTD_compress(packed, ROOM, in, size, 1);

	return ZSTD_isError(n) ? 0 : n;
}

static size_t pack_xz(const uint8_t *in, size_t size)
{
	size_t n = 0;

	return lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, in, size, packed, &n, ROOM) ==
			       LZMA_OK
		       ? n
		       : 0;
}

static int unpack_xz(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap, uint8_t **out)
{
	size_t got = 0;
	int err = uw_unpack_xz(in, in_size, cap, out, &got);

	if (!err && got != size) {
		free(*out);
		err = -EBADMSG;
	}
	return err;
}

static const struct format {
	const char *name;
	size_t (*pack)(const uint8_t *in, size_t size);
	int (*unpack)(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap,
		      uint8_t **out);
} formats[] = {
	{ "zlib", pack_zlib, uw_unpack_zlib },
	{ "zstd", pack_zstd, uw_unpack_zstd },
	{ "xz", pack_xz, unpack_xz },
};

static bool always(void *ctx)
{
	++*(unsigned int *)ctx;
	return true;
}

static bool third(void *ctx)
{
	return ++*(unsigned int *)ctx == 3;
}

/* Bytes that pack to about a quarter. */
static void fill(uint8_t *bytes, size_t size)
{
	uint32_t state = 1;

	for (size_t i = 0; i < size; i++) {
		state = state * 1664525 + 1013904223;
		bytes[i] = (uint8_t)(state >> 30);
	}
}

static void test_sizes(const struct format *f)
{
	static const size_t sizes[] = {
		1, 100, 65536, (256 << 10) - 1, 256 << 10, (256 << 10) + 1, 512 << 10, 1000000
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i], n;
		uint8_t *in = malloc(size), *out = NULL;

		fill(in, size);
		n = f->pack(in, size);
		CHECK(n > 0, f->name);
		CHECK(f->unpack(packed, n, size, CAP, &out) == 0 && !memcmp(in, out, size),
		      f->name);
		free(out);
		CHECK(f->unpack(packed, n / 2, size, CAP, &out) == -EBADMSG, f->name);
		CHECK(f->unpack(packed, n, size, size - 1, &out) == -ENOTSUP, f->name);
		CHECK(f->unpack(packed, n, size + 1, CAP, &out) == -EBADMSG, f->name);
		if (size > 1)
			CHECK(f->unpack(packed, n, size - 1, CAP, &out) == -EBADMSG, f->name);
		packed[n / 2] ^= 0xff;
		packed[n - 1] ^= 0xff;
		if (f->unpack(packed, n, size, CAP, &out) == 0)
			free(out); /* zstd without a checksum does not notice every damage */
		free(in);
	}
}

static void test_stop(const struct format *f)
{
	size_t size = 1000000, n;
	uint8_t *in = malloc(size), *out = NULL;
	unsigned int asked = 0;

	fill(in, size);
	n = f->pack(in, size);
	uw_unpack_unless(always, &asked);
	CHECK(f->unpack(packed, n, size, CAP, &out) == -ECANCELED && asked == 1, f->name);
	asked = 0;
	uw_unpack_unless(third, &asked);
	CHECK(f->unpack(packed, n, size, CAP, &out) == -ECANCELED && asked == 3, f->name);
	CHECK(!uw_unpack_is_stopped() && asked == 4, "asked by others, too");
	uw_unpack_unless(NULL, NULL);
	CHECK(f->unpack(packed, n, size, CAP, &out) == 0 && !memcmp(in, out, size), f->name);
	free(out);
	free(in);
}

static bool never(void *ctx)
{
	(void)ctx;
	return false;
}

/* What strangers' files take is bounded for all threads together. */
static void test_reserve(void)
{
	const uint64_t part = UINT64_C(200) << 20;
	unsigned int asked = 0;
	uint64_t kept, none = 0;

	CHECK(!uw_unpack_reserve(UINT64_MAX), "threads without a stop function may do anything");
	uw_unpack_unless(never, NULL);
	CHECK(uw_unpack_reserve(UINT64_C(1) << 30) == -E2BIG, "more than everything");
	uw_unpack_unless(never, NULL);
	CHECK(!uw_unpack_reserve(part), "the first");
	CHECK(uw_unpack_reserve(part) == -E2BIG, "the same thread again");
	CHECK(!uw_unpack_reserve(1 << 20), "small ones are free");
	CHECK(uw_unpack_keep(&kept) == -E2BIG && kept == part, "it says that it was refused");
	uw_unpack_unless(always, &asked);
	CHECK(uw_unpack_reserve(part) == -E2BIG && !asked, "waiting does not help: it is kept");
	uw_unpack_release(kept);
	uw_unpack_unless(never, NULL);
	CHECK(!uw_unpack_reserve(part), "there is room again");
	uw_unpack_unless(NULL, NULL);
	uw_unpack_unless(never, NULL);
	CHECK(!uw_unpack_reserve(part) && !uw_unpack_keep(&none) && none == part, "and again");
	uw_unpack_release(none);
	uw_unpack_unless(NULL, NULL);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		test_sizes(&formats[i]);
		test_stop(&formats[i]);
	}
	test_reserve();
	return check_done();
}

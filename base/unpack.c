/* base/unpack.c: decompresses sections and embedded files: zlib, zstd and xz. */
#include "base/unpack.h"

#include "base/limits.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

/*
 * Deflate cannot compress better than 1032:1, so a larger claimed size is false, and not worth its
 * memory.
 */
#define ZLIB_RATIO_MAX 1032

#define XZ_MEMORY_MAX ((uint64_t)128 << 20)

/* How many bytes are unpacked between two calls of the stop function. */
#define CHUNK ((size_t)256 * 1024)

/*
 * What threads with a stop function may have read and unpacked, in all: large sections in work and
 * those that opened files keep. Such threads read files of strangers; when they are abandoned, they
 * hold what they have until they notice, and others begin meanwhile. A user can make any number of
 * files that unpack to 256 MiB. The limit is held_bytes. Blocks below LARGE are not counted.
 */
#define LARGE	  ((uint64_t)4 << 20)
#define HELD_WAIT ((struct timespec){ .tv_nsec = 1000000 })

static _Atomic uint64_t held; /* in work, and retained */
static _Atomic uint64_t retained;

/* The calling thread's stop function, see uw_unpack_unless, and what it has in work. */
static _Thread_local struct {
	bool (*stop)(void *ctx);
	void *ctx;
	uint64_t held;
	bool refused;
} unless;

void uw_unpack_unless(bool (*stop)(void *ctx), void *ctx)
{
	atomic_fetch_sub(&held, unless.held);
	unless.held = 0;
	unless.refused = false;
	unless.stop = stop;
	unless.ctx = ctx;
}

bool uw_unpack_is_stopped(void)
{
	return unless.stop && unless.stop(unless.ctx);
}

int uw_unpack_reserve(uint64_t size)
{
	const uint64_t most = uw_limit(held_bytes);
	uint64_t now = atomic_load(&held);

	if (!unless.stop || size < LARGE)
		return 0;
	for (;;) {
		if (size > most || unless.held + atomic_load(&retained) > most - size) {
			unless.refused = true;
			uw_limit_reach(held_bytes);
			return -E2BIG;
		}
		if (uw_unpack_is_stopped())
			return -ECANCELED;
		if (now > most - size) {
			(void)nanosleep(&HELD_WAIT, NULL);
			now = atomic_load(&held);
		} else if (atomic_compare_exchange_weak(&held, &now, now + size)) {
			unless.held += size;
			return 0;
		}
	}
}

int uw_unpack_keep(uint64_t *bytes)
{
	*bytes = unless.held;
	atomic_fetch_add(&retained, unless.held);
	unless.held = 0;
	return unless.refused ? -E2BIG : 0;
}

void uw_unpack_release(uint64_t bytes)
{
	atomic_fetch_sub(&retained, bytes);
	atomic_fetch_sub(&held, bytes);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/*
 * Decompress the zlib stream in `in` into out, chunk by chunk, so that it can be stopped. -EBADMSG: the
 * sizes do not match.
 */
static int inflate_into(const uint8_t *in, size_t in_size, uint8_t *out, size_t size)
{
	z_stream z = { 0 };
	int err = 0, rc = Z_OK;

	if (inflateInit(&z) != Z_OK)
		return -ENOMEM;
	z.next_in = (z_const Bytef *)in;
	z.next_out = out;
	while (!err && rc == Z_OK) {
		size_t in_left = in_size - z.total_in;

		z.avail_in = (uInt)least(in_left, CHUNK);
		z.avail_out = (uInt)least(size - z.total_out, CHUNK);
		/*
		 * inflate returns Z_BUF_ERROR if the buffer is full before the stream's end, or if
		 * the input ends.
		 */
		rc = inflate(&z, Z_NO_FLUSH);
		if (uw_unpack_is_stopped())
			err = -ECANCELED;
	}
	if (!err && (rc != Z_STREAM_END || z.total_out != size))
		err = rc == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
	(void)inflateEnd(&z);
	return err;
}

/* Do the same with the zstd frames in `in`. */
static int decompress_into(const uint8_t *in, size_t in_size, uint8_t *out, size_t size)
{
	ZSTD_DCtx *zstd = ZSTD_createDCtx();
	ZSTD_inBuffer from = { .src = in, .size = in_size };
	size_t done = 0, left = 1;
	int err = zstd ? 0 : -ENOMEM;

	if (zstd)
		(void)ZSTD_DCtx_setParameter(zstd, ZSTD_d_windowLogMax, UW_ZSTD_WINDOW_LOG_MAX);
	while (!err && (from.pos < from.size || left)) {
		ZSTD_outBuffer to = { .dst = out + done, .size = least(size - done, CHUNK) };
		size_t before = from.pos;

		left = ZSTD_decompressStream(zstd, &to, &from);
		done += to.pos;
		if (ZSTD_isError(left) || (!to.pos && from.pos == before))
			err = -EBADMSG;
		else if (uw_unpack_is_stopped())
			err = -ECANCELED;
	}
	if (!err && done != size)
		err = -EBADMSG;
	(void)ZSTD_freeDCtx(zstd);
	return err;
}

/* Allocate the result, which has size bytes, and let fill unpack into it. The caller frees *out. */
static int unpack(int (*fill)(const uint8_t *in, size_t in_size, uint8_t *out, size_t size),
		  const uint8_t *in, size_t in_size, uint64_t size, uint8_t **out)
{
	int err = uw_unpack_reserve(size);
	uint8_t *data;

	if (err)
		return err;
	data = malloc(size);
	err = data ? fill(in, in_size, data, size) : -ENOMEM;
	if (err)
		free(data);
	else
		*out = data;
	return err;
}

int uw_unpack_zlib(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap, uint8_t **out)
{
	if (size > cap)
		return -ENOTSUP;
	if (!size || size / ZLIB_RATIO_MAX > in_size)
		return -EBADMSG;
	return unpack(inflate_into, in, in_size, size, out);
}

int uw_unpack_zstd(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap, uint8_t **out)
{
	if (size > cap)
		return -ENOTSUP;
	return size ? unpack(decompress_into, in, in_size, size, out) : -EBADMSG;
}

/* The size is not known beforehand, so the buffer grows up to cap. */
int uw_unpack_xz(const uint8_t *in, size_t in_size, uint64_t cap, uint8_t **out, size_t *size)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	uint64_t room = 64 * 1024;
	uint8_t *data = NULL;
	lzma_ret ret;
	int err = 0;

	if (lzma_stream_decoder(&stream, XZ_MEMORY_MAX, LZMA_CONCATENATED) != LZMA_OK)
		return -ENOMEM;
	stream.next_in = in;
	stream.avail_in = in_size;
	do {
		if (!data || stream.total_out == room) {
			uint64_t grown = data ? room * 2 : room;
			uint8_t *bigger;

			if (stream.total_out >= cap) {
				err = -ENOTSUP;
				goto out;
			}
			if (grown > cap)
				grown = cap;
			err = uw_unpack_reserve(grown - stream.total_out);
			if (err)
				goto out;
			bigger = realloc(data, grown);
			if (!bigger) {
				err = -ENOMEM;
				goto out;
			}
			data = bigger;
			room = grown;
			stream.next_out = data + stream.total_out;
		}
		stream.avail_out = least(room - stream.total_out, CHUNK);
		ret = lzma_code(&stream, stream.avail_in ? LZMA_RUN : LZMA_FINISH);
		if (uw_unpack_is_stopped()) {
			err = -ECANCELED;
			goto out;
		}
	} while (ret == LZMA_OK);
	if (ret == LZMA_MEMLIMIT_ERROR)
		err = -ENOTSUP;
	else if (ret == LZMA_MEM_ERROR)
		err = -ENOMEM;
	else if (ret != LZMA_STREAM_END)
		err = -EBADMSG;
out:
	if (err) {
		free(data);
	} else {
		*out = data;
		*size = (size_t)stream.total_out;
	}
	lzma_end(&stream);
	return err;
}

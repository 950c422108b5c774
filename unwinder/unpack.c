#include "unwinder/unpack.h"

#include <errno.h>
#include <stdlib.h>

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

/* Deflate cannot do better than 1032:1, so a larger claim is a lie not worth its memory. */
#define ZLIB_RATIO_MAX 1032

#define XZ_MEMORY_MAX ((uint64_t)128 << 20)

int uw_unpack_zlib(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap, uint8_t **out)
{
	uint8_t *data;
	uLongf got;

	if (size > cap)
		return -ENOTSUP;
	if (!size || size / ZLIB_RATIO_MAX > in_size)
		return -EBADMSG;
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	got = (uLongf)size;
	if (uncompress(data, &got, in, (uLong)in_size) != Z_OK || got != size) {
		free(data);
		return -EBADMSG;
	}
	*out = data;
	return 0;
}

int uw_unpack_zstd(const uint8_t *in, size_t in_size, uint64_t size, uint64_t cap, uint8_t **out)
{
	uint8_t *data;
	size_t got;

	if (size > cap)
		return -ENOTSUP;
	if (!size)
		return -EBADMSG;
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	got = ZSTD_decompress(data, size, in, in_size);
	if (ZSTD_isError(got) || got != size) {
		free(data);
		return -EBADMSG;
	}
	*out = data;
	return 0;
}

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
		if (stream.avail_out == 0) {
			uint64_t grown = data ? room * 2 : room;
			uint8_t *bigger;

			if (stream.total_out >= cap) {
				err = -ENOTSUP;
				goto out;
			}
			if (grown > cap)
				grown = cap;
			bigger = realloc(data, grown);
			if (!bigger) {
				err = -ENOMEM;
				goto out;
			}
			data = bigger;
			room = grown;
			stream.next_out = data + stream.total_out;
			stream.avail_out = room - stream.total_out;
		}
		ret = lzma_code(&stream, stream.avail_in ? LZMA_RUN : LZMA_FINISH);
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

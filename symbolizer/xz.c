/* symbolizer/xz.c: unpacks xz data with liblzma, within limits. */
#include "symbolizer/xz.h"

#include <errno.h>
#include <lzma.h>
#include <stdlib.h>

#define OUT_MAX	   ((size_t)256 << 20)
#define MEMORY_MAX ((uint64_t)128 << 20)

static int code_of(lzma_ret ret)
{
	switch (ret) {
	case LZMA_OK:
	case LZMA_STREAM_END:
		return 0;
	case LZMA_MEM_ERROR:
		return -ENOMEM;
	case LZMA_MEMLIMIT_ERROR:
		return -E2BIG;
	default:
		return -EBADMSG;
	}
}

int sym_xz_unpack(const void *packed, size_t size, void **out, size_t *out_size)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	uint8_t *bytes = NULL;
	size_t room = 0, done = 0;
	lzma_ret ret;
	int err = code_of(lzma_stream_decoder(&stream, MEMORY_MAX, 0));

	if (err)
		return err;
	stream.next_in = packed;
	stream.avail_in = size;
	do {
		if (done == room) {
			size_t next = room ? room * 2 : (size_t)256 << 10;
			uint8_t *grown;

			if (next > OUT_MAX) {
				err = -E2BIG;
				goto out;
			}
			grown = realloc(bytes, next);
			if (!grown) {
				err = -ENOMEM;
				goto out;
			}
			bytes = grown;
			room = next;
		}
		stream.next_out = bytes + done;
		stream.avail_out = room - done;
		/* LZMA_FINISH: input that ends early is an error, instead of a request for more. */
		ret = lzma_code(&stream, LZMA_FINISH);
		done = room - stream.avail_out;
		err = code_of(ret);
	} while (!err && ret != LZMA_STREAM_END);
	if (err)
		goto out;
	*out = bytes;
	*out_size = done;
	bytes = NULL;
out:
	free(bytes);
	lzma_end(&stream);
	return err;
}

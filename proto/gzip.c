/* proto/gzip.c: compresses whole messages. */
#include "proto/gzip.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>

int gzip_replace(uint8_t **bytes, size_t *size, int level)
{
	struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(level);
	size_t room;
	uint8_t *out;

	if (!compressor)
		return -ENOMEM;
	room = libdeflate_gzip_compress_bound(compressor, *size);
	out = malloc(room);
	if (out) {
		*size = libdeflate_gzip_compress(compressor, *bytes, *size, out, room);
		free(*bytes);
		*bytes = out;
	}
	libdeflate_free_compressor(compressor);
	return out ? 0 : -ENOMEM;
}

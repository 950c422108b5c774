/*
 * tests/fuzz/stored.h: an input as a blob of the store with a header and checksums that are right
 * (schema/blob.h), so that the rest of it reaches the reader.
 */
#ifndef TESTS_FUZZ_STORED_H
#define TESTS_FUZZ_STORED_H

#include "schema/blob.h"
#include "unwinder/unwinder.h"

#include <stdlib.h>
#include <string.h>

struct stored {
	const uint8_t *bytes;
	size_t size;
};

/* uw_blob_source.read */
static inline int stored_read(void *ctx, uint64_t off, void *out, size_t size)
{
	const struct stored *s = ctx;

	if (off > s->size || size > s->size - off)
		abort();
	memcpy(out, s->bytes + off, size);
	return 0;
}

static inline struct uw_blob_source stored_source(struct stored *s)
{
	return (struct uw_blob_source){ .size = s->size, .read = stored_read, .ctx = s };
}

/* Make the fields of a header right that say what the blob is and how long its parts are. */
static inline void stored_head(struct blob_header *h, uint32_t magic, uint16_t version,
			       uint16_t header_size, size_t size)
{
	h->magic = magic;
	h->version = version;
	h->header_size = header_size;
	h->size = size;
	h->front &= ~7u;
	h->front = h->front < size ? h->front : (uint32_t)size & ~7u;
}

/* Make the checksums right, if there is room for them behind the header. */
static inline void stored_seal(void *blob, const struct blob_header *h)
{
	if (h->front >= h->header_size + uw_blob_sums(h->size - h->front))
		uw_blob_seal(blob);
}

#endif

/*
 * tests/fuzz/fuzz_sym_stored.c: fuzzes stored symbols (schema/symbols_blob.h) with right checksums,
 * read as a whole (byte 0 even) or in the parts that look-ups need: they are refused, or look-ups
 * are safe.
 */
#include "schema/symbols_blob.h"
#include "symbolizer/symbolizer.h"
#include "unwinder/unwinder.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEY 1

static volatile uint64_t sink; /* all bytes that are returned must be readable */

struct stored {
	const uint8_t *bytes;
	size_t size;
};

static int read_part(void *ctx, uint64_t off, void *out, size_t size)
{
	const struct stored *s = ctx;

	if (off > s->size || size > s->size - off)
		abort();
	memcpy(out, s->bytes + off, size);
	return 0;
}

static void look(const struct sym_table *table)
{
	struct sym_symbol s;

	for (size_t i = 0; i < 300 && i < sym_table_size(table); i++)
		if (!sym_table_at(table, i, &s))
			sink += strlen(s.name);
	for (uint64_t at = 0; at < 0x3000; at += 61)
		if (!sym_table_find(table, at, &s)) {
			sink += strlen(s.name);
			if (s.addr > at)
				abort();
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sym_table *table = NULL;
	struct symbols_header h;
	struct stored stored;
	uint8_t *blob;
	int err;

	if (size < 1 + sizeof(h))
		return 0;
	stored.size = size - 1;
	blob = malloc(stored.size);
	if (!blob)
		return 0;
	memcpy(blob, data + 1, stored.size);
	memcpy(&h, blob, sizeof(h));
	h.blob.magic = SYMBOLS_MAGIC;
	h.blob.version = SYMBOLS_VERSION;
	h.blob.header_size = sizeof(h);
	h.blob.size = stored.size;
	h.blob.front &= ~7u;
	h.blob.front = h.blob.front < stored.size ? h.blob.front : (uint32_t)stored.size & ~7u;
	h.reader = SYMBOLS_READER;
	h.key = KEY;
	memcpy(blob, &h, sizeof(h));
	if (h.blob.front >= sizeof(h) + uw_blob_sums(stored.size - h.blob.front))
		uw_blob_seal(blob);
	if (data[0] & 1) {
		stored.bytes = blob;
		err = sym_table_take_stored(&(struct uw_blob_source){ .size = stored.size,
								      .read = read_part,
								      .ctx = &stored },
					    KEY, &table);
	} else {
		err = sym_table_unpack(blob, stored.size, KEY, &table);
	}
	if (!err)
		look(table);
	sym_table_free(table);
	if (data[0] & 1)
		free(blob);
	return 0;
}

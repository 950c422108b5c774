/*
 * tests/fuzz/fuzz_sym_stored.c: fuzzes stored symbols (schema/symbols_blob.h) with right checksums,
 * read as a whole (byte 0 even) or in the parts that look-ups need: they are refused, or look-ups
 * are safe.
 */
#include "schema/symbols_blob.h"
#include "symbolizer/symbolizer.h"
#include "tests/fuzz/stored.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEY 1

static volatile uint64_t sink; /* all bytes that are returned must be readable */

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
	struct uw_blob_source source;
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
	stored_head(&h.blob, SYMBOLS_MAGIC, SYMBOLS_VERSION, sizeof(h), stored.size);
	h.reader = SYMBOLS_READER;
	h.key = KEY;
	memcpy(blob, &h, sizeof(h));
	stored_seal(blob, &h.blob);
	if (data[0] & 1) {
		stored.bytes = blob;
		source = stored_source(&stored);
		err = sym_table_take_stored(&source, KEY, &table);
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

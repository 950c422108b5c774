/*
 * tests/fuzz/fuzz_sym_lines.c: fuzzes the reader of packed source lines, with a right checksum:
 * they are refused, or look-ups are safe.
 */
#include "schema/lines_blob.h"
#include "symbolizer/symbolizer.h"
#include "unwinder/unwinder.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct lines_header h;
	struct sym_lines *lines;
	struct sym_place places[8];
	uint8_t *blob;
	size_t n;

	if (size < sizeof(h))
		return 0;
	blob = malloc(size);
	if (!blob)
		return 0;
	memcpy(&h, data, sizeof(h));
	h.magic = LINES_MAGIC;
	h.version = LINES_VERSION;
	h.reader = LINES_READER;
	h.header_size = sizeof(h);
	h.size = size;
	h.key = 1;
	h.checksum = 0;
	memcpy(blob, data, size);
	h.checksum = uw_checksum(data + sizeof(h), size - sizeof(h), uw_checksum(&h, sizeof(h), 0));
	memcpy(blob, &h, sizeof(h));
	if (sym_lines_unpack(blob, size, 1, &lines))
		return 0;
	for (uint64_t at = 0; at < 0x3000; at += 13) {
		if (sym_lines_find(lines, at, places, 8, &n))
			continue;
		for (size_t i = 0; i < n; i++)
			if ((places[i].function && strlen(places[i].function) > size) ||
			    (places[i].file && strlen(places[i].file) > size))
				abort();
	}
	sym_lines_free(lines);
	return 0;
}

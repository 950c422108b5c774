/*
 * tests/fuzz/fuzz_sym_table.c: fuzzes the reader of symbol tables: the result is an error, or a
 * table in which every symbol can be found.
 */
#include "symbolizer/symbolizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sym_table *table = NULL;
	struct sym_symbol s, found;

	if (sym_table_open_image(data, size, &table) != 0) {
		if (table)
			abort();
		return 0;
	}
	for (size_t i = 0; sym_table_at(table, i, &s) == 0; i++) {
		char *text = sym_sanitize(s.name, strlen(s.name), 0);

		if (!text || strcmp(text, s.name) != 0) /* it came out clean */
			abort();
		free(text);
		if (sym_table_find(table, s.addr, &found) != 0 || found.addr > s.addr)
			abort();
		if (s.size && s.size > UINT64_MAX - s.addr)
			abort();
	}
	(void)sym_table_find(table, UINT64_MAX, &found);
	sym_table_free(table);
	return 0;
}

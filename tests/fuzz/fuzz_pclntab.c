/*
 * tests/fuzz/fuzz_pclntab.c: fuzzes the reader of Go's function table: every function of a table
 * that is accepted, its name and the values by pc. Byte 0 says where the table may be in its section.
 */
#include <stdlib.h>
#include <string.h>

#include "base/pclntab.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUNCTIONS_MAX 200
#define RUNS_MAX      200

static volatile uint64_t sink; /* all bytes that are returned must be readable */

static void one(const struct uw_pclntab *t, const struct uw_pclntab_function *f)
{
	struct uw_pclntab_run run = uw_pclntab_runs(f->frame, f->start);

	if ((const uint8_t *)f->name >= t->data + t->size && *f->name)
		abort();
	sink += strlen(f->name);
	for (unsigned int i = 0; f->frame && i < RUNS_MAX && uw_pclntab_next(t, &run); i++)
		sink += (uint64_t)run.value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uw_pclntab_function f;
	struct uw_pclntab t;
	uint64_t off;
	uint8_t *table;

	if (size < 1)
		return 0;
	/* The words in the table are aligned, and its end is where the memory ends. */
	table = malloc(size - 1 ? size - 1 : 1);
	if (!table)
		return 0;
	memcpy(table, data + 1, size - 1);
	off = uw_pclntab_find(&t, table, size - 1, data[0] & 1, data[0] & 2 ? 1 : 0);
	if (off > size - 1)
		abort();
	if (off < size - 1) {
		for (uint64_t i = 0; i < t.n && i < FUNCTIONS_MAX; i++)
			if (uw_pclntab_at(&t, i, &f))
				one(&t, &f);
		if (t.n && uw_pclntab_at(&t, t.n - 1, &f))
			one(&t, &f);
		(void)uw_pclntab_guess_text(&t, 0x1000, 0x1040);
	}
	free(table);
	return 0;
}

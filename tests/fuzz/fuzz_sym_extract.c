/*
 * tests/fuzz/fuzz_sym_extract.c: fuzzes what is read of a file by its descriptor: the parts that a
 * capture stores of it, its build-id, its links to debug files, and the symbols for a few addresses.
 * What is passed on lies in the file.
 */
#include "symbolizer/symbolizer.h"
#include "tests/fuzz/touch.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint64_t sink; /* all bytes that are returned must be readable */

static int put(void *ctx, uint64_t off, const void *bytes, size_t size)
{
	const size_t *all = ctx;

	if (off > *all || size > *all - off)
		abort();
	sink += touch(bytes, size);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t vaddrs[] = { 0, 0x1000, 0x1139, 0x401000 };
	enum { N = sizeof(vaddrs) / sizeof(vaddrs[0]) };
	static int file = -1;
	static const struct sym_part parts[] = { { 0, 16 },
						 { 0x1000, 0x2000 },
						 { (uint64_t)1 << 40, UINT64_MAX } };
	struct sym_extract to = { .put = put,
				  .ctx = &size,
				  .most = 1 << 20,
				  .whole = size % 8 == 0,
				  .parts = parts,
				  .n_parts = size % 8 == 1 ? 3 : 0 };
	struct sym_debug_where where;
	struct sym_table *table;
	struct uw_build_id id;
	struct sym_symbol s;

	if (file < 0)
		file = memfd_create("file", MFD_CLOEXEC);
	if (file < 0 || ftruncate(file, (off_t)size) ||
	    pwrite(file, data, size, 0) != (ssize_t)size)
		abort();
	(void)sym_extract(file, 0, &to);
	if (!sym_build_id(file, 0, &id) && id.size > UW_BUILD_ID_MAX)
		abort();
	if (!sym_debug_where(file, 0, &where)) {
		if (where.inside != sym_has_debug(file, 0))
			abort();
		sink += where.linked ? strlen(where.link) : 0;
	}
	if (!sym_table_open_partial(file, NULL, 0, -1, vaddrs, N, &table)) {
		for (size_t i = 0; i < N; i++)
			if (!sym_table_find(table, vaddrs[i], &s)) {
				sink += strlen(s.name);
				if (s.addr > vaddrs[i])
					abort();
			}
		sym_table_free(table);
	}
	return 0;
}

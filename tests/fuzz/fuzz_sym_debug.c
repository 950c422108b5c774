/*
 * tests/fuzz/fuzz_sym_debug.c: fuzzes the reader of debug information: look-ups end, names are
 * sanitized, and what was read can be packed.
 */
#include "symbolizer/symbolizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text)
{
	char *clean = text ? sym_sanitize(text, strlen(text), 0) : NULL;

	if (text && (!clean || strcmp(clean, text) != 0))
		abort();
	free(clean);
}

static void look(const struct sym_lines *lines, uint64_t at)
{
	struct sym_place places[16];
	size_t n;

	if (sym_lines_find(lines, at, places, 16, &n))
		abort(); /* it was added */
	for (size_t i = 0; i < n; i++) {
		check_text(places[i].function);
		check_text(places[i].file);
	}
}

enum { PER_START = 18, STEP = 9 };

/* The result may be anything, but it must be sound. */
static void prepare(struct sym_debug *debug, const uint64_t *starts, size_t n)
{
	uint64_t vaddrs[8 * PER_START];

	for (size_t i = 0; i < n * PER_START; i++)
		vaddrs[i] = starts[i / PER_START] + STEP * (i % PER_START);
	(void)sym_debug_prepare(debug, vaddrs, n * PER_START, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* The addresses at which gcc, ld and a hand-made program have their code. */
	static const uint64_t starts[] = { 0x1000, 0x1120, 0x1140, 0x401000, 0x401106, 0 };
	enum { N = sizeof(starts) / sizeof(starts[0]) };
	struct sym_lines *lines = NULL;
	struct sym_debug *debug = NULL;
	size_t packed;
	void *blob;

	if (sym_lines_new(&lines))
		return 0;
	if (!sym_debug_open_image(data, size, NULL, lines, &debug)) {
		if (size % 2)
			prepare(debug, starts, N);
		for (size_t i = 0; i < N; i++)
			for (uint64_t at = starts[i]; at < starts[i] + PER_START * STEP; at += STEP)
				if (!sym_debug_add(debug, at))
					look(lines, at);
		if (!sym_lines_pack(lines, 1, &blob, &packed)) {
			struct sym_lines *kept;

			if (sym_lines_unpack(blob, packed, 1, &kept))
				abort(); /* what we made is sound */
			sym_lines_free(kept);
		}
	}
	sym_debug_free(debug);
	sym_lines_free(lines);
	return 0;
}

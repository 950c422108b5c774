/*
 * tests/fuzz/fuzz_sym_split.c: fuzzes debug information in two files. Byte 0 says what the second
 * one is: a .dwo file, a .dwp file, or what dwz moved out of several files. Then come two bytes with
 * the size of the first file, and both files.
 */
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SPLIT = 1, PACKAGE = 2, ALT = 4, PREPARE = 8 };

#define HEAD 3

static struct {
	const uint8_t *bytes;
	size_t size;
	unsigned int opened;
} second;

static volatile uint64_t sink;

/* The reader asks for the second file at most as often as there are units, so this is not slow. */
static int give(int *fd)
{
	int file;

	if (second.opened++ > 64)
		return -ENOENT;
	file = memfd_create("second", MFD_CLOEXEC);
	if (file < 0 || pwrite(file, second.bytes, second.size, 0) != (ssize_t)second.size)
		abort();
	*fd = file;
	return 0;
}

static int alt(void *ctx, const char *name, const struct uw_build_id *id, int *fd)
{
	(void)ctx;
	(void)id;
	sink += strlen(name);
	return give(fd);
}

static int split(void *ctx, const char *directory, const char *name, int *fd)
{
	(void)ctx;
	sink += strlen(directory) + strlen(name);
	return give(fd);
}

static int package(void *ctx, int *fd)
{
	(void)ctx;
	return give(fd);
}

static void look(const struct sym_lines *lines, uint64_t at)
{
	struct sym_place places[16];
	size_t n;

	if (sym_lines_find(lines, at, places, 16, &n))
		abort(); /* it was added */
	for (size_t i = 0; i < n; i++)
		sink += (places[i].function ? strlen(places[i].function) : 0) +
			(places[i].file ? strlen(places[i].file) : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Where gcc's and clang's code begins (tests/fuzz/split.sh). */
	static const uint64_t starts[] = { 0x401000, 0 };
	enum { STARTS = 2, PER_START = 16, STEP = 5 };
	struct sym_debug_files files = { .ctx = NULL };
	struct sym_lines *lines = NULL;
	struct sym_debug *debug = NULL;
	uint64_t vaddrs[STARTS * PER_START];
	size_t n;

	if (size < HEAD)
		return 0;
	n = (size_t)data[1] | (size_t)data[2] << 8;
	n = n < size - HEAD ? n : size - HEAD;
	second.bytes = data + HEAD + n;
	second.size = size - HEAD - n;
	second.opened = 0;
	files.alt = data[0] & ALT ? alt : NULL;
	files.split = data[0] & SPLIT ? split : NULL;
	files.package = data[0] & PACKAGE ? package : NULL;
	if (sym_lines_new(&lines))
		return 0;
	if (!sym_debug_open_image(data + HEAD, n, &files, lines, &debug)) {
		for (size_t i = 0; i < STARTS * PER_START; i++)
			vaddrs[i] = starts[i / PER_START] + STEP * (i % PER_START);
		if (data[0] & PREPARE)
			(void)sym_debug_prepare(debug, vaddrs, STARTS * PER_START, NULL);
		for (size_t i = 0; i < STARTS * PER_START; i++)
			if (!sym_debug_add(debug, vaddrs[i]))
				look(lines, vaddrs[i]);
	}
	sym_debug_free(debug);
	sym_lines_free(lines);
	return 0;
}

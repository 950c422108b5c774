/*
 * tests/fuzz/fuzz_sym_jit.c: fuzzes the reader of perf maps and jitdump files: the result is an
 * error, or sanitized names.
 */
#include "symbolizer/symbolizer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct sym_jit *jit = NULL;
	struct sym_symbol s;

	if (fd < 0)
		fd = memfd_create("input", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, data, size, 0) != (ssize_t)size || ftruncate(fd, (off_t)size) ||
	    lseek(fd, 0, SEEK_SET))
		abort();
	if (!sym_jit_open(fd, &jit)) {
		/* Others for another size. */
		for (uint64_t at = size % 8 * 16; at < 0x2000; at += 128)
			if (!sym_jit_find(jit, at, &s) && (at < s.addr || at - s.addr >= s.size))
				abort();
		for (size_t i = 0; i < 64 && !sym_jit_at(jit, i, &s); i++) {
			char *clean = sym_sanitize(s.name, strlen(s.name), 0);
			uint64_t off;
			uint32_t frames;

			if (!clean || strcmp(clean, s.name) != 0)
				abort();
			free(clean);
			sym_jit_frames(jit, i, &off, &frames);
			if (frames && (off > size || frames > size - off))
				abort();
		}
		sym_jit_free(jit);
	}
	return 0;
}

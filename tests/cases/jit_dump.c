/*
 * tests/cases/jit_dump.c: prints what a jitdump file or a perf map says about each piece of code:
 * "address size name", in hex, and where the file has its unwind information: "offset size".
 *   usage: jit_dump FILE
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "symbolizer/symbolizer.h"

int main(int argc, char **argv)
{
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1, err;
	struct sym_symbol symbol;
	struct sym_jit *jit;

	if (fd < 0) {
		(void)fputs("usage: jit_dump FILE\n", stderr);
		return 2;
	}
	err = sym_jit_open(fd, &jit);
	if (err) {
		(void)fprintf(stderr, "%s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	for (size_t i = 0; !sym_jit_at(jit, i, &symbol); i++) {
		uint64_t off;
		uint32_t size;

		sym_jit_frames(jit, i, &off, &size);
		(void)printf("%" PRIx64 " %" PRIx64 " %s\t%" PRIx64 " %" PRIx32 "\n", symbol.addr,
			     symbol.size, symbol.name, off, size);
	}
	sym_jit_free(jit);
	(void)close(fd);
	return 0;
}

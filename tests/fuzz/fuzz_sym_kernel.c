/* tests/fuzz/fuzz_sym_kernel.c: fuzzes the reader of kallsyms. */
#include "symbolizer/symbolizer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sym_kernel *kernel = NULL;
	struct sym_symbol s;
	const char *module;
	uint64_t addr;
	static int fd = -1;

	if (fd < 0)
		fd = memfd_create("kallsyms", MFD_CLOEXEC);
	if (fd < 0 || pwrite(fd, data, size, 0) != (ssize_t)size || ftruncate(fd, (off_t)size) ||
	    lseek(fd, 0, SEEK_SET))
		abort();
	if (sym_kernel_open(fd, &kernel) == 0) {
		/* A symbol ends behind its last byte, so the last of all has none. */
		if (sym_kernel_lookup(kernel, "_text", &addr) == 0 && addr != UINT64_MAX &&
		    (sym_kernel_find(kernel, addr, &s, &module) != 0 || s.addr != addr))
			abort();
		(void)sym_kernel_find(kernel, UINT64_MAX, &s, &module);
		(void)sym_kernel_find(kernel, 0, &s, &module);
	}
	sym_kernel_free(kernel);
	return 0;
}

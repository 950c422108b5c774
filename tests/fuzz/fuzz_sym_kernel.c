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
	int fd = memfd_create("kallsyms", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET) != 0)
		abort();
	if (sym_kernel_open(fd, &kernel) == 0) {
		if (sym_kernel_lookup(kernel, "_text", &addr) == 0 &&
		    (sym_kernel_find(kernel, addr, &s, &module) != 0 || s.addr != addr))
			abort();
		(void)sym_kernel_find(kernel, UINT64_MAX, &s, &module);
		(void)sym_kernel_find(kernel, 0, &s, &module);
	}
	sym_kernel_free(kernel);
	(void)close(fd);
	return 0;
}

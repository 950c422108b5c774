/* Any bytes as a pprof profile: an error, or one that can be checked and printed. */
#include "agent/cmd/cmd.h"
#include "proto/pprof_read.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int file_fd = -1;
	static FILE *null;
	static char path[32];
	struct pprof_file *file = NULL;
	char error[PPROF_ERROR_SIZE] = "";

	if (file_fd < 0) {
		file_fd = memfd_create("pprof", 0);
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
		null = fopen("/dev/null", "w");
		if (file_fd < 0 || !null)
			abort();
	}
	if (ftruncate(file_fd, 0) || pwrite(file_fd, data, size, 0) != (ssize_t)size ||
	    lseek(file_fd, 0, SEEK_SET))
		abort();
	if (pprof_read(file_fd, 1 << 20, &file, error)) {
		if (file || !error[0])
			abort();
		return 0;
	}
	(void)pprof_check(pprof_profile(file), true, NULL, NULL);
	pprof_file_free(file);
	(void)report_print(path, 5, null);
	return 0;
}

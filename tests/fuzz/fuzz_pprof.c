/*
 * tests/fuzz/fuzz_pprof.c: fuzzes the reader of pprof profiles: the result is an error, or a
 * profile that can be checked, printed and converted.
 */
#include "agent/cmd/cmd.h"
#include "agent/export/formats.h"
#include "agent/export/profile/ranking.h"
#include "agent/export/profile/tree.h"
#include "proto/pprof_read.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool all(void *ctx, uint32_t function)
{
	(void)ctx;
	(void)function;
	return true;
}

/*
 * Print one of the views, so that each input costs one; a view with a base compares the profile
 * with itself.
 */
static void show(int fd, unsigned int which, FILE *null)
{
	struct stacks *s = NULL;
	struct tree tree = { 0 };
	bool compared = which == FORMAT_N || format_compares((enum format)which);

	if (stacks_new(&s) || lseek(fd, 0, SEEK_SET) || stacks_load_fd(s, fd, "it", false) ||
	    (compared && (lseek(fd, 0, SEEK_SET) || stacks_load_fd(s, fd, "it", true)))) {
		stacks_free(s);
		return;
	}
	if (which < FORMAT_N) {
		(void)format_write((enum format)which, s, SIZE_MAX, null);
	} else {
		struct ranking r = { .by = which % (RANKING_STOP + 1) };

		if (!ranking_add(&r, s, s->default_type))
			ranking_sort(&r, RANKING_BY_CHANGE);
		ranking_fini(&r);
		if (!tree_make(s, s->default_type, which % 2, 16, all, NULL, &tree))
			tree_fini(&tree);
	}
	stacks_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	unsigned int sum = 0;
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
	for (size_t i = 0; i < size; i++)
		sum += data[i];
	if (sum % 16 < 14)
		show(file_fd, sum % 16, null);
	else
		(void)report_print(path, 5, null);
	return 0;
}

#include "unwinder/large.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Of x86_64, and of aarch64 with pages of 4 KiB; elsewhere it is no more than an alignment. */
#define LARGE_PAGE ((size_t)2 << 20)

void *uw_large_alloc(size_t size)
{
	void *memory;

	if (size < LARGE_PAGE)
		return malloc(size ? size : 1);
	if (posix_memalign(&memory, LARGE_PAGE, size))
		return NULL;
	/* Whole ones: what is left over is no reason to take up to 2 MiB more. */
	(void)madvise(memory, size & ~(LARGE_PAGE - 1), MADV_HUGEPAGE);
	return memory;
}

/* base/large.c: allocates large buffers in huge pages. */
#include "base/large.h"

#include <stdlib.h>
#include <sys/mman.h>

/* The size on x86_64, and on aarch64 with pages of 4 KiB. Elsewhere it is only an alignment. */
#define LARGE_PAGE ((size_t)2 << 20)

void *uw_large_alloc(size_t size)
{
	void *memory;

	if (size < LARGE_PAGE)
		return malloc(size ? size : 1);
	if (posix_memalign(&memory, LARGE_PAGE, size))
		return NULL;
	/* Whole huge pages only: the rest does not justify up to 2 MiB more. */
	(void)madvise(memory, size & ~(LARGE_PAGE - 1), MADV_HUGEPAGE);
	return memory;
}

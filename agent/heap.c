#include "agent/heap.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* One step takes what most runs need; what lies beyond comes in pages as ever. */
#define STEP	 ((size_t)64 << 20)
#define PAGE	 ((uintptr_t)2 << 20)
#define APART_AT (32 << 20) /* larger ones have mappings of their own, which come and go */

void heap_in_large_pages(void)
{
	uintptr_t start = (uintptr_t)sbrk(0), end;
	void *volatile grow; /* or the compiler sees that nobody needs it */

	if (mallopt(M_TOP_PAD, (int)STEP) != 1 || mallopt(M_MMAP_THRESHOLD, APART_AT) != 1 ||
	    mallopt(M_TRIM_THRESHOLD, 2 * (int)STEP) != 1)
		return;
	/* More than what is left of the first step. */
	grow = malloc((size_t)256 << 10);
	end = (uintptr_t)sbrk(0);
	free(grow);
	start = (start + PAGE - 1) & ~(PAGE - 1);
	end &= ~(PAGE - 1);
	if (start < end && end - start < 2 * STEP)
		(void)madvise((void *)start, end - start, MADV_HUGEPAGE);
}

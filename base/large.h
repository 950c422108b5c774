/*
 * base/large.h: memory for large buffers that are read at a few places.
 *
 * Of a section or table of some megabytes, a few places in hundreds of pages are read. In a process
 * that has just started, getting to a page costs more than what is read there. With a huge page
 * there is one page to get to instead of 512, and one page fault at the first write.
 */
#ifndef BASE_LARGE_H
#define BASE_LARGE_H

#include <stddef.h>

/*
 * Allocate memory as malloc does; free it with free(). From 2 MiB on it is in huge pages, if the
 * system has some. NULL: no memory.
 */
void *uw_large_alloc(size_t size);

#endif

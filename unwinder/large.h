/*
 * unwinder/large.h: memory for what is read here and there.
 *
 * A section or a table of some megabytes is looked into at a few places of hundreds of
 * pages, and in a process that has just begun the way to a page costs more than what is
 * read there.  In large pages there is one to go to, and one to be had at the first
 * write instead of 512.
 */
#ifndef UNWINDER_LARGE_H
#define UNWINDER_LARGE_H

#include <stddef.h>

/* As malloc, for free(); from 2 MiB on in large pages where the system has some, else in small ones. */
void *uw_large_alloc(size_t size);

#endif

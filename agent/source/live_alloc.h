/*
 * agent/source/live_alloc.h: where allocators are: the C library of each container,
 * other libraries and programs that have a malloc of their own.
 *
 * A file is looked into once, when it is first seen mapped anywhere.  What is
 * allocated before that is not seen, but for what runs when recording begins and
 * for the program that is named before it does.
 */
#ifndef AGENT_SOURCE_LIVE_ALLOC_H
#define AGENT_SOURCE_LIVE_ALLOC_H

#include "agent/event.h"

struct live_bpf;
struct live_allocators;

/* bpf is borrowed, with the event of the allocations; -ENOMEM. */
int live_allocators_new(struct live_bpf *bpf, struct live_allocators **out);
void live_allocators_free(struct live_allocators *allocators); /* NULL is fine */

/*
 * A file that cannot be opened (it is not there any more) or watched is left out;
 * -ENOMEM.
 */
int live_allocators_mapping(struct live_allocators *allocators, uint32_t pid,
			    const struct event_mapping *mapping);
/* The same of a file by its name, in this process's own root. */
int live_allocators_file(struct live_allocators *allocators, const char *path);

/* What attaching said, where none could be watched that was tried; error has LIVE_ERROR_SIZE. */
int live_allocators_failed(const struct live_allocators *allocators, char *error);

size_t live_allocators_n(const struct live_allocators *allocators); /* files with a malloc */

#endif

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

/*
 * bpf is borrowed, with the event of the allocations.  everywhere: the probes are in all
 * processes that map an allocator; else in the processes that are told of below.  -ENOMEM.
 */
int live_allocators_new(struct live_bpf *bpf, bool everywhere, struct live_allocators **out);
void live_allocators_free(struct live_allocators *allocators); /* NULL is fine */

/*
 * Process pid, which is to be watched, has mapped a file: its allocator, if it has one, is watched.
 * A file that cannot be opened (it is not there any more) or watched is left out; -ENOMEM.
 */
int live_allocators_mapping(struct live_allocators *allocators, uint32_t pid,
			    const struct event_mapping *mapping);
/* The same of a file by its name, in this process's own root, that pid is about to execute. */
int live_allocators_file(struct live_allocators *allocators, uint32_t pid, const char *path);
/* Process child, which is to be watched, was born with the mappings of parent. */
int live_allocators_fork(struct live_allocators *allocators, uint32_t parent, uint32_t child);
/* A thread of process pid ended: if it was the last one, the process is watched no more. */
void live_allocators_exit(struct live_allocators *allocators, uint32_t pid);

/* Watch this process no more. */
void live_allocators_leave(struct live_allocators *allocators, uint32_t pid);

/* What attaching said, where none could be watched that was tried; error has LIVE_ERROR_SIZE. */
int live_allocators_failed(const struct live_allocators *allocators, char *error);

/* Whether the probes are in all processes: nothing else was wanted, or too many were chosen. */
bool live_allocators_everywhere(const struct live_allocators *allocators);
size_t live_allocators_n(const struct live_allocators *allocators); /* files with a malloc */

#endif

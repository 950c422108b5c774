/*
 * agent/live/alloc/alloc.h: finds allocators to watch: the C library of each container, and other
 * libraries and programs that have a malloc of their own.
 *
 * Each file is searched once, when it is first seen as a mapping of any process. Allocations before
 * that are not recorded, except in processes that run when recording begins and in a program that
 * is named before recording begins.
 */
#ifndef AGENT_LIVE_ALLOC_ALLOC_H
#define AGENT_LIVE_ALLOC_ALLOC_H

#include "agent/event.h"

struct live_bpf;
struct live_allocators;

/*
 * Create the set of watched allocators. bpf is borrowed, and its events must contain the one for
 * allocations. everywhere: the probes are in all processes that map an allocator; otherwise only in
 * the processes that the functions below name. -ENOMEM.
 */
int live_allocators_new(struct live_bpf *bpf, bool everywhere, struct live_allocators **out);
void live_allocators_free(struct live_allocators *allocators); /* NULL is fine */

/*
 * Process pid, which is selected, has mapped a file. If the file has an allocator, watch it. A file
 * that cannot be opened (any more) or watched is left out. -ENOMEM.
 */
int live_allocators_mapping(struct live_allocators *allocators, uint32_t pid,
			    const struct event_mapping *mapping);
/*
 * As live_allocators_mapping, for a file that pid is about to execute. path is in this process's
 * own root directory.
 */
int live_allocators_file(struct live_allocators *allocators, uint32_t pid, const char *path);
/*
 * Process child, which is selected, was born with the mappings of parent: watch the same
 * allocators.
 */
int live_allocators_fork(struct live_allocators *allocators, uint32_t parent, uint32_t child);
/* A thread of process pid ended. If it was the last one, remove the process's probes. */
void live_allocators_exit(struct live_allocators *allocators, uint32_t pid);

/* Remove this process's probes. */
void live_allocators_leave(struct live_allocators *allocators, uint32_t pid);

/*
 * If attaching failed and no allocator is watched, return the first failure and write its message
 * to error, which has LIVE_ERROR_SIZE bytes. Otherwise return 0.
 */
int live_allocators_failed(const struct live_allocators *allocators, char *error);

/*
 * Return whether the probes are in all processes: because all processes are selected, or because
 * too many are selected to have probes of their own.
 */
bool live_allocators_everywhere(const struct live_allocators *allocators);
/* Files with a malloc that are watched. */
size_t live_allocators_n(const struct live_allocators *allocators);

#endif

/*
 * agent/pipeline/heap.h: tracks the heap memory of sampled processes: each captured allocation
 * until it is freed.
 */
#ifndef AGENT_PIPELINE_HEAP_H
#define AGENT_PIPELINE_HEAP_H

#include "agent/event.h"
#include "agent/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tracked allocation. */
struct heap_piece {
	struct event_alloc alloc; /* size: bytes that are not freed yet */
	uint32_t pid;
	uint32_t entry; /* set and used by the caller */
};

struct heap_process;

struct heap { /* all zero: empty */
	struct heap_piece *pieces;
	size_t n, room;
	struct uw_hash_index by_id;
	struct heap_process *processes; /* processes that have pieces, or had some */
	size_t n_processes, room_processes;
	struct uw_hash_index by_pid;
};

/*
 * Track an allocation. -ENOMEM; -ENOSPC: too many are live at once, or its id is in use; not
 * tracked.
 */
int heap_add(struct heap *heap, const struct heap_piece *piece);
/*
 * Apply freed memory. Return whether the allocation was tracked. Then out->alloc.size is the number
 * of bytes freed, and *whole tells whether nothing of the allocation is left.
 */
bool heap_freed(struct heap *heap, const struct event_freed *freed, struct heap_piece *out,
		bool *whole);

/*
 * Note that the process's main thread ended. The process counts as ended unless it allocates or
 * frees again.
 */
void heap_ends(struct heap *heap, uint32_t pid);
/*
 * Forget a process's allocations: it ran another program, or its pid belongs to another process
 * now.
 */
void heap_renewed(struct heap *heap, uint32_t pid);
void heap_forget_ended(struct heap *heap); /* forgets the pieces of all ended processes */

void heap_fini(struct heap *heap);

#endif

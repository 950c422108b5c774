/*
 * agent/pipeline/heap.h: memory that sampled processes have: each captured
 * allocation until it is given back.
 */
#ifndef AGENT_PIPELINE_HEAP_H
#define AGENT_PIPELINE_HEAP_H

#include "agent/event.h"
#include "agent/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_piece {
	struct event_alloc alloc; /* size: what is left of it */
	uint32_t pid;
	uint32_t entry; /* the caller's */
};

struct heap_process;

struct heap { /* all zero: empty */
	struct heap_piece *pieces;
	size_t n, room;
	struct hash_index by_id;
	struct heap_process *processes; /* that have pieces, or had */
	size_t n_processes, room_processes;
	struct hash_index by_pid;
};

/* -ENOMEM; -ENOSPC: too many are live at once, and this one will not be told of. */
int heap_add(struct heap *heap, const struct heap_piece *piece);
/*
 * Whether it was live; then *out says what of it is given back (alloc.size), and *whole
 * whether nothing is left.
 */
bool heap_freed(struct heap *heap, const struct event_freed *freed, struct heap_piece *out,
		bool *whole);

/* The process's first thread ended, and so did it, unless it still gives back or allocates. */
void heap_ends(struct heap *heap, uint32_t pid);
/* The process has other memory from here on: it ran another program, or its number is another's. */
void heap_renewed(struct heap *heap, uint32_t pid);
void heap_forget_ended(struct heap *heap); /* the pieces of all that ended */

void heap_fini(struct heap *heap);

#endif

/* agent/pipeline/heap.c: a table of live allocations, by id and by process. */
#include "agent/pipeline/heap.h"

#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>

/* Four times the number of allocations that a live recording can track at once. */
#define PIECES_MAX ((size_t)1 << 20)

struct heap_process {
	uint32_t pid;
	bool ended;
	size_t n; /* pieces */
};

static uint32_t find_piece(const struct heap *heap, uint64_t id)
{
	return UW_HASH_FIND(k, &heap->by_id, hash_u64(0, id), heap->pieces[k].alloc.id == id);
}

static struct heap_process *find_process(const struct heap *heap, uint32_t pid)
{
	uint32_t i =
		UW_HASH_FIND(k, &heap->by_pid, hash_u64(0, pid), heap->processes[k].pid == pid);

	return i == UW_HASH_NONE ? NULL : &heap->processes[i];
}

/* Add a process unless it is known. -ENOMEM. */
static int need_process(struct heap *heap, uint32_t pid)
{

	if (find_process(heap, pid))
		return 0;
	if (array_grow(heap->processes, heap->n_processes, heap->room_processes))
		return -ENOMEM;
	heap->processes[heap->n_processes] = (struct heap_process){ .pid = pid };
	if (uw_hash_add(&heap->by_pid, hash_u64(0, pid), (uint32_t)heap->n_processes))
		return -ENOMEM;
	heap->n_processes++;
	return 0;
}

/* Remove a piece; the last piece fills the gap. */
static void drop_piece(struct heap *heap, uint32_t i)
{
	uint32_t last = (uint32_t)--heap->n;

	find_process(heap, heap->pieces[i].pid)->n--;
	uw_hash_remove(&heap->by_id, hash_u64(0, heap->pieces[i].alloc.id), i);
	if (i == last)
		return;
	heap->pieces[i] = heap->pieces[last];
	uw_hash_renumber(&heap->by_id, hash_u64(0, heap->pieces[i].alloc.id), last, i);
}

/* Remove a process; the last process fills the gap. */
static void drop_process(struct heap *heap, uint32_t i)
{
	uint32_t last = (uint32_t)--heap->n_processes;

	uw_hash_remove(&heap->by_pid, hash_u64(0, heap->processes[i].pid), i);
	if (i == last)
		return;
	heap->processes[i] = heap->processes[last];
	uw_hash_renumber(&heap->by_pid, hash_u64(0, heap->processes[i].pid), last, i);
}

int heap_add(struct heap *heap, const struct heap_piece *piece)
{
	struct heap_process *process;
	int err;

	/* Only a forged recording uses an id twice. */
	if (find_piece(heap, piece->alloc.id) != UW_HASH_NONE)
		return -ENOSPC;
	if (heap->n == PIECES_MAX)
		heap_forget_ended(heap);
	if (heap->n == PIECES_MAX)
		return -ENOSPC;
	err = need_process(heap, piece->pid);
	if (err)
		return err;
	if (array_grow(heap->pieces, heap->n, heap->room))
		return -ENOMEM;
	heap->pieces[heap->n] = *piece;
	if (uw_hash_add(&heap->by_id, hash_u64(0, piece->alloc.id), (uint32_t)heap->n))
		return -ENOMEM;
	heap->n++;
	process = find_process(heap, piece->pid);
	process->n++;
	process->ended = false;
	return 0;
}

bool heap_freed(struct heap *heap, const struct event_freed *freed, struct heap_piece *out,
		bool *whole)
{
	uint32_t i = find_piece(heap, freed->id);
	struct heap_piece *piece;

	if (i == UW_HASH_NONE)
		return false;
	piece = &heap->pieces[i];
	find_process(heap, piece->pid)->ended = false;
	*out = *piece;
	*whole = freed->bytes >= piece->alloc.size;
	if (*whole) {
		drop_piece(heap, i);
		return true;
	}
	piece->alloc.size -= freed->bytes;
	out->alloc.size = freed->bytes;
	return true;
}

void heap_ends(struct heap *heap, uint32_t pid)
{
	struct heap_process *process = find_process(heap, pid);

	if (process)
		process->ended = true;
}

/* Forget the pieces of all processes that which selects, and all processes without pieces. */
static void forget(struct heap *heap, bool (*which)(const struct heap_process *, uint32_t),
		   uint32_t pid)
{
	for (size_t i = heap->n; i-- > 0;)
		if (which(find_process(heap, heap->pieces[i].pid), pid))
			drop_piece(heap, (uint32_t)i);
	for (size_t i = heap->n_processes; i-- > 0;)
		if (!heap->processes[i].n)
			drop_process(heap, (uint32_t)i);
}

static bool is_it(const struct heap_process *process, uint32_t pid)
{
	return process->pid == pid;
}

static bool has_ended(const struct heap_process *process, uint32_t pid)
{
	(void)pid;
	return process->ended;
}

void heap_renewed(struct heap *heap, uint32_t pid)
{
	const struct heap_process *process = find_process(heap, pid);

	if (process)
		forget(heap, is_it, pid);
}

void heap_forget_ended(struct heap *heap)
{
	forget(heap, has_ended, 0);
}

void heap_fini(struct heap *heap)
{
	free(heap->pieces);
	free(heap->processes);
	uw_hash_fini(&heap->by_id);
	uw_hash_fini(&heap->by_pid);
	*heap = (struct heap){ 0 };
}

/* proto/arena.c: the arena allocator for unpacking protobuf messages. */
#include "proto/arena.h"

#include <stdalign.h>
#include <stdlib.h>

enum { BLOCK_SIZE = 64 * 1024 };

struct arena_block {
	struct arena_block *next;
	size_t used, size;
	alignas(max_align_t) char bytes[];
};

/* ProtobufCAllocator.alloc. */
static void *take(void *arena, size_t size)
{
	return arena_alloc(arena, size);
}

/* ProtobufCAllocator.free: do nothing, the arena frees its blocks as a whole. */
static void keep(void *arena, void *pointer)
{
	(void)arena;
	(void)pointer;
}

void arena_init(struct arena *arena, size_t limit)
{
	*arena = (struct arena){ .limit = limit };
	arena->allocator =
		(ProtobufCAllocator){ .alloc = take, .free = keep, .allocator_data = arena };
}

static void release(struct arena_block *block)
{
	while (block) {
		struct arena_block *next = block->next;

		free(block);
		block = next;
	}
}

void arena_fini(struct arena *arena)
{
	release(arena->blocks);
	arena_init(arena, arena->limit);
}

/* Free all blocks but the newest, which is usually the largest. */
void arena_reset(struct arena *arena)
{
	struct arena_block *block = arena->blocks;

	if (!block)
		return;
	release(block->next);
	block->next = NULL;
	block->used = 0;
	arena->used = block->size;
	arena->full = false;
}

void *arena_alloc(struct arena *arena, size_t size)
{
	struct arena_block *block = arena->blocks;
	void *out;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
	if (!block || size > block->size - block->used) {
		/* Blocks grow with the memory in use, so that their number stays small. */
		size_t want = arena->used / 4 > BLOCK_SIZE ? arena->used / 4 : BLOCK_SIZE;

		if (want > arena->limit - arena->used)
			want = arena->limit - arena->used;
		if (want < size)
			want = size;
		if (want > arena->limit - arena->used) {
			arena->full = true;
			return NULL;
		}
		block = malloc(sizeof(*block) + want);
		if (!block)
			return NULL;
		*block = (struct arena_block){ .next = arena->blocks, .size = want };
		arena->blocks = block;
		arena->used += want;
	}
	out = block->bytes + block->used;
	block->used += size;
	return out;
}

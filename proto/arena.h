/*
 * proto/arena.h: an allocator whose memory is released all at once, with an upper limit.
 *
 * A protobuf message of two bytes can unpack to a hundred bytes. Unpacking into an arena limits
 * the memory that a hostile file can use, and frees all of it with one call.
 */
#ifndef PROTO_ARENA_H
#define PROTO_ARENA_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

struct arena_block;

struct arena {
	struct arena_block *blocks; /* the block in use comes first */
	size_t used;		    /* bytes allocated from the system */
	size_t limit;
	bool full;		      /* an allocation was refused because of the limit */
	ProtobufCAllocator allocator; /* for protobuf-c; its free function does nothing */
};

/*
 * Initialize an arena of at most limit bytes. The arena must not move afterwards, because its
 * allocator points to it.
 */
void arena_init(struct arena *arena, size_t limit);
void arena_fini(struct arena *arena);

/* Discard all allocations, and reuse one block for the next ones. */
void arena_reset(struct arena *arena);

/*
 * Allocate size bytes, aligned for any object. Return NULL at the limit, or if the system has no
 * memory.
 */
void *arena_alloc(struct arena *arena, size_t size);

#endif

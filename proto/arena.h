/*
 * proto/arena.h: memory handed out piece by piece and released all at once,
 * never more than a limit.
 *
 * A protobuf message of two bytes can unpack to a hundred; unpacking into an
 * arena bounds what a hostile file may cost, and frees it in one go.
 */
#ifndef PROTO_ARENA_H
#define PROTO_ARENA_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

struct arena_block;

struct arena {
	struct arena_block *blocks; /* the one in use first */
	size_t used;		    /* bytes taken from the system */
	size_t limit;
	ProtobufCAllocator allocator; /* for protobuf-c; its free does nothing */
};

/* Must not move afterwards: the allocator points back at it. */
void arena_init(struct arena *arena, size_t limit);
void arena_fini(struct arena *arena);

/* Forgets everything handed out and keeps one block for what comes next. */
void arena_reset(struct arena *arena);

/* Aligned for any object; NULL when the limit or the system's memory is reached. */
void *arena_alloc(struct arena *arena, size_t size);

#endif

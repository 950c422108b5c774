/*
 * agent/source/core_file.h: the private state of the reader of core files: core.c reads the
 * segments and the memory, core_notes.c the notes, and core_mappings.c finds what was mapped.
 */
#ifndef AGENT_SOURCE_CORE_FILE_H
#define AGENT_SOURCE_CORE_FILE_H

#include "agent/source/frozen.h"
#include "base/bytes.h"

#include <stddef.h>
#include <stdint.h>

enum { CORE_CACHE_SLOTS = 64 };

struct core_segment {
	uint64_t vaddr, mem_size;
	uint64_t off, size; /* the bytes that the core file holds */
	uint32_t flags;
};

struct core_chunk {
	uint64_t off; /* file offset; UINT64_MAX: the slot is empty */
	size_t size;
	uint8_t *bytes;
};

struct core {
	struct frozen frozen;
	int fd;
	uint64_t file_size;
	char *name; /* for messages; owned */
	const char *base;
	struct core_segment *segments; /* sorted by vaddr, without overlaps; owned */
	size_t n_segments;
	struct core_chunk cache[CORE_CACHE_SLOTS];
	uint8_t *files; /* contents of NT_FILE; owned */
	uint32_t files_size;
	uint64_t files_off;
	uint64_t phdr, n_phdrs, vdso, program; /* from the auxiliary vector; 0: unknown */
};

/* Read size bytes at off of the core file; -EBADMSG if the file does not have them. */
int core_read_at(const struct core *c, uint64_t off, void *out, uint64_t size);

/*
 * Like core_read_at(), but through a cache of chunks: stacks and headers are read in many small
 * pieces that lie close together.
 */
int core_read_cached(struct core *c, uint64_t off, void *out, uint64_t size);

/* Return the segment that contains addr, or NULL. */
const struct core_segment *core_segment_at(const struct core *c, uint64_t addr);

/* Read captured memory (a uw_read_fn). Return -EFAULT if any byte of it is not in the core file. */
int core_read_memory(void *ctx, uint64_t addr, void *out, size_t size);

/*
 * Read all notes of a PT_NOTE segment. Damaged notes are recorded with frozen_damage() and end the
 * loop with 0. A negative code means that reading the file or allocating memory failed.
 */
int core_read_notes(struct core *c, uint64_t off, uint64_t size);

/* Add all mappings, with their build-ids. Return 0 or a negative code. */
int core_add_mappings(struct core *c);

#endif

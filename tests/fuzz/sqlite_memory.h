/*
 * tests/fuzz/sqlite_memory.h: gives SQLite memory that is cheaper than the sanitizer's heap, where a target of a
 * database spends two fifths of its time. What is not allocated is poisoned, as there: an access beyond
 * a value or to one that was freed fails. What is freed waits behind WAIT others of its size before it is used again.
 */
#ifndef TESTS_FUZZ_SQLITE_MEMORY_H
#define TESTS_FUZZ_SQLITE_MEMORY_H

#include <sanitizer/asan_interface.h>
#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
	SQLITE_MEMORY_STEP = 64,
	SQLITE_MEMORY_MOST = 8192, /* larger blocks are the heap's */
	SQLITE_MEMORY_PART = 1 << 18,
	SQLITE_MEMORY_WAIT = 16,
	SQLITE_MEMORY_LEAK = 64 << 20 /* a leak of every input gets there */
};

/* What lies before the bytes of a block. In a part it is always poisoned, so it also ends the block before. */
struct sqlite_block {
	struct sqlite_block *next; /* of those that are free */
	int size;
	unsigned int step; /* its whole size in SQLITE_MEMORY_STEP, or 0: from the heap */
};

static struct sqlite_blocks {
	struct sqlite_block *first, *last;
	unsigned int n;
} sqlite_free[SQLITE_MEMORY_MOST / SQLITE_MEMORY_STEP + 1];

struct sqlite_part {
	struct sqlite_part *next; /* so that the leak detector finds them */
	uint64_t unused;
	uint8_t bytes[SQLITE_MEMORY_PART];
};

static struct sqlite_part *sqlite_parts;

static size_t sqlite_part_used = SQLITE_MEMORY_PART, sqlite_in_use;

#define SQLITE_MEMORY_INSIDE __attribute__((no_sanitize("address")))

/* Return a block that was never used. One step at the end of a part stays poisoned. */
SQLITE_MEMORY_INSIDE static inline struct sqlite_block *sqlite_block_new(size_t size)
{
	struct sqlite_part *part = sqlite_parts;

	if (size + SQLITE_MEMORY_STEP > SQLITE_MEMORY_PART - sqlite_part_used) {
		part = malloc(sizeof(*part));
		if (!part)
			return NULL;
		part->next = sqlite_parts;
		sqlite_parts = part;
		sqlite_part_used = 0;
		ASAN_POISON_MEMORY_REGION(part->bytes, sizeof(part->bytes));
	}
	sqlite_part_used += size;
	return (void *)(part->bytes + sqlite_part_used - size);
}

SQLITE_MEMORY_INSIDE static inline void *sqlite_memory_malloc(int size)
{
	const unsigned int step = ((unsigned int)size + (unsigned int)sizeof(struct sqlite_block) +
				   SQLITE_MEMORY_STEP - 1) /
				  SQLITE_MEMORY_STEP;
	struct sqlite_block *block;

	if (step > SQLITE_MEMORY_MOST / SQLITE_MEMORY_STEP) {
		block = malloc(sizeof(*block) + (size_t)size);
		if (!block)
			return NULL;
		block->step = 0;
	} else {
		struct sqlite_blocks *f = &sqlite_free[step];

		block = f->first;
		if (f->n > SQLITE_MEMORY_WAIT) {
			f->first = block->next;
			f->n--;
		} else {
			block = sqlite_block_new((size_t)step * SQLITE_MEMORY_STEP);
			if (!block)
				return NULL;
		}
		block->step = step;
		ASAN_UNPOISON_MEMORY_REGION(block + 1, (size_t)size);
	}
	block->size = size;
	sqlite_in_use += (size_t)size;
	if (sqlite_in_use > SQLITE_MEMORY_LEAK)
		abort();
	return block + 1;
}

SQLITE_MEMORY_INSIDE static inline void sqlite_memory_free(void *bytes)
{
	struct sqlite_block *block = bytes;
	struct sqlite_blocks *f;

	if (!bytes)
		return;
	block--;
	sqlite_in_use -= (size_t)block->size;
	if (!block->step) {
		free(block);
		return;
	}
	ASAN_POISON_MEMORY_REGION(bytes, (size_t)block->size);
	f = &sqlite_free[block->step];
	block->next = NULL;
	if (f->n++)
		f->last->next = block;
	else
		f->first = block;
	f->last = block;
}

SQLITE_MEMORY_INSIDE static inline int sqlite_memory_size(void *bytes)
{
	return bytes ? ((struct sqlite_block *)bytes)[-1].size : 0;
}

static inline void *sqlite_memory_realloc(void *bytes, int size)
{
	const int was = sqlite_memory_size(bytes);
	void *new = sqlite_memory_malloc(size);

	if (!new)
		return NULL;
	memcpy(new, bytes, (size_t)(was < size ? was : size));
	sqlite_memory_free(bytes);
	return new;
}

static inline int sqlite_memory_round(int size)
{
	return (size + 7) & ~7;
}

static inline int sqlite_memory_init(void *unused)
{
	(void)unused;
	return SQLITE_OK;
}

static inline void sqlite_memory_shutdown(void *unused)
{
	(void)unused;
}

/* Configure SQLite, before anything else uses it: these targets have one thread, and most allocations are small. */
static inline void sqlite_memory_use(void)
{
	static const sqlite3_mem_methods methods = {
		.xMalloc = sqlite_memory_malloc,
		.xFree = sqlite_memory_free,
		.xRealloc = sqlite_memory_realloc,
		.xSize = sqlite_memory_size,
		.xRoundup = sqlite_memory_round,
		.xInit = sqlite_memory_init,
		.xShutdown = sqlite_memory_shutdown,
	};

	if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) ||
	    sqlite3_config(SQLITE_CONFIG_SINGLETHREAD) ||
	    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) ||
	    sqlite3_config(SQLITE_CONFIG_PAGECACHE, NULL, 0, 0) ||
	    sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0))
		abort();
}

#endif

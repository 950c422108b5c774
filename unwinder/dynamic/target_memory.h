/*
 * unwinder/dynamic/target_memory.h: what one reading of a process's lists of generated code has
 * collected so far, and its budget. Used by the readers of both kinds of lists (dynamic_list.c,
 * dynamic_jit.c) and by dynamic_read.c, which calls them.
 */
#ifndef UNWINDER_DYNAMIC_TARGET_MEMORY_H
#define UNWINDER_DYNAMIC_TARGET_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "schema/dynamic_blob.h"
#include "unwinder/unwinder.h"

struct uw_arch;

/* Maximum length of a name, in bytes; longer names are cut. */
#define UW_NAME_MAX_SIZE 512
/* How many elements of the lists are visited: elements without use cost time too. */
#define UW_VISITS_MAX	65536
#define UW_COMPARED_MAX ((size_t)8 << 20)

enum {
	/* struct jit_descriptor: version, action_flag, relevant_entry, first_entry */
	UW_JIT_FIRST = 16,
	UW_JIT_SIZE = 24
};

/* The state of one reading of all lists. */
struct uw_reading {
	const struct uw_arch *arch;
	uw_read_fn read;
	void *ctx;
	size_t room; /* bytes left in the budget */
	size_t visits;
	size_t n_compared; /* symbols, to find names; at most UW_COMPARED_MAX */
	uint32_t flags;
	struct dynamic_proc *procs; /* data and name are relative to data until put_together */
	size_t n_procs, procs_room;
	uint8_t *data;
	size_t n_data, data_room;
	int err; /* the first -ENOMEM */
};

/* Read the process's memory. On failure, mark the result as damaged and return false. */
bool uw_reading_fetch(struct uw_reading *r, uint64_t addr, void *out, size_t size);

/* Decode a little-endian number of 4 or 8 bytes. */
static inline uint64_t uw_reading_number(const uint8_t *p, unsigned int size)
{
	struct uw_bytes b = uw_bytes_of(p, size);

	return size == 8 ? uw_bytes_u64(&b) : uw_bytes_u32(&b);
}

/* Charge size bytes to the budget. Return false, and mark the result as cut, if it is exhausted. */
bool uw_reading_spend(struct uw_reading *r, size_t size);

/*
 * Allocate size bytes of data, aligned to 8, and set *off to their offset. Return NULL if the
 * budget is exhausted or there is no memory.
 */
uint8_t *uw_reading_keep(struct uw_reading *r, size_t size, uint32_t *off);

/*
 * Add a procedure; an empty one is skipped and marks the result as damaged. Return false if no
 * more procedures can be added.
 */
bool uw_reading_add(struct uw_reading *r, const struct dynamic_proc *proc);

/* Store a name and set *off to its offset + 1, so that 0 means that there is none. */
void uw_reading_keep_name(struct uw_reading *r, const char *name, size_t size, uint32_t *off);

/* Read libunwind's list: struct unw_dyn_info_list and its chain of elements. */
void uw_reading_list(struct uw_reading *r, uint64_t list);

/* Read GDB's list: struct jit_descriptor and its chain of entries. */
void uw_reading_jit(struct uw_reading *r, uint64_t descriptor);

#endif

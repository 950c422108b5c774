/*
 * unwinder/dynamic/target_memory.c: reads a process's memory within a budget, and stores the
 * procedures, names and unwind information that are found there.
 */
#include "unwinder/dynamic/target_memory.h"

#include "base/growth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool uw_reading_fetch(struct uw_reading *r, uint64_t addr, void *out, size_t size)
{
	if (!addr || addr > UINT64_MAX - size || r->read(r->ctx, addr, out, size)) {
		r->flags |= DYNAMIC_DAMAGED;
		return false;
	}
	return true;
}

bool uw_reading_spend(struct uw_reading *r, size_t size)
{
	if (r->err || size > r->room) {
		r->flags |= DYNAMIC_CUT;
		return false;
	}
	r->room -= size;
	return true;
}

uint8_t *uw_reading_keep(struct uw_reading *r, size_t size, uint32_t *off)
{
	size_t at = (r->n_data + 7) & ~(size_t)7, want = at + size;

	if (!uw_reading_spend(r, size + 8))
		return NULL;
	/* With one byte more, the data have an address even if all that is kept is empty. */
	r->err = UW_ARRAY_RESERVE(r->data, want + 1, r->data_room, SIZE_MAX);
	if (r->err)
		return NULL;
	memset(r->data + r->n_data, 0, at - r->n_data);
	r->n_data = want;
	*off = (uint32_t)at;
	return r->data + at;
}

bool uw_reading_add(struct uw_reading *r, const struct dynamic_proc *proc)
{
	if (proc->start >= proc->end) {
		r->flags |= DYNAMIC_DAMAGED;
		return true;
	}
	if (!uw_reading_spend(r, sizeof(*proc)))
		return false;
	r->err = UW_ARRAY_GROW(r->procs, r->n_procs, r->procs_room, SIZE_MAX);
	if (r->err)
		return false;
	r->procs[r->n_procs++] = *proc;
	return true;
}

void uw_reading_keep_name(struct uw_reading *r, const char *name, size_t size, uint32_t *off)
{
	uint8_t *to;

	*off = 0;
	if (!size)
		return;
	to = uw_reading_keep(r, size + 1, off);
	if (!to)
		return;
	memcpy(to, name, size);
	to[size] = 0;
	++*off;
}

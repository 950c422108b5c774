/*
 * agent/export/inner.h: functions that are innermost in every stack of a kind, and so say nothing:
 * the scheduler in stacks of threads that wait, the allocator in stacks of allocations.
 */
#ifndef AGENT_EXPORT_INNER_H
#define AGENT_EXPORT_INNER_H

#include "agent/export/stacks.h"

/*
 * Set *out to an array, by function of stacks, of which ones to pass over when samples of this type
 * are counted for their innermost function; NULL where the type is of neither kind.  The caller
 * frees it.  *only: the type that such a sample has a value of; in "wall" not the CPU's time.
 * Return 0 or -ENOMEM.
 */
int inner_functions(const struct stacks *stacks, size_t type, bool **out, size_t *only);

#endif

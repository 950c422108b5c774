/*
 * agent/export/profile/inner.h: functions that are innermost in every stack of a kind, and therefore say
 * nothing: the scheduler in stacks of threads that wait, the allocator in stacks of allocations.
 */
#ifndef AGENT_EXPORT_PROFILE_INNER_H
#define AGENT_EXPORT_PROFILE_INNER_H

#include "agent/export/profile/stacks.h"

/* The lists of functions, as flags. */
enum inner_list { INNER_SCHEDULER = 1, INNER_ALLOCATOR = 2 };

/*
 * Return the list whose functions do not count for a sample type of these stacks; 0: none. A "wall" without off-CPU time beside
 * it is another tool's: its stacks of threads that wait have no scheduler.
 */
unsigned int inner_of_type(const struct stacks *stacks, size_t type);
/* Return the lists that have a function. */
unsigned int inner_of_function(const char *name);

/*
 * Set *out to an array by function of stacks: the functions to skip when samples of this type are
 * counted for their innermost function. *out is NULL if the type is neither off-CPU time nor
 * allocations; the caller frees it. Only samples that have a value of the type *only are to be
 * treated so: in "wall" these are the off-CPU samples. Return 0 or -ENOMEM.
 */
int inner_functions(const struct stacks *stacks, size_t type, bool **out, size_t *only);

#endif

/*
 * agent/source/live_cost.h: what watching an allocator costs the programs that use it.
 */
#ifndef AGENT_SOURCE_LIVE_COST_H
#define AGENT_SOURCE_LIVE_COST_H

#include <stdint.h>

struct live_allocators;

/*
 * Watch this process's own allocator for some milliseconds, and tell how much longer a malloc and
 * a free take then.  -ENOENT: it cannot be found; -ENOMEM.
 */
int live_cost_measure(struct live_allocators *allocators, uint64_t *malloc_ns, uint64_t *free_ns);

#endif

/* agent/live/cost.h: measures what probes on an allocator cost the programs that use it. */
#ifndef AGENT_LIVE_COST_H
#define AGENT_LIVE_COST_H

#include <stdint.h>

struct live_allocators;

/*
 * Watch this process's own allocator for some milliseconds, and measure by how many ns a malloc and
 * a free become slower. -ENOENT: the allocator cannot be found; -ENOMEM.
 */
int live_cost_measure(struct live_allocators *allocators, uint64_t *malloc_ns, uint64_t *free_ns);

#endif

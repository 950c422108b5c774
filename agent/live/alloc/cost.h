/* agent/live/alloc/cost.h: measures what probes on an allocator cost the programs that use it. */
#ifndef AGENT_LIVE_ALLOC_COST_H
#define AGENT_LIVE_ALLOC_COST_H

#include <stdint.h>

struct live_cost { /* of one call */
	uint64_t malloc_ns, free_ns;
};

struct live_allocators;

/* Measure the time of a malloc and of a free in this process, as its allocator is now. */
void live_cost_time(struct live_cost *cost);
/*
 * Measure by how much a malloc and a free in this process are slower with probes than the baseline
 * ones, which live_cost_time measured before any probe was attached. If the probes are not in all
 * processes, this process gets some for a few milliseconds. -ENOENT: its allocator cannot be found;
 * -ENOMEM.
 */
int live_cost_measure(struct live_allocators *allocators, const struct live_cost *baseline,
		      struct live_cost *more);

#endif

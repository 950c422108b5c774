/* agent/live/alloc/cost.c: times calls of malloc and free with and without probes. */
#include "agent/live/alloc/cost.h"

#include "agent/clock.h"
#include "agent/live/alloc/alloc.h"
#include "agent/source/procfs.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CALLS	50u /* in a batch, which takes less than a millisecond even with slow probes */
#define BATCHES 5u  /* the fastest batch counts: in that one, this thread was not interrupted */

/* These are volatile, so that the compiler does not leave out the calls. */
static void *(*volatile allocate)(size_t) = malloc;
static void (*volatile give_back)(void *) = free;

/* Take the fastest of several batches: an interruption can only make a batch slower. */
void live_cost_time(struct live_cost *cost)
{
	void *blocks[CALLS];

	cost->malloc_ns = cost->free_ns = UINT64_MAX;
	for (size_t batch = 0; batch < BATCHES; batch++) {
		uint64_t start = now_ns(), middle, end;

		for (size_t i = 0; i < CALLS; i++)
			blocks[i] = allocate(64);
		middle = now_ns();
		for (size_t i = 0; i < CALLS; i++)
			give_back(blocks[i]);
		end = now_ns();
		if ((middle - start) / CALLS < cost->malloc_ns)
			cost->malloc_ns = (middle - start) / CALLS;
		if ((end - middle) / CALLS < cost->free_ns)
			cost->free_ns = (end - middle) / CALLS;
	}
}

/* Watch the allocator that contains this process's malloc. -ENOENT: it was not found. */
static int watch_own(struct live_allocators *allocators)
{
	struct event_mapping m;
	char *line;
	int err = procfs_own_mapping((uintptr_t)allocate, &m, &line);

	if (!err)
		err = live_allocators_mapping(allocators, (uint32_t)getpid(), &m);
	free(line);
	return err;
}

int live_cost_measure(struct live_allocators *allocators, const struct live_cost *baseline,
		      struct live_cost *more)
{
	struct live_cost now = { 0 };
	int err = live_allocators_everywhere(allocators) ? 0 : watch_own(allocators);

	if (!err)
		live_cost_time(&now);
	live_allocators_leave(allocators, (uint32_t)getpid());
	if (err)
		return err;
	more->malloc_ns =
		now.malloc_ns > baseline->malloc_ns ? now.malloc_ns - baseline->malloc_ns : 0;
	more->free_ns = now.free_ns > baseline->free_ns ? now.free_ns - baseline->free_ns : 0;
	return 0;
}

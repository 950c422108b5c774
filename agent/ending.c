/* agent/ending.c: the remaining time, as two atomic numbers. */
#include "agent/ending.h"

#include "agent/clock.h"

#include <stdatomic.h>

/* ns of CPU time, and CLOCK_MONOTONIC; UINT64_MAX: the end has not begun */
static _Atomic uint64_t left = UINT64_MAX, until = UINT64_MAX;

/* Lock-free, because a signal handler calls ending_begin. */
static void lower(_Atomic uint64_t *number, uint64_t to)
{
	uint64_t was = atomic_load(number);

	while (to < was && !atomic_compare_exchange_weak(number, &was, to))
		;
}

void ending_begin(uint64_t left_ns)
{
	lower(&until, now_ns() + ENDING_STRETCH * left_ns);
	lower(&left, left_ns);
}

void ending_spend(uint64_t used_ns)
{
	uint64_t was = atomic_load(&left), now;

	do {
		if (was == UINT64_MAX)
			return;
		now = used_ns < was ? was - used_ns : 0;
	} while (!atomic_compare_exchange_weak(&left, &was, now));
}

uint64_t ending_left(void)
{
	uint64_t cpu = atomic_load(&left), end = atomic_load(&until), now;

	if (cpu == UINT64_MAX)
		return cpu;
	now = now_ns();
	end = now < end ? (end - now) / ENDING_STRETCH : 0;
	return end < cpu ? end : cpu;
}

bool ending_over(void)
{
	return ending_left() == 0;
}

/* agent/ending.c: the remaining time, as one atomic number. */
#include "agent/ending.h"

#include <stdatomic.h>

/* nanoseconds; UINT64_MAX: the end has not begun */
static _Atomic uint64_t left = UINT64_MAX;

/* Lock-free, because a signal handler calls this function. */
void ending_begin(uint64_t left_ns)
{
	uint64_t was = atomic_load(&left);

	while (left_ns < was && !atomic_compare_exchange_weak(&left, &was, left_ns))
		;
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
	return atomic_load(&left);
}

bool ending_over(void)
{
	return ending_left() == 0;
}

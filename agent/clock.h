/* agent/clock.h: reads a clock in nanoseconds. */
#ifndef AGENT_CLOCK_H
#define AGENT_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Return the time of a clock of clock_gettime(2), in ns. */
static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	(void)clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Return the time of CLOCK_MONOTONIC in ns. Samples and events have times of this clock. */
static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* Return the pause after one of this length: the least one after none, else twice of it, at most the other. */
static inline uint64_t longer_pause(uint64_t pause_ns, uint64_t least, uint64_t most)
{
	if (!pause_ns)
		return least;
	return pause_ns > most / 2 ? most : 2 * pause_ns;
}

#endif

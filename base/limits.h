/* base/limits.h: the limits of unwinder/limits.h, for the code that keeps them. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

#include "unwinder/unwinder.h"

#include <stdbool.h>

/* Written by uw_limits_set alone, before there are threads. */
extern struct uw_limits uw_limits_now;
/* Counts; use atomic operations. */
extern struct uw_limits uw_limits_counts;

/* The value of a limit: uw_limit(rows). */
#define uw_limit(name) (uw_limits_now.name)

/* Count that a limit was reached: uw_limit_reach(rows). Thread-safe. */
#define uw_limit_reach(name) ((void)__atomic_fetch_add(&uw_limits_counts.name, 1, __ATOMIC_RELAXED))

/* Return whether a value is beyond the limit, and count that. Thread-safe. */
#define uw_limit_exceeded(name, value) \
	(__builtin_expect((value) > uw_limit(name), 0) && (uw_limit_reach(name), true))

#endif

/*
 * unwinder/walk/steppers.h: a group of steppers as walks go through it. Used by stepper.c, which
 * has the built-in steppers and calls all of them, and by steppers.c, which manages groups.
 */
#ifndef UNWINDER_WALK_STEPPERS_H
#define UNWINDER_WALK_STEPPERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

struct uw_asking;

/* Find the caller of the frame in a. */
typedef enum uw_answer (*uw_built_in_fn)(struct uw_asking *a);

/* One stepper of a group. */
struct uw_stepper_entry {
	struct uw_stepper_info info; /* name and ranges are owned if it is a user's */
	uw_built_in_fn built_in;     /* NULL: a user's stepper */
	uint8_t id;
	bool off;
	bool anywhere; /* called for every address, whatever the ranges */
};

/* The built-in steppers, by priority: the group of a space that has none of its own. */
#define UW_BUILT_IN_STEPPERS 9
extern const struct uw_stepper_entry uw_built_in_steppers[UW_BUILT_IN_STEPPERS];

/* The built-in steppers and those that were added. */
struct uw_steppers {
	/* by priority, equal ones in the order they were added; owned */
	struct uw_stepper_entry *entries;
	size_t n, n_users;
	uint8_t next_id;
	uw_choose_fn choose; /* NULL: use uw_steppers_find */
	void *choose_ctx;
};

/* Return whether the stepper is on and called for lookup. */
static inline bool uw_stepper_covers(const struct uw_stepper_entry *e, uint64_t lookup)
{
	bool inside = e->anywhere;

	if (e->off)
		return false;
	for (size_t i = 0; i < e->info.n_ranges && !inside; i++)
		inside = lookup >= e->info.ranges[i].start && lookup < e->info.ranges[i].end;
	return inside;
}

#endif

/*
 * agent/export/profile/types.h: the sample types of a profile, derived from the events it was recorded
 * with.
 *
 * Each event gives two types, the number of samples and the value they stand for: "samples"/count
 * and "cpu"/nanoseconds. From the second event on, the event's name is a prefix: "NAME_samples". If
 * waiting threads are sampled besides running ones, "wall" is the sum of both times. The waiting
 * time is also split: "blocked" until the thread was woken, "runnable" from then until it ran.
 * Allocations
 * give four types, as in Go's heap profiles: objects and bytes, each for everything allocated and
 * for what is still in use.
 */
#ifndef AGENT_EXPORT_PROFILE_TYPES_H
#define AGENT_EXPORT_PROFILE_TYPES_H

#include "agent/source/source.h"

#include <stdbool.h>

enum { TYPES_NAME = 200 };

struct types {
	struct types_one {
		char type[TYPES_NAME];
		char unit[32];
	} * all;
	size_t n;
	size_t *first;	     /* by event: index of its first type */
	size_t default_type; /* the type to show by default */
	bool wall;	     /* the last type is "wall" */
	const char *period_type;
};

/* Make the sample types for the events of a source. The caller calls types_fini(). -ENOMEM. */
int types_of(const struct source_info *info, struct types *out);
void types_fini(struct types *types);

/*
 * Make the type of that name the default. -ENOENT: there is none, which is reported with a list of
 * the types.
 */
int types_choose(struct types *types, const char *name);

/* The sums over samples of one event. */
struct types_counts {
	uint64_t n, value;
	uint64_t n_off_cpu,
		runnable; /* of waits: their number; the part of value after they were woken */
	/*
	 * Of allocations (value: the bytes allocated): the objects allocated and those still in
	 * use, in units of 1 / EVENT_OBJECT; the bytes still in use.
	 */
	uint64_t objects, live_objects, live;
};

/* Set all types->n values: those of the event from counts, all others to 0. */
void types_values(const struct types *types, const struct source_info *info, size_t event,
		  const struct types_counts *counts, int64_t *values);

#endif

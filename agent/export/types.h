/*
 * agent/export/types.h: the sample types of a profile, by the events it was recorded with.
 *
 * Each event gives two, the number of samples and what they stand for: "samples"/count and
 * "cpu"/nanoseconds; the second event on has its name before: "NAME_samples".  Where threads
 * that wait are sampled beside those that run, "wall" is both times together.  Of allocations it
 * is four, as Go's heap profiles have them: objects and bytes, all that was allocated and what of
 * it is in use.
 */
#ifndef AGENT_EXPORT_TYPES_H
#define AGENT_EXPORT_TYPES_H

#include "agent/source/source.h"

#include <stdbool.h>

enum { TYPES_NAME = 200 };

struct types {
	struct types_one {
		char type[TYPES_NAME];
		char unit[32];
	} * all;
	size_t n;
	size_t *first;	     /* by event: of its types */
	size_t default_type; /* to show first */
	bool wall;	     /* the last one is "wall" */
	const char *period_type;
};

int types_of(const struct source_info *info, struct types *out); /* -ENOMEM */
void types_fini(struct types *types);

/*
 * The type of that name becomes the one to show first; -ENOENT: there is none, which is reported
 * with those that there are.
 */
int types_choose(struct types *types, const char *name);

/* What samples of one event come to. */
struct types_counts {
	uint64_t n, value;
	/* Of allocations, in 1 / EVENT_OBJECT: how many, and of these in use; and their bytes. */
	uint64_t objects, live_objects, live;
};

/* values[types->n] of them; all others are 0. */
void types_values(const struct types *types, const struct source_info *info, size_t event,
		  const struct types_counts *counts, int64_t *values);

#endif

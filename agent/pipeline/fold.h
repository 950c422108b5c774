/* agent/pipeline/fold.h: counts equal stacks once and returns them as a profile. */
#ifndef AGENT_PIPELINE_FOLD_H
#define AGENT_PIPELINE_FOLD_H

#include "agent/pipeline/profile.h"

struct fold;

/* separate: count no stacks together, each sample becomes an entry with its time. */
int fold_new(bool separate, struct fold **out);
void fold_free(struct fold *fold); /* NULL is fine */

/* A walked sample to be counted. */
struct fold_sample {
	uint16_t event;
	uint8_t stop, confidence;
	bool has_user, stack_cut;
	uint32_t owner; /* the process that has the memory of an allocation */
	uint32_t pid,
		tid; /* of the entry: without the labels that are dropped, as all that follow */
	/* Strings must outlive every profile. Equal strings must be equal pointers. */
	const char *comm, *process_comm;
	const char *labels[PROFILE_LABELS];
	uint64_t cgroup_id, time_ns, value;
	struct event_alloc alloc;     /* id 0: the sample is not an allocation */
	uint64_t n_off_cpu, runnable; /* as in the entry */
	const uint32_t *locations; /* ids from fold_location; innermost first, kernel before user */
	uint32_t n_locations, n_kernel;
};

/* Return the id of a location. Until fold_take, equal locations have the same id. -ENOMEM. */
int fold_location(struct fold *fold, const struct location *location, uint32_t *out);

int fold_add(struct fold *fold, const struct fold_sample *sample); /* -ENOMEM: not counted */

/* Apply exits, execs, forks and freed memory: they end the life of sampled allocations. */
void fold_event(struct fold *fold, const struct event *event);

/* Mark the modules that the profile being made has (modules_note_counted), or its names (strings_mark). */
void fold_note_modules(const struct fold *fold);
void fold_note_names(const struct fold *fold);

/*
 * Return everything folded so far as a profile, which may be passed to another thread. The next
 * profile begins empty, except for memory that was not freed yet. Free the profile with
 * profile_free. -ENOMEM.
 */
int fold_take(struct fold *fold, struct profile **out);
void profile_free(struct profile *profile); /* NULL is fine */

#endif

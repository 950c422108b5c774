/*
 * agent/pipeline/fold.h: counts equal stacks once and gives them out as a profile.
 */
#ifndef AGENT_PIPELINE_FOLD_H
#define AGENT_PIPELINE_FOLD_H

#include "agent/pipeline/profile.h"

struct fold;

int fold_new(struct fold **out);
void fold_free(struct fold *fold); /* NULL is fine */

struct fold_sample {
	uint16_t event;
	uint8_t stop, confidence;
	bool has_user, stack_cut;
	uint32_t pid, tid;
	/* Texts must outlive every profile; equal texts, equal pointers. */
	const char *comm, *process_comm;
	const char *cgroup; /* its path; NULL: not known */
	uint64_t cgroup_id, time_ns, value;
	struct event_alloc alloc;  /* id 0: it is none */
	const uint32_t *locations; /* numbers; innermost first, kernel before user */
	uint32_t n_locations, n_kernel;
};

/* The location's number until fold_take, the same one each time.  -ENOMEM. */
int fold_location(struct fold *fold, const struct location *location, uint32_t *out);

int fold_add(struct fold *fold, const struct fold_sample *sample); /* -ENOMEM: not counted */

/* Exits, execs, forks and memory that is given back: what becomes of sampled allocations. */
void fold_event(struct fold *fold, const struct event *event);

/* What was folded so far as a profile of its own, which may go to another thread; starts anew,
   with the memory that is not given back. */
int fold_take(struct fold *fold, struct profile **out);
void profile_free(struct profile *profile); /* NULL is fine */

#endif

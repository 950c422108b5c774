/*
 * agent/pipeline/pipeline_internal.h: the pipeline as pipeline.c (events) and sample_walk.c (walks)
 * see it.
 */
#ifndef AGENT_PIPELINE_PIPELINE_INTERNAL_H
#define AGENT_PIPELINE_PIPELINE_INTERNAL_H

#include "agent/pipeline/fold.h"
#include "agent/pipeline/pipeline.h"
#include "agent/pipeline/wakers.h"
#include "agent/process/cgroups.h"
#include "agent/process/contexts.h"
#include "agent/process/process.h"
#include "agent/process/users.h"
#include "agent/runtime/runtime.h"

#define MAX_KERNEL_FRAMES 127

struct pipeline {
	struct pipeline_options options;
	const struct source_info *info;
	struct opener *opener;
	struct keeper *keeper; /* only for live recordings; NULL: none */
	struct modules *modules;
	struct uw_steppers *steppers; /* NULL: the built-in steppers are used */
	struct processes *processes;
	struct generated *generated;
	struct runtimes *runtimes;
	const struct uw_frame **native; /* max_frames; the walk's output, for runtimes */
	struct cgroups cgroups;
	struct users users;
	struct strings woken_by; /* the labels of who woke threads */
	struct wakers wakers;	 /* their stacks */
	struct strings set;	 /* the labels that threads have set themselves */
	size_t set_left;	 /* how many of these were left when unused ones were forgotten */
	struct contexts contexts;
	struct uw_worker *worker;
	struct uw_history *history; /* walk histories; NULL: every sample is walked fully */
	struct pipeline_reuse reuse;
	struct fold *fold;
	struct uw_frame *user;	/* max_frames; the walk's output */
	struct uw_frame *other; /* max_frames, for verify_reuse */
	/* One sample's frames, and its waker's: twice MAX_KERNEL_FRAMES + max_frames + RUNTIME_PUT_MAX, + 1 */
	struct walked_frame *frames;
	uint32_t *locations;	      /* their location ids for the fold; the same size */
	struct accounting now, total; /* since the last pipeline_take; before it */
	uint64_t number;
	struct { /* whether the rules keep these labels */
		bool pid, tid, thread, comm, cgroup, user, waker;
	} keeps;
	_Atomic size_t n_profiles; /* taken and not freed yet */
	struct uw_step *steps;	   /* max_frames, if options.explain is set */
};

/*
 * Return whether the fold alone wants the walked samples. Then callers that a sample has in common
 * with the thread's last sample need not be walked again, because the fold only wants their ids.
 */
static inline bool pipeline_only_folds(const struct pipeline_options *options)
{
	return options->fold && !options->on_walked;
}

/*
 * Walk a sample. Fill in its frames, or only their number if the fold alone wants the samples, and,
 * if there is a fold, the location ids in p->locations.
 */
int pipeline_walk(struct pipeline *p, struct uw_space *space, struct walked *walked);
/* Walk the stack of a thread that ended a wait. Fill in its frames. */
void pipeline_walk_waker(struct pipeline *p, struct uw_space *space, struct walked *walked);
/* Append the stack of the thread that ended a walked wait, as far as there is one. -ENOMEM. */
int pipeline_join_waker(struct pipeline *p, struct walked *walked);

#endif

/*
 * agent/pipeline/pipeline.h: takes events, and produces folded profiles and walked samples.
 *
 *   event → process state → walk → fold
 *                             └─► each walked sample, for callers that want single samples
 *
 * If only the fold wants the samples, callers that a thread's sample has in common with its last
 * sample are copied instead of walked again: uw_walk_incremental.
 */
#ifndef AGENT_PIPELINE_PIPELINE_H
#define AGENT_PIPELINE_PIPELINE_H

#include "agent/pipeline/profile.h"
#include "agent/source/source.h"

struct opener;
struct modules;
struct processes;
struct pipeline;
struct store;

struct walked_frame {
	struct location location;
	/*
	 * Run-time address: the return address itself, or the interrupted pc. Of interpreted code: as in
	 * location.
	 */
	uint64_t pc;
	uint8_t stepper; /* enum uw_stepper; CONTEXT for kernel frames */
	bool exact;
	uint8_t confidence; /* enum uw_confidence */
	/* The frame of the walk, until the next one; NULL: of the kernel, or of interpreted code. */
	const struct uw_frame *user;
};

struct walked {		 /* one sample; borrowed while the callback runs */
	uint64_t number; /* 1, 2, … in the source's order */
	const struct event *event;
	const char *comm;	  /* the thread's name */
	const char *process_comm; /* its process's name; NULL: not reported */
	const char *event_name;
	const struct walked_frame *frames; /* innermost first, kernel before user */
	size_t n_frames, n_kernel;
	/*
	 * Of these, the last ones are of the thread that ended the wait: "[woken by] NAME", then its stack.
	 */
	size_t n_waker;
	/* Why the waker's stack is not there or not whole; NULL: it is, or nobody wanted it. */
	const char *waker_lacks;
	bool has_user;
	/* Some of the frames may be of interpreted code: their module is a MODULE_RUNTIME. */
	bool interpreted;
	const char *missing; /* why some of those are missing; NULL: all are there */
	const char
		*labels; /* that the thread has set itself: a text of agent/labels.h; NULL: none */
	const char *unlabelled; /* why labels of the thread are missing; NULL: they are not */
	enum uw_stop stop;
	uint64_t stop_addr;
	uint8_t confidence; /* enum uw_confidence: of the least certain frame; for the fold */
	/*
	 * Set if options.explain asked for them: the frames of the user part, and the step from
	 * each frame.
	 */
	const struct uw_frame *user;
	const struct uw_step *steps;
	size_t n_steps;
};

struct pipeline_options {
	size_t max_frames; /* frames of the user part; 0: the limit (agent/limits.h) */
	bool live;	   /* pin files, look through /proc */
	bool once;	   /* each thread has one sample */
	bool keep_files;   /* never close them: a capture file is to hold them */
	bool fold;	   /* make profiles */
	bool separate;	   /* in which each sample is an entry with its time */
	const struct label_rules *rules; /* for the labels of profiles; borrowed; NULL: none */
	bool scan; /* scan the stack for return addresses where no other stepper works */
	const char *symfs, *exe, *beside; /* see opener_options, also for the next two */
	const char *debug_dir;
	uint64_t until_ns;
	struct store *store; /* unwind tables; borrowed; NULL: none */
	/*
	 * Called for each walked sample; NULL: not called. A negative result ends pipeline_event
	 * with it.
	 */
	int (*on_walked)(void *ctx, const struct walked *walked);
	/*
	 * Called for what the pipeline itself found out before it takes a sample: EVENT_GENERATED
	 * of a process that is alive or whose memory the source has. NULL: not called.
	 */
	int (*on_found)(void *ctx, const struct event *event);
	/* Return whether on_walked wants the steps of this sample; NULL: never. */
	bool (*explain)(void *ctx, uint64_t number, const struct event *event);
	/* Called for each sample with the reason why its walk stopped; NULL: not called. */
	void (*on_stop)(void *ctx, const struct event *event, enum uw_stop stop);
	void *ctx;
	bool verify_reuse; /* also walk fully, and compare; with or without a fold */
};

/* Statistics on callers that were copied from a thread's last sample, and on interpreted code. */
struct pipeline_reuse {
	uint64_t n_samples;		  /* samples that could have copied some */
	uint64_t n_walked, n_taken;	  /* their frames, walked or copied */
	uint64_t n_verified, n_differing; /* samples walked both ways; those whose results differ */
	/* Samples with frames of interpreted code, and those of which some of these are missing. */
	uint64_t n_interpreted, n_incomplete;
	/* Samples with labels of their threads; those whose thread was changing them; those that could not be read. */
	uint64_t n_labelled, n_changing, n_unreadable;
};

/* Create a pipeline. info is borrowed, and read again when the source has filled in more of it. */
int pipeline_new(const struct pipeline_options *options, const struct source_info *info,
		 struct pipeline **out);
bool pipeline_free(struct pipeline *pipeline); /* NULL is fine; free all profiles before */
/*
 * False: one of its threads does not end. Then nothing was freed, and the store must not be closed.
 */

int pipeline_event(struct pipeline *pipeline, const struct event *event);

/*
 * Return the profile of all samples since the last call, with its accounting. Free it with
 * profile_free.
 */
int pipeline_take(struct pipeline *pipeline, struct profile **out);
/* Return the accounting of everything since the start. */
void pipeline_total(const struct pipeline *pipeline, struct accounting *out);

void pipeline_reuse(const struct pipeline *pipeline, struct pipeline_reuse *out);

/*
 * Return the current names of the event's thread and of its process, borrowed from the pipeline.
 * NULL: the name was not reported. -ENOMEM.
 */
int pipeline_names(struct pipeline *pipeline, const struct event *event, const char **comm,
		   const char **process_comm);

struct opener *pipeline_opener(struct pipeline *pipeline);
/* Stop compiling tables, because the recording has ended. Never blocks. */
void pipeline_end(struct pipeline *p);
struct modules *pipeline_modules(struct pipeline *pipeline);
struct processes *pipeline_processes(struct pipeline *pipeline);

#endif

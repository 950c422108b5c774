/*
 * agent/pipeline/pipeline.h: events in, folded profiles and walked samples out.
 *
 *   event → process state → walk → fold
 *                             └─► each walked sample, for those who want them one by one
 *
 * Where only the fold wants them, callers that a thread's sample has in common with its last
 * one are taken over without walking: uw_walk_again.
 */
#ifndef AGENT_PIPELINE_PIPELINE_H
#define AGENT_PIPELINE_PIPELINE_H

#include "agent/pipeline/profile.h"
#include "agent/source/source.h"

struct opener;
struct modules;
struct pipeline;
struct store;

struct walked_frame {
	struct location location;
	uint64_t pc;	 /* run-time: the return address as it stood, or the interrupted pc */
	uint8_t stepper; /* enum uw_stepper; kernel frames: CONTEXT */
	bool exact;
	uint8_t confidence; /* enum uw_confidence */
};

struct walked {		 /* one sample; borrowed while the callback runs */
	uint64_t number; /* 1, 2, … in the source's order */
	const struct event *event;
	const char *comm;	  /* the thread's name */
	const char *process_comm; /* its process's; NULL: not told */
	const char *event_name;
	const struct walked_frame *frames; /* innermost first, kernel before user */
	size_t n_frames, n_kernel;
	bool has_user;
	enum uw_stop stop;
	uint64_t stop_addr;
	uint8_t confidence; /* enum uw_confidence: of the frame that is least sure; for the fold */
	/* Where options.explain asked for them: the user part's frames and how each led on. */
	const struct uw_frame *user;
	const struct uw_step *steps;
	size_t n_steps;
};

struct pipeline_options {
	size_t max_frames;		  /* of the user part; 0: 1024 */
	bool live;			  /* pin files, look through /proc */
	bool fold;			  /* keep profiles */
	bool scan;			  /* look for return addresses where nothing else led on */
	const char *symfs, *exe, *beside; /* see opener_options, as for the next two */
	const char *debug_dir;
	uint64_t until_ns;
	struct store *store; /* of unwind tables; borrowed; NULL: none */
	/* NULL: nobody wants single samples.  A negative result ends pipeline_event with it. */
	int (*on_walked)(void *ctx, const struct walked *walked);
	/*
	 * Told of what the pipeline itself found out before it takes a sample in: EVENT_GENERATED of a
	 * process that lives or whose memory the source has.  NULL: nobody wants to know.
	 */
	int (*on_found)(void *ctx, const struct event *event);
	/* Whose steps on_walked wants to see; NULL: nobody's. */
	bool (*explain)(void *ctx, uint64_t number, const struct event *event);
	/* NULL: nobody counts them.  Of each sample, how its walk ended. */
	void (*on_stop)(void *ctx, const struct event *event, enum uw_stop stop);
	void *ctx;
	bool verify_reuse; /* walk fully as well, and compare; with or without a fold */
};

/* Of callers taken over from a thread's last sample. */
struct pipeline_reuse {
	uint64_t n_samples;		  /* that could have had some */
	uint64_t n_walked, n_taken;	  /* frames of theirs, walked or taken over */
	uint64_t n_verified, n_differing; /* samples walked both ways */
};

/* info is borrowed, and read again as it becomes fuller. */
int pipeline_new(const struct pipeline_options *options, const struct source_info *info,
		 struct pipeline **out);
bool pipeline_free(struct pipeline *pipeline); /* NULL is fine; profiles taken must be gone */
/* False: a thread of its does not end; then nothing is freed, nor may the store be closed. */

int pipeline_event(struct pipeline *pipeline, const struct event *event);

/* The profile of all samples since the last call, accounting included; free with profile_free. */
int pipeline_take(struct pipeline *pipeline, struct profile **out);
/* Of everything since the start. */
void pipeline_total(const struct pipeline *pipeline, struct accounting *out);

void pipeline_reuse(const struct pipeline *pipeline, struct pipeline_reuse *out);

/*
 * Set the names of the thread of event and of its process as they are now; borrowed from the
 * pipeline, NULL where not told.  -ENOMEM.
 */
int pipeline_names(struct pipeline *pipeline, const struct event *event, const char **comm,
		   const char **process_comm);

struct opener *pipeline_opener(struct pipeline *pipeline);
/* The recording has ended: no more tables are compiled.  Never waits. */
void pipeline_end(struct pipeline *p);
struct modules *pipeline_modules(struct pipeline *pipeline);

#endif

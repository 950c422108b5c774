/* unwinder/walk/walk.h: the state of a walk and its worker, shared by the parts of the walk. */
#ifndef UNWINDER_WALK_WALK_H
#define UNWINDER_WALK_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/rule.h"
#include "unwinder/unwinder.h"
#include "unwinder/walk/code_facts.h"
#include "unwinder/walk/history.h"
#include "unwinder/walk/hot.h"
#include "unwinder/walk/step.h"

/*
 * A worker has three caches: the effects of frames' steps by (space, pc), see hot.h; where code is
 * mapped, by (space, page); and what the code is, by (object, pc), see code_facts.h.
 */
#define UW_MAPPING_SLOTS 1024

/* What an address lies in. */
struct uw_mapping_slot {
	uint64_t space; /* the space's id: the rest is valid while the space has it; 0: empty */
	uint64_t start, end;
	struct uw_mapping *mapping; /* NULL: nothing is mapped there */
};

struct uw_worker {
	struct uw_hot hot;
	struct uw_mapping_slot mappings[UW_MAPPING_SLOTS];
	struct uw_code_facts facts;
};

/* The captured bytes around sp. */
struct uw_near {
	uint64_t addr, room; /* words may begin in [addr, addr + room) */
	const uint8_t *bytes;
};

/* The part of a walk that changes with each frame of the hot loop, see hot.c. */
struct uw_run {
	uint64_t pc, sp, fp;
	uint64_t ra;   /* pc as it stood in memory or in lr */
	uint64_t mask; /* the bits of ra that are the address */
	uint64_t back; /* lookup = pc - back */
	uint64_t above;
	struct uw_near near;
	struct uw_frame *frame; /* the next frame in out */
	struct uw_frame *end;	/* no frame may be written from here on */
	int stop;
	/* how the frame at pc was found, as the last members of struct uw_frame */
	uint32_t how;
	uint64_t reuse_sp; /* with records: no frame that may be reused has an sp below this */
};

/* Return the last four members of struct uw_frame as one word, with signal false. */
static inline uint32_t uw_run_how(uint8_t stepper, uint8_t confidence, bool exact)
{
	_Static_assert(offsetof(struct uw_frame, confidence) ==
				       offsetof(struct uw_frame, stepper) + 1 &&
			       offsetof(struct uw_frame, exact) ==
				       offsetof(struct uw_frame, stepper) + 2 &&
			       offsetof(struct uw_frame, signal) ==
				       offsetof(struct uw_frame, stepper) + 3 &&
			       __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
		       "one word");
	return stepper | (uint32_t)confidence << 8 | (uint32_t)exact << 16;
}

/* The search for a cycle in a walk, see uw_cycle_met. All zero at first. */
struct uw_cycle {
	uint64_t mark_pc, mark_sp;
	uint64_t turns;
};

/* The state of one walk. */
struct uw_walking {
	struct uw_space *space;
	struct uw_worker *worker;
	const struct uw_thread *thread;
	struct uw_stack *out;
	uint64_t tag;		   /* the space's tag in keys of the worker's hot slots */
	uint64_t mask;		   /* removes authentication bits and tags from a code address */
	struct uw_machine machine; /* reads captured bytes, then files */
	/* false: it is frame 0, whose registers are thread->regs; true: they are machine.regs */
	bool taken;
	size_t due; /* frames from this index on have saved registers that were not read yet */
	/* About the frame whose caller is wanted: */
	uint64_t pc, lookup, sp;
	bool exact;
	bool sp_low;		     /* sp is only a lower bound: a frame pointer led here */
	uint8_t stepper, confidence; /* how it was found */
	struct uw_mapping *mapping;
	/* executable, where an address was found last; NULL: none yet */
	struct uw_mapping *last;
	/* The first place where the caller was expected but not captured. */
	uint64_t missing;
	bool has_missing;
	struct uw_cycle cycle;
	struct uw_run run; /* for uw_hot_turns */
	/* For uw_walk_recording: */
	struct uw_record *records; /* as many as out->frames, one for each */
	struct uw_reuse reuse;
};

/* What ends a walk's step: an enum uw_stop as a negative number. */
#define UW_GO_ON  0
#define UW_REUSED 1 /* see uw_hot_run_recording */
static inline int uw_stopping(enum uw_stop stop)
{
	return -1 - (int)stop;
}

/*
 * Set w to the thread's innermost frame, except w->run. Return UW_GO_ON, or why the walk ends at
 * once. out->frames and out->max_frames must be set by the caller.
 */
int uw_walk_begin(struct uw_walking *w, struct uw_space *space, struct uw_worker *worker,
		  const struct uw_thread *thread, struct uw_stack *out);

/*
 * Add one frame to w->out, in whatever way works, and set w to its caller. Return UW_GO_ON, or why
 * the walk ends. *found is set unless the walk ended before any stepper was called; its member
 * applied is set by the caller.
 */
struct uw_found;
int uw_walk_frame(struct uw_walking *w, struct uw_found *found);

/*
 * Walk as uw_walk does, but record in w->records what the frames depend on, and end at a frame of
 * w->reuse. Return true if such a frame was found; then out->stop is not set. The caller lends w
 * and has set records and reuse.
 */
bool uw_walk_recording(struct uw_walking *w, struct uw_worker *worker, const struct uw_job *job);

/* Return the executable mapping around addr, or NULL. */
struct uw_mapping *uw_walk_code(struct uw_walking *w, uint64_t addr);

/*
 * Return the registers of the frame. Most walks end in the hot loop and need no others, so they are
 * copied late.
 */
static inline const struct uw_regs *uw_walk_regs(const struct uw_walking *w)
{
	return w->taken ? &w->machine.regs : &w->thread->regs;
}

/* Copy the thread's registers to machine.regs, unless that was done. */
static inline void uw_walk_take_regs(struct uw_walking *w)
{
	if (w->taken)
		return;
	w->machine.regs = w->thread->regs;
	w->taken = true;
}

/* Return a code address without authentication bits and tags. */
static inline uint64_t uw_walk_stripped(const struct uw_walking *w, uint64_t pc)
{
	return pc & w->mask;
}

/*
 * Return whether a walk is in a cycle. Call this for each frame that does not lie above the one
 * before it; each cycle has such a frame. By Brent's algorithm a mark gets into any cycle, however
 * long it is.
 */
bool uw_cycle_met(struct uw_cycle *cycle, uint64_t pc, uint64_t sp);

/* Do the same for the walk's own search. */
bool uw_walk_cycle(struct uw_walking *w, uint64_t pc, uint64_t sp);

/* Record the address of the machine's last failed read: the caller may have been there. */
void uw_walk_record_missing(struct uw_walking *w);

#endif

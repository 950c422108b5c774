/*
 * unwinder/walks.h: walks of captured stacks, and the steppers that find the
 * frames. Part of unwinder.h.
 */
#ifndef UNWINDER_WALKS_H
#define UNWINDER_WALKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/frames.h"
#include "unwinder/threads.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- steppers ------------------------------------------------------------ */

/*
 * To find a frame's caller, a walk calls one stepper after another until one
 * returns something other than NOT_ME. It calls those whose ranges contain the
 * frame's lookup address, the lowest priority value first, equal ones in the order
 * in which they were added.
 *
 *   0x1000  table   a compiled row of unwind information
 *   0x1100  cfi     unwind information, interpreted: the same rules; a frame does
 *                   not show which of the two found it
 *   0x1180  dynamic what the process registered about code it generated
 *   0x1200  signal  a signal trampoline, recognized by its code
 *   0x1300  plt     a PLT entry, stub or .init, recognized by its code
 *   0x1800  leaf    no frame yet: the word at sp, if a call precedes it, or lr
 *   0x1900  fp      the frame pointer, if the chain and the call fit
 *   0x1a00  prologue how the function begins, if it leads to a return address
 *   0x1f00  scan    the next word on the stack that a call precedes; off by default
 */
#define UW_PRIORITY_TABLE    0x1000
#define UW_PRIORITY_CFI	     0x1100
#define UW_PRIORITY_DYNAMIC  0x1180
#define UW_PRIORITY_SIGNAL   0x1200
#define UW_PRIORITY_PLT	     0x1300
#define UW_PRIORITY_LEAF     0x1800
#define UW_PRIORITY_FP	     0x1900
#define UW_PRIORITY_PROLOGUE 0x1a00
#define UW_PRIORITY_SCAN     0x1f00

/* What a stepper found. */
enum uw_answer {
	UW_ANSWER_SUCCESS,	/* the query's registers are the caller's */
	UW_ANSWER_STACK_BOTTOM, /* this frame is the outermost: the walk stops with ROOT */
	UW_ANSWER_NOT_ME,	/* the walk calls the next stepper */
	UW_ANSWER_ERROR,	/* the walk stops with query->stop */
};

/* A frame whose caller is wanted; borrowed while the stepper runs. */
struct uw_query {
	struct uw_space *space;
	const struct uw_frame *frame; /* its cfa and signal are not known yet */
	uw_read_fn read;	      /* reads the memory that the walk sees */
	void *read_ctx;
	/* In: this frame's registers. Out with SUCCESS: the caller's; pc and sp must be known. */
	struct uw_regs regs;
	/* Out: */
	uint64_t cfa;	    /* of this frame; 0: use the caller's sp */
	uint8_t confidence; /* enum uw_confidence; RULE unless changed */
	bool signal;	    /* this frame is a signal trampoline: the caller's pc is exact */
	enum uw_stop stop;  /* for ERROR; BAD_CFI unless changed */
	uint64_t stop_addr; /* for ERROR with TRUNCATED: the address that is missing */
	/*
	 * Out, optional: where the caller's pc, sp and frame pointer were found, in this order, by
	 * place, from and addr. REGISTER and SAME mean a register of this frame.
	 */
	struct uw_save saves[3];
};

/* Find the caller of the query's frame. */
typedef enum uw_answer (*uw_stepper_fn)(void *ctx, struct uw_query *query);

/* A range of code. */
struct uw_range {
	uint64_t start, end; /* run-time addresses; end is past the last byte */
};

struct uw_steppers; /* the built-in steppers and those that were added */

/* A stepper, as it is added or listed. */
struct uw_stepper_info {
	const char *name;
	uint32_t priority;
	/* n_ranges of them; none: the stepper is called for every address */
	const struct uw_range *ranges;
	size_t n_ranges;
	uw_stepper_fn step; /* NULL for a built-in one */
	void *ctx;
	/*
	 * Called once the stepper is added; it may look for code and add ranges. NULL is allowed.
	 */
	void (*added)(void *ctx, struct uw_steppers *steppers, uint8_t id);
};

/* Make a group with the built-in steppers. -ENOMEM. */
int uw_steppers_new(struct uw_steppers **out);

/* Free the group, which no space may use any more; NULL is allowed. */
void uw_steppers_free(struct uw_steppers *steppers);

/*
 * Add a stepper. No space may be using the group. info is copied, except what ctx points to. Frames
 * that the stepper finds have *id as their stepper; id may be NULL. -EINVAL: no name, no step
 * function or an empty range. -ENOSPC: there are too many steppers.
 */
int uw_steppers_add(struct uw_steppers *steppers, const struct uw_stepper_info *info, uint8_t *id);

/*
 * Add ranges to a user's stepper. A stepper that was called everywhere is then called in the added
 * ranges only. No space may be using the group. -ENOENT: there is no such stepper. -EINVAL: a range
 * is empty. -ENOMEM.
 */
int uw_steppers_add_ranges(struct uw_steppers *steppers, uint8_t id, const struct uw_range *ranges,
			   size_t n);

/*
 * Remove ranges from a user's stepper. A stepper that was called everywhere is then called
 * everywhere else. No space may be using the group. Errors are those of uw_steppers_add_ranges.
 */
int uw_steppers_remove_ranges(struct uw_steppers *steppers, uint8_t id,
			      const struct uw_range *ranges, size_t n);

/*
 * Return the next stepper to call for code at lookup, as its index in uw_steppers_at. last is the
 * index of the one that returned NOT_ME, SIZE_MAX at first. SIZE_MAX: no stepper is left.
 */
size_t uw_steppers_find(const struct uw_steppers *steppers, uint64_t lookup, size_t last);

/*
 * Choose the next stepper in place of uw_steppers_find, which the function may call. It is called
 * until a stepper that it chose does not return NOT_ME, at most as often as there are steppers.
 */
typedef size_t (*uw_choose_fn)(void *ctx, const struct uw_steppers *steppers, uint64_t lookup,
			       size_t last);

/*
 * Set the function that chooses steppers. NULL: uw_steppers_find again. No space may be using the
 * group.
 */
void uw_steppers_choose(struct uw_steppers *steppers, uw_choose_fn choose, void *ctx);

/*
 * Turn all steppers of this name on or off. No space may be using the group. -ENOENT: none has this
 * name.
 */
int uw_steppers_enable(struct uw_steppers *steppers, const char *name, bool on);

/*
 * Return the i-th stepper in calling order, borrowed. steppers NULL: the built-in ones. -ENOENT: i
 * is too large.
 */
int uw_steppers_at(const struct uw_steppers *steppers, size_t i, struct uw_stepper_info *info,
		   uint8_t *id, bool *on);

/* Return the name of a frame's stepper, built in or added. */
const char *uw_steppers_name(const struct uw_steppers *steppers, uint8_t id);

/*
 * Let walks in space, and in later copies of it, use these steppers. NULL: the built-in ones again.
 */
void uw_space_use(struct uw_space *space, const struct uw_steppers *steppers);

/*
 * Caches and scratch memory of one walking thread. Cache entries belong to a space and become
 * invalid when the space changes.
 */
struct uw_worker;

/* Make a worker. -ENOMEM. */
int uw_worker_new(struct uw_worker **out);

/* Free the worker; NULL is allowed. */
void uw_worker_free(struct uw_worker *worker);

/*
 * Walk a captured stack. out->frames and out->stop are always filled in: a walk cannot fail, it
 * stops somewhere for a reason.
 *
 * The walk allocates nothing itself: frames, stack and worker are the caller's. An object allocates
 * memory for what it reads from its file (unwind sections, at most 256 MiB each, and indexes of
 * them). It reads when the data is first needed, which may be in a walk; later walks need no more
 * memory.
 */
void uw_walk(struct uw_space *space, struct uw_worker *worker, const struct uw_thread *thread,
	     struct uw_stack *out);

/* One walk of uw_walk_many. */
struct uw_job {
	struct uw_space *space;
	const struct uw_thread *thread;
	struct uw_stack *stack;
};

/*
 * Walk n stacks, several at once, a frame of each in turn. The frames are the same as from n calls
 * of uw_walk. It takes less time if the captured bytes have left the CPU's caches. Jobs may share
 * spaces. No space may change before the call returns.
 */
void uw_walk_many(struct uw_worker *worker, const struct uw_job *jobs, size_t n);

/*
 * A history of the last walks of many threads, for their next samples. If a caller's frame is where
 * it was, and everything that was read to walk on from it is unchanged, its callers are the same,
 * too. One thread at a time may use it.
 */
struct uw_history;

/*
 * Make an empty history, for stacks with room for at most max_frames frames. It takes at most
 * max_bytes; threads that were not seen for longest are dropped first. -ENOMEM.
 */
int uw_history_new(size_t max_frames, size_t max_bytes, struct uw_history **out);

/* Free the history; NULL is allowed. */
void uw_history_free(struct uw_history *history);

/* Drop all walks from the history. */
void uw_history_forget(struct uw_history *history);

/* All frames of a walk, outermost first, borrowed until the next walk with the same history. */
struct uw_incremental {
	size_t n_taken; /* outermost frames that were taken from the walk before */
	size_t n;	/* 0: the walk was not stored; all frames are in the stack alone */
	const struct uw_frame *frames;
	/* one for each frame, for the caller's use; frames that were taken keep theirs */
	uint32_t *users;
};

/*
 * Walk as uw_walk does, but take the outermost frames from the history if they are unchanged. key
 * is the caller's number for the thread. job->stack is filled in as by uw_walk, but its frames are
 * only the innermost ones, those that were walked this time. Frames, stop and stop_addr are the
 * same as uw_walk's. The function may allocate memory before and after the walk.
 */
void uw_walk_incremental(struct uw_history *history, uint64_t key, struct uw_worker *worker,
			 const struct uw_job *job, struct uw_incremental *out);

#ifdef __cplusplus
}
#endif

#endif

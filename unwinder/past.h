/*
 * unwinder/past.h: what the frames of a walk went by, so that a later walk that comes upon
 * one of them in the same state can stop there.
 *
 * A step of uw_hot_run depends on the space, on pc, sp and fp, and on at most two words of
 * memory: where the return address and the caller's frame pointer were.  Nothing else is
 * noted, and of frames that somebody else stepped from nothing at all: those are walked again.
 */
#ifndef UNWINDER_PAST_H
#define UNWINDER_PAST_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

enum {
	UW_NOTE_HOT = 1,     /* the rest is told */
	UW_NOTE_ROOT = 2,    /* nothing was read: the outermost frame */
	UW_NOTE_MISSING = 4, /* ra_at could not be read, and the walk ended */
	UW_NOTE_FP = 8,	     /* the caller's fp was read at fp_at, else it is this frame's */
	UW_NOTE_LOW = 16,    /* sp is not surely the frame's: see struct uw_walking */
};

struct uw_note {
	uint64_t fp; /* in this frame */
	uint64_t ra_at, fp_at;
	uint8_t flags;
};

/* A walk to be joined, outermost frame first, as far as its words are what they were. */
struct uw_join {
	const struct uw_frame *frames;
	const struct uw_note *notes;
	size_t n;
	uint64_t sp;  /* of the innermost of those; without any the highest there can be */
	uint32_t how; /* out: the frame that was joined was found now (see uw_run_how) */
};

#endif

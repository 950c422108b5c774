/*
 * unwinder/walk/history.h: what the frames of a walk depend on, so that a later walk can stop at one
 * of them if its state is the same.
 *
 * A step of uw_hot_run depends on the space, on pc, sp and fp, and on at most two words of memory:
 * where the return address and the caller's frame pointer were. Only these are recorded. Nothing is
 * recorded about frames that another part of the walk stepped from: those are always walked again.
 */
#ifndef UNWINDER_WALK_HISTORY_H
#define UNWINDER_WALK_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

enum {
	UW_RECORD_HOT = 1,     /* the rest is valid */
	UW_RECORD_ROOT = 2,    /* nothing was read: the outermost frame */
	UW_RECORD_MISSING = 4, /* ra_at could not be read, and the walk ended there */
	UW_RECORD_FP = 8,      /* the caller's fp was read at fp_at; otherwise it is this frame's */
	UW_RECORD_LOW = 16,    /* sp is only a lower bound, see sp_low in struct uw_walking */
};

struct uw_record {
	uint64_t fp; /* of this frame */
	uint64_t ra_at, fp_at;
	uint8_t flags;
};

/*
 * The frames of an earlier walk that may be reused, outermost first: those whose words are
 * unchanged.
 */
struct uw_reuse {
	const struct uw_frame *frames;
	const struct uw_record *records;
	size_t n;
	uint64_t sp;  /* of the innermost of them; UINT64_MAX if there are none */
	uint32_t how; /* out: how this walk found the first reused frame, see uw_run_how */
};

#endif

/*
 * unwinder/walk/hot.h: the fast loop of a walk, for frames that a packed rule describes
 * (schema/table_blob.h) and for chains of frame pointers in code without rules.
 *
 * The loop looks up each frame in a cache with the key (space, lookup), which holds the effect
 * of the frame's step. It does not read the saved registers other than the frame pointer.
 * uw_hot_settle reads them when another part of the walk, which may need them, takes over.
 */
#ifndef UNWINDER_WALK_HOT_H
#define UNWINDER_WALK_HOT_H

#include <stdint.h>

#include "unwinder/unwinder.h"

#define UW_HOT_BITS  13 /* hit rate on clang's stacks: 93 %; with 12 bits 91 %, with 14 bits 94 % */
#define UW_HOT_SLOTS (1u << UW_HOT_BITS)
#define UW_HOT_TAGS  64

/* What a frame's step does. Offsets count in bytes from the register that the CFA counts from. */
struct uw_hot_slot {
	uint64_t key; /* lookup in 48 bits; above them the space's tag, EXACT and SP_LOW */
	union {
		int32_t cfa;
		int32_t caller; /* CHAIN: offset from lookup to the address behind a call of it */
	};
	int32_t ra;
	int32_t fp;	  /* equal to ra if the caller's fp is not saved: any readable word */
	uint8_t kind;	  /* KIND_…, see hot.c */
	uint8_t evidence; /* of lookup + 1 as a return address: 1 + enum uw_evidence; 0: unknown */
	uint8_t stepper;
	bool saved;		    /* registers other than fp are saved */
	struct uw_mapping *mapping; /* valid while the space has its id */
};
_Static_assert(sizeof(struct uw_hot_slot) == 32, "two slots a cache line");

struct uw_hot {
	struct uw_hot_slot slots[UW_HOT_SLOTS];
	struct {
		uint64_t space; /* the space's id; 0: empty */
		uint16_t tag;
	} tags[UW_HOT_TAGS];
	uint16_t last_tag; /* all tags up to this one are in use */
};

struct uw_walking;

/*
 * Return the bits that the space with this id adds to the keys of its slots. They are valid
 * until the cache is emptied; call it when a walk begins.
 */
uint64_t uw_hot_tag(struct uw_hot *hot, uint64_t space);

/*
 * Return whether no tag is left. The next uw_hot_tag for a new space then empties the cache, so
 * no other walk may be in progress.
 */
bool uw_hot_full(const struct uw_hot *hot);

/*
 * Walk on while the frames are of the common kinds. machine->regs, w->exact, w->stepper and
 * w->confidence describe the first frame, and afterwards the one that was reached. Return
 * UW_GO_ON if that frame, which is not yet in w->out, needs another part of the walk; or why
 * the walk ends. After UW_GO_ON only pc, sp, fp and lr of machine->regs are valid until
 * uw_hot_settle.
 */
int uw_hot_run(struct uw_walking *w);

/*
 * Do the same and record in w->records what each step used. Return UW_REUSED if the frame that
 * was reached is w->reuse.frames[w->reuse.n - 1] with the same state; w->reuse.how then says how
 * it was found (see history.h).
 */
int uw_hot_run_recording(struct uw_walking *w);

/*
 * Do the same for n walks, one frame of each in turn, beginning with lanes[*at]. Stop as soon
 * as one walk, lanes[*at], would return from uw_hot_run, and return its result. uw_hot_enter
 * must have been called for each walk after its start and after each return.
 */
int uw_hot_turns(struct uw_walking *const *lanes, size_t n, size_t *at);
void uw_hot_enter(struct uw_walking *w);

/* Read the saved registers that were skipped, except those of the last frame in w->out. */
void uw_hot_settle(struct uw_walking *w);

#endif

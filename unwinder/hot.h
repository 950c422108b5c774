/*
 * unwinder/hot.h: the hot part of a walk, over frames that a rule word describes
 * (schema/table.h) and over chains of frame pointers where nothing has a rule.
 *
 * In front is a cache by (space, lookup) of what a frame's step comes to.  Saved
 * registers other than the frame pointer are not read as frames go by; they are
 * when another part of the walk, which may need them, takes over.
 */
#ifndef UNWINDER_HOT_H
#define UNWINDER_HOT_H

#include <stdint.h>

#include "unwinder/unwinder.h"

#define UW_HOT_BITS  13 /* clang: 93 % found again; 12: 91, 14: 94 */
#define UW_HOT_SLOTS (1u << UW_HOT_BITS)
#define UW_HOT_TAGS  64

/* Offsets count from the register that the CFA counts from, in bytes. */
struct uw_hot_slot {
	uint64_t key; /* lookup; above its 48 bits the space's tag and whether it is exact */
	union {
		int32_t cfa;
		int32_t caller; /* of a chain: from lookup to a return address whose call is of it */
	};
	int32_t ra;
	int32_t fp;    /* ra again where the caller's is not saved: some word that is there */
	uint8_t kind;  /* see hot.c */
	uint8_t worth; /* of lookup + 1 as a return address: 1 + enum uw_worth; 0: not asked yet */
	uint8_t stepper;
	bool saved;		    /* registers besides fp */
	struct uw_mapping *mapping; /* valid while the space has its id */
};
_Static_assert(sizeof(struct uw_hot_slot) == 32, "two slots a cache line");

struct uw_hot {
	struct uw_hot_slot slots[UW_HOT_SLOTS];
	struct {
		uint64_t space; /* its id; 0: empty */
		uint16_t tag;
	} tags[UW_HOT_TAGS];
	uint16_t last_tag; /* all tags up to here have been given */
};

struct uw_walking;

/* What keys of the walk's space carry, for as long as the walk goes on. */
uint64_t uw_hot_tag(struct uw_hot *hot, uint64_t space);

/* No tag is left: the next to be given makes the cache forget all, and no other walk may be under way. */
bool uw_hot_full(const struct uw_hot *hot);

/*
 * Walks on while frames are of the common kinds: machine->regs, w->exact and
 * w->stepper say where from and then how far it came.  UW_GO_ON: the frame there,
 * not yet in w->out, is for somebody else; or why the walk ends.  Of machine->regs
 * then only pc, sp, fp and lr are right until uw_hot_settle.
 */
int uw_hot_run(struct uw_walking *w);

/*
 * The same, and w->notes has what each of the frames went by.  UW_JOINED: the frame there is
 * w->join.frames[w->join.n - 1], in the same state, found as w->join.how says (see past.h).
 */
int uw_hot_run_noting(struct uw_walking *w);

/*
 * The same for n walks, a frame of each in turn from lanes[*at] on, until one of
 * them, lanes[*at], would come back from uw_hot_run: that which it would give.
 * Each has entered since it was begun or came back.
 */
int uw_hot_turns(struct uw_walking *const *lanes, size_t n, size_t *at);
void uw_hot_enter(struct uw_walking *w);

/* Reads the saved registers that are due, but for those of the last frame in w->out. */
void uw_hot_settle(struct uw_walking *w);

#endif

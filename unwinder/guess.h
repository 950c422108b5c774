/*
 * unwinder/guess.h: callers of code that has no rules.
 *
 * A word may be the return address: of the pc, where the code below it is a call;
 * the better it calls what lies at the pc, the more it is worth.
 */
#ifndef UNWINDER_GUESS_H
#define UNWINDER_GUESS_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

struct uw_walking;

/* How much a word is worth as the return address of the code at the pc. */
enum uw_worth {
	UW_WORTH_NOTHING, /* no code, or no call ends there */
	UW_WORTH_ELSEWHERE, /* a call, but of other code: of a callee that has returned, or tail calls */
	UW_WORTH_UNREAD,   /* code that cannot be looked at: generated, or its file is missing */
	UW_WORTH_INDIRECT, /* a call through a register or memory, or of a PLT entry */
	UW_WORTH_DIRECT,   /* a call of what lies at the pc or not far below it */
};

/*
 * Of (space, ra) alone, but for telling DIRECT, INDIRECT and ELSEWHERE apart, which takes
 * w->lookup: NOTHING, UNREAD and the rest may be kept by ra.
 */
enum uw_worth uw_guess_worth(struct uw_walking *w, uint64_t ra);

/* Whether the call that ends at ra is of one address, and which. */
bool uw_guess_target(struct uw_walking *w, uint64_t ra, uint64_t *target);

/* A caller that was guessed, to be taken or not; worth says if there is one. */
struct uw_guess {
	uint64_t ra, sp, fp;
	enum uw_worth worth;
	bool sure; /* LEAF: the code says so */
};

/* Stacks are not larger by default (RLIMIT_STACK), so a pointer beyond is no frame's. */
#define UW_STACK_MAX ((uint64_t)8 << 20)

/* May fp be the frame pointer of a frame whose stack pointer is sp? */
static inline bool uw_guess_is_fp(uint64_t sp, uint64_t fp)
{
	return fp - sp <= UW_STACK_MAX && fp % 8 == 0; /* below sp the difference wraps */
}

/*
 * What the link at fp, which holds next and a return address of that worth (other than
 * 0, in executable memory or not as code says), is worth once the chain is looked at.
 */
static inline enum uw_worth uw_guess_link(enum uw_worth worth, uint64_t fp, uint64_t next,
					  bool code)
{
	/*
	 * The last link of a chain holds by itself.  What it leads to need not have
	 * called: Go lets goroutines return to the second byte of runtime.goexit.
	 */
	if (worth == UW_WORTH_NOTHING && next == 0 && code)
		return UW_WORTH_UNREAD;
	/* Generated code cannot be looked at; then the chain itself must hold. */
	if (worth == UW_WORTH_UNREAD && next != 0 && (next <= fp || next % 8))
		return UW_WORTH_NOTHING;
	return worth;
}

/*
 * How sure a caller of that worth is. own: the word is known to be of the frame at the pc, and
 * not of one further out, as the frame pointer's is in functions that leave it alone.
 */
static inline enum uw_confidence uw_guess_confidence(enum uw_worth worth, bool own)
{
	return own && worth != UW_WORTH_UNREAD && worth != UW_WORTH_NOTHING ? UW_CONFIDENCE_CHECKED
									    : UW_CONFIDENCE_GUESS;
}

/*
 * The pc was reached by a call and has built no frame yet: the return address is
 * where the call left it, at sp or in the link register.
 */
void uw_guess_leaf(struct uw_walking *w, struct uw_guess *guess);
void uw_guess_take_leaf(struct uw_walking *w, const struct uw_guess *guess);

/*
 * [fp] the caller's fp, [fp + 8] the return address (psABI §3.2.2, AAPCS64
 * §6.4.6).  Code without rules may use the register for anything, so both words
 * must look the part.  Return true where the chain ends here: fp is 0, or what it points to
 * is.  That proves nothing about the frame, because code without rules may use the register
 * for anything.
 */
bool uw_guess_fp(struct uw_walking *w, struct uw_guess *guess);
void uw_guess_take_fp(struct uw_walking *w, const struct uw_guess *guess);

/* The next word from sp up that a call may have left there. */
void uw_guess_scan(struct uw_walking *w, struct uw_guess *guess);
void uw_guess_take_scan(struct uw_walking *w, const struct uw_guess *guess);

#endif

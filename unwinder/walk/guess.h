/*
 * unwinder/walk/guess.h: guesses the caller of code that has no rules.
 *
 * A word may be the pc's return address if the code below that address is a call. The more
 * surely that call leads to the code at the pc, the stronger is the evidence (enum uw_evidence).
 */
#ifndef UNWINDER_WALK_GUESS_H
#define UNWINDER_WALK_GUESS_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

struct uw_arch;
struct uw_walking;

/*
 * The evidence that a word is the return address of the code at the pc, from the weakest to the
 * strongest.
 */
enum uw_evidence {
	UW_EVIDENCE_NONE,	/* no code is there, or no call ends there */
	UW_EVIDENCE_ELSEWHERE,	/* a call of other code, which returned or made a tail call */
	UW_EVIDENCE_UNREADABLE, /* code that cannot be read: generated, or its file is missing */
	UW_EVIDENCE_INDIRECT,	/* a call through a register or memory, or of a PLT entry */
	UW_EVIDENCE_DIRECT,	/* a direct call of the code at the pc, or not far below the pc */
};

/*
 * Return the evidence for ra as the return address of w's frame. NOTHING and UNREAD depend on
 * (space, ra) only, and so does the fact that it is one of the others; these may be cached by
 * ra. To tell DIRECT, INDIRECT and ELSEWHERE apart, w->lookup is needed too.
 */
enum uw_evidence uw_guess_evidence(struct uw_walking *w, uint64_t ra);

/* Return whether the call that ends at ra is a direct one, and its target. */
bool uw_guess_target(struct uw_walking *w, uint64_t ra, uint64_t *target);

/* A guessed caller. evidence says whether there is one. */
struct uw_guess {
	uint64_t ra, sp, fp;
	enum uw_evidence evidence;
	bool sure; /* LEAF: the code proves that ra is in lr */
};

/*
 * The default size limit of a stack (RLIMIT_STACK): a pointer further up than this belongs to
 * no frame of it.
 */
#define UW_STACK_MAX ((uint64_t)8 << 20)

/* Nearly all functions have fewer bytes, also those that programs generate. */
#define UW_FUNCTION_USUAL ((uint64_t)4 << 10)

/* Return whether fp can be the frame pointer of a frame with the stack pointer sp. */
static inline bool uw_guess_is_fp(uint64_t sp, uint64_t fp)
{
	return fp - sp <= UW_STACK_MAX && fp % 8 == 0; /* below sp, the difference wraps */
}

/*
 * Return the evidence for the link at fp, considering the chain. The link holds next and a
 * return address whose own evidence is given; the return address is not 0. code: it lies in
 * executable memory.
 */
static inline enum uw_evidence uw_guess_link(enum uw_evidence evidence, uint64_t fp, uint64_t next,
					     bool code)
{
	/*
	 * The last link of a chain is accepted without a call before its return address: Go
	 * lets goroutines return to the second byte of runtime.goexit, which no code has
	 * called.
	 */
	if (evidence == UW_EVIDENCE_NONE && next == 0 && code)
		return UW_EVIDENCE_UNREADABLE;
	/* Generated code cannot be read; the chain itself must then be consistent. */
	if (evidence == UW_EVIDENCE_UNREADABLE && next != 0 && (next <= fp || next % 8))
		return UW_EVIDENCE_NONE;
	return evidence;
}

/*
 * Return the confidence in a caller with this evidence. own: the word is known to belong to the
 * frame at the pc and not to an outer one, as the frame pointer does in functions that do not
 * touch it.
 */
static inline enum uw_confidence uw_guess_confidence(enum uw_evidence evidence, bool own)
{
	return own && evidence != UW_EVIDENCE_UNREADABLE && evidence != UW_EVIDENCE_NONE
		       ? UW_CONFIDENCE_CHECKED
		       : UW_CONFIDENCE_GUESS;
}

/*
 * Guess the caller of a function that has been called but has built no frame yet: the return
 * address is where the call left it, at sp or in the link register.
 */
void uw_guess_leaf(struct uw_walking *w, struct uw_guess *guess);

/*
 * Guess the caller by the frame pointer: [fp] holds the caller's fp, [fp + 8] the return
 * address (psABI §3.2.2, AAPCS64 §6.4.6). Code without rules may use the register for anything,
 * so both words must be plausible.
 *
 * Return true if the chain ends here: fp is 0, or the record at fp holds zeros. That does not
 * prove that the frame is the outermost one, again because the register may hold anything.
 */
bool uw_guess_fp(struct uw_walking *w, struct uw_guess *guess);

/*
 * Guess the caller by a scan of the stack: find the next word from sp upwards that a call may
 * have stored.
 */
void uw_guess_scan(struct uw_walking *w, struct uw_guess *guess);

/*
 * Make a frame's registers those of the caller that a guess of this stepper (LEAF, FP or SCAN)
 * found. A leaf function has saved no registers, so all of them stay known; otherwise all become
 * unknown but pc, sp and fp; with SCAN fp may be unknown, too. *sp_low is set if sp is only a lower
 * bound after the step: a frame record may lie anywhere in its frame (AAPCS64 §6.4.6).
 */
void uw_guess_take(const struct uw_arch *arch, uint8_t stepper, const struct uw_guess *guess,
		   struct uw_regs *regs, bool *sp_low);

#endif

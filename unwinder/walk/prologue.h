/*
 * unwinder/walk/prologue.h: the frame of code without rules, derived from how its function begins.
 *
 * Hand-written code (codecs, linear algebra, hashes) has no call-frame information and may use the
 * frame pointer for anything. But it mostly has a simple prologue: it pushes the registers that it
 * must save, moves sp down, and does not move sp again until its end. In a stripped file no symbol
 * shows where a function begins. It is probably at a multiple of 16, after the return or jump that
 * ends another function. That is a guess, which counts only if there is a return address where the
 * prologue has it.
 */
#ifndef UNWINDER_WALK_PROLOGUE_H
#define UNWINDER_WALK_PROLOGUE_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

/* How far below the pc a function may begin, and how many candidates are tried. */
#define UW_PROLOGUE_BACK  8192
#define UW_PROLOGUE_TRIES 4

/* How much of a function is read as its prologue. */
#define UW_PROLOGUE_MAX 256

/*
 * Candidates for the start of the function around a pc, from the pc downward. It is large and lives
 * on the caller's stack.
 */
struct uw_beginnings {
	struct uw_object *object;
	/* pc: a vaddr; length: the distance from the next candidate to pc */
	uint64_t pc, size, length;
	uint64_t more; /* how much code may be read instead of these size bytes; 0: no more */
	uint8_t code[UW_PROLOGUE_BACK];
};

/* Prepare the candidates. pc is a vaddr; a return address is passed unchanged. */
void uw_beginnings_init(struct uw_beginnings *b, struct uw_object *object, uint64_t pc);

/*
 * Compute the frame at pc as if its function began at the next candidate, out->start. If nothing
 * was pushed, the frame is empty. -EAGAIN: there is no simple prologue there; call again. -ENOENT:
 * there are no more candidates.
 */
int uw_beginnings_next(struct uw_beginnings *b, struct uw_rule *out);

/* What a function without rules does with the frame pointer, as its prologue shows. */
enum uw_keeping {
	UW_KEEPING_UNKNOWN, /* it has no simple prologue, or its code cannot be read */
	UW_KEEPING_FP,	    /* it sets the register */
	/* it pushes registers or moves sp, and leaves the frame pointer alone */
	UW_KEEPING_NOT,
};

/*
 * Return what the function around pc does. The first candidate that sets the frame pointer or
 * builds a frame decides.
 */
enum uw_keeping uw_beginnings_keep(struct uw_object *object, uint64_t pc);

/* Find the candidate that was used: the one whose CFA, with these registers, is cfa. */
bool uw_beginnings_taken(struct uw_object *object, uint64_t pc, const struct uw_regs *regs,
			 uint64_t cfa, struct uw_rule *out);

#endif

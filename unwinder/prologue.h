/*
 * unwinder/prologue.h: frames of code without rules, by how its function begins.
 *
 * Hand-written code (of codecs, of linear algebra, of hashes) has no call-frame information and
 * uses the frame pointer for anything, but mostly begins plainly: it pushes what it has to keep,
 * takes room below sp, and moves sp no more until it ends.  Where a function begins no symbol
 * tells in a stripped file: at a multiple of 16, behind the return or jump that ends another.
 * That is a guess, which holds only if a return address is where the beginning says.
 */
#ifndef UNWINDER_PROLOGUE_H
#define UNWINDER_PROLOGUE_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

/* How far below the pc a function may begin, and how many places that look like it are tried. */
#define UW_PROLOGUE_BACK  8192
#define UW_PROLOGUE_TRIES 4

/* How much of a function's beginning is read as such. */
#define UW_PROLOGUE_MAX 256

/* Where a function may begin, from a pc downward; on the caller's stack while he asks. */
struct uw_beginnings {
	struct uw_object *object;
	uint64_t pc, size, length; /* pc: a vaddr; length: from the next place to it */
	uint64_t more; /* how much code may be read in place of these size bytes; 0: no more */
	uint8_t code[UW_PROLOGUE_BACK];
};

/* pc: a vaddr; of a return address as it stands. */
void uw_beginnings_init(struct uw_beginnings *b, struct uw_object *object, uint64_t pc);

/*
 * The frame at pc if its function begins at the next such place, out->start; without anything
 * pushed it is empty.  -EAGAIN it does not begin plainly there; -ENOENT that was the last.
 */
int uw_beginnings_next(struct uw_beginnings *b, struct uw_rule *out);

/* What a function without rules does with the frame pointer, by how it begins. */
enum uw_keeping {
	UW_KEEPING_UNKNOWN, /* it does not begin plainly, or its code cannot be seen */
	UW_KEEPING_FP,	    /* it sets the register */
	UW_KEEPING_NOT,	    /* it pushes or takes room, and lets the register be */
};

/* Of the places where the function around pc may begin the first where it does either decides. */
enum uw_keeping uw_beginnings_keep(struct uw_object *object, uint64_t pc);

/* The one that was taken: whose CFA, by the registers there, is cfa. */
bool uw_beginnings_taken(struct uw_object *object, uint64_t pc, const struct uw_regs *regs,
			 uint64_t cfa, struct uw_rule *out);

#endif

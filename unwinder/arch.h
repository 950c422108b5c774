/*
 * unwinder/arch.h: what the unwinder must know of a machine.
 *
 * Every machine is in every build: a sample of one is unwound on any other.
 */
#ifndef UNWINDER_ARCH_H
#define UNWINDER_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

/* Code around an address, for those who recognise it: what lies before and from it on. */
struct uw_code {
	const uint8_t *at; /* before bytes lie below it, after from it on; borrowed */
	size_t before, after;
};

enum uw_call_kind { UW_CALL_NONE, UW_CALL_INDIRECT, UW_CALL_DIRECT };

struct uw_call {
	uint8_t kind;	/* enum uw_call_kind */
	int32_t target; /* DIRECT: counted from code->at */
};

#define UW_SAVED_MAX 10

enum uw_built { /* how far a function without rules has come with its frame */
		UW_BUILT_UNKNOWN,
		UW_BUILT_NONE, /* the return address is in lr, the frame pointer the caller's */
		UW_BUILT_FRAME, /* lr has been saved, and the frame pointer is its own if it keeps one */
};

enum uw_made_by { UW_MADE_BY_NONE, UW_MADE_BY_CLONE, UW_MADE_BY_CLONE3 };

#define UW_CODE_BEFORE 16
#define UW_CODE_AFTER  16

/* Code below a place that tells whether a function begins there: more is not looked at. */
#define UW_BEGINS_BACK 96

struct uw_arch {
	uint16_t machine; /* EM_… */
	uint8_t n_regs;	  /* columns in struct uw_regs, the pc among them */
	uint8_t sp, fp, pc;
	uint8_t lr;	    /* the register calls leave the return address in; == pc: the stack */
	uint8_t code_align; /* of instructions, in bytes */
	uint8_t unit_shift; /* … as a power of two */
	uint8_t result;	    /* the register with a system call's result */
	uint8_t second;	    /* … with its second argument, which it leaves alone */
	/* What a table's rows say of: where these are saved, besides fp and lr (schema/table.h). */
	uint8_t ext_slots, n_saved;
	uint8_t saved[UW_SAVED_MAX];
	bool sigcontext_first; /* of a signal frame trust its saved registers, not its CFI */

	/* The instruction that every signal trampoline has, and the least that all of one takes. */
	uint8_t syscall[4], syscall_size, trampoline_size;
	/* The one in the vDSO, which nothing else there is returned to; NULL: it lies elsewhere. */
	const uint8_t *vdso_trampoline;

	/* Which call ends just below code->at?  Needs only what lies before. */
	struct uw_call (*after_call)(const struct uw_code *code);
	/* Is code->at the start of a signal trampoline, or (exact) within one? */
	bool (*signal)(const struct uw_code *code, bool exact, struct uw_rule *rule);
	/*
	 * Where in 16 bytes of a PLT instructions begin, a bit each; 0: stubs are told by their
	 * code alone, which nothing else looks like.
	 */
	uint16_t plt_places;
	/* Is code->at within a PLT entry or a stub like it? */
	bool (*stub)(const struct uw_code *code, struct uw_rule *rule);
	/* The frame of _init or _fini, whose code begins at start; at is off bytes into it. */
	bool (*init)(const struct uw_code *start, const struct uw_code *at, uint64_t off,
		     struct uw_rule *rule);
	/*
	 * Does another function end in front of at, with padding behind it or none; code: where
	 * what can be seen begins.  NULL: beginnings are not told so.
	 */
	bool (*begins)(const uint8_t *code, const uint8_t *at);
	/* The same of the place behind the entry point's function, which begins at code. */
	bool (*begins_behind_entry)(const uint8_t *code, const uint8_t *at);
	/*
	 * The frame that a function has built whose first size bytes, those before the pc, are
	 * these.  False: it does not begin plainly.
	 */
	bool (*prologue)(const uint8_t *code, size_t size, struct uw_rule *rule);
	/* What the code below the pc, its last size bytes, has built.  NULL: it is not told so. */
	enum uw_built (*built)(const uint8_t *code, size_t size);
	/*
	 * Which system call, of those that make threads, lies before code->at with nothing
	 * behind it but the look at its result?
	 */
	enum uw_made_by (*made_by)(const struct uw_code *code);
	/*
	 * Takes authentication bits and tags off a code address.  mask: which bits those
	 * are; 0: user addresses end at top.
	 */
	uint64_t (*strip)(uint64_t pc, uint64_t mask, uint64_t top);
};

extern const struct uw_arch uw_arch_x86_64;
extern const struct uw_arch uw_arch_aarch64;

const struct uw_arch *uw_arch_of(uint16_t machine); /* NULL: not known */

#endif

/*
 * unwinder/explained.h: how a walk went, step by step: the rules, and where each register was
 * found. Part of unwinder.h.
 */
#ifndef UNWINDER_EXPLAINED_H
#define UNWINDER_EXPLAINED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/walks.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- how a walk went, step by step --------------------------------------- */

/* Return the register's name: "rip"; "?": there is no such register. */
const char *uw_reg_name(uint16_t machine, unsigned int reg);

/* Where the rule for a frame comes from. */
enum uw_rules {
	UW_RULES_NONE, /* there is none for its pc */
	UW_RULES_EH_FRAME,
	UW_RULES_DEBUG_FRAME,
	UW_RULES_MINI,	  /* .debug_frame inside .gnu_debugdata */
	UW_RULES_GAP,	  /* an FDE or the entry point next to the pc, or the code itself */
	UW_RULES_DYNAMIC, /* registered by the process, for code it generated */
	UW_RULES_CODE,	  /* derived from how its function begins, at fde_start */
	UW_RULES_GO,	  /* Go's function table, .gopclntab */
};

/* Why a stepper found no caller for code without rules. */
enum uw_verdict {
	UW_VERDICT_CALLER,  /* the frame called another: sp and lr no longer point to its return */
	UW_VERDICT_UNKNOWN, /* the register's value is not known */
	/* the frame pointer is 0: the chain ends, but that proves nothing */
	UW_VERDICT_NONE,
	UW_VERDICT_ASTRAY,     /* the frame pointer points to no frame of this stack */
	UW_VERDICT_NOT_RISING, /* the frame that it points to does not lie above it */
	UW_VERDICT_MISSING,    /* the bytes at addr were not captured */
	UW_VERDICT_NO_CODE,    /* the value is not an address of code */
	UW_VERDICT_NO_CALL,    /* it is an address of code, but no call precedes it */
	/* it is an address of code, but the bytes before it cannot be read */
	UW_VERDICT_UNREADABLE,
	UW_VERDICT_OTHER,   /* a call precedes it, but a call of another function */
	UW_VERDICT_OFF,	    /* this stepper has not been turned on */
	UW_VERDICT_NO_WORD, /* no word on the stack follows a call */
	/* no function start below the pc leads to a return address */
	UW_VERDICT_NOT_PLAIN,
	UW_VERDICT_N
};

/* A guess that was not taken. */
struct uw_try {
	uint8_t stepper; /* LEAF, FP, PROLOGUE or SCAN */
	uint8_t verdict; /* enum uw_verdict */
	uint8_t reg;	 /* the register that the stepper used */
	bool has_addr, has_value;
	/* of the possible return address; ASTRAY, NONE: of the register */
	uint64_t addr, value;
};

/* Return the verdict's name: "no_call". */
const char *uw_verdict_name(enum uw_verdict verdict);

/* Return it in words: "no call ends there". */
const char *uw_verdict_sentence(enum uw_verdict verdict);

/* One step, from a frame to its caller. */
struct uw_step {
	size_t frame;			/* its index in the stack */
	struct uw_regs regs;		/* in this frame */
	const struct uw_object *object; /* borrowed until the space changes; NULL: none */
	uint64_t vaddr;			/* of the frame's lookup address in the object */
	enum uw_rules rules;
	/*
	 * vaddrs; row: 0, 0 if there is none.  DYNAMIC rules: run-time addresses of the
	 * procedure.  CODE: of the function up to the pc.
	 */
	uint64_t fde_start, fde_end, row_start, row_end;
	bool found; /* the step found a caller */
	/* enum uw_stepper or a user's: the one that found the caller, or failed to */
	uint8_t stepper;
	enum uw_confidence confidence;
	bool cfa_known, cfa_expression;
	uint8_t cfa_reg; /* cfa = cfa_reg + cfa_off, unless an expression gives it */
	int64_t cfa_off;
	uint64_t cfa;
	struct uw_save ra;
	struct uw_save saves[UW_REGS_MAX]; /* all other registers that have a rule */
	size_t n_saves;
	struct uw_try tried[4]; /* for the last frame, if it has no rule */
	size_t n_tried;
	bool differs; /* an error in this library: the walk found another caller */
};

/* Receive one step, which is borrowed for the call. */
typedef void (*uw_step_fn)(void *ctx, const struct uw_step *step);

/*
 * Walk the stack once more, slowly and without caches or compiled tables, and report each step to
 * fn. stack must be the result of uw_walk in the same space, which must not have changed. Walks
 * that are not explained cost nothing more.
 */
void uw_explain(struct uw_space *space, const struct uw_thread *thread,
		const struct uw_stack *stack, uw_step_fn fn, void *ctx);

/* Return the name: ".eh_frame". */
const char *uw_rules_name(enum uw_rules rules);

/* Return the name: "rule". */
const char *uw_confidence_name(enum uw_confidence confidence);

#ifdef __cplusplus
}
#endif

#endif

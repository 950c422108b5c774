/*
 * unwinder/frames.h: the result of a walk: frames, how each was found, why the walk ended, and
 * where registers are saved. Part of unwinder.h.
 */
#ifndef UNWINDER_FRAMES_H
#define UNWINDER_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/spaces.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- walking ------------------------------------------------------------- */

/* How the walk found a frame from the one inside it; frame 0 is CONTEXT. */
enum uw_stepper {
	UW_STEPPER_CONTEXT, /* the captured registers */
	UW_STEPPER_CFI,	    /* .eh_frame or .debug_frame */
	/* signal trampoline, recognized by its code or its place */
	UW_STEPPER_SIGNAL,
	UW_STEPPER_PLT,	    /* PLT entry or other stub, recognized by its code */
	UW_STEPPER_LEAF,    /* [sp] (x86_64) or lr (aarch64); no rule for the pc */
	UW_STEPPER_FP,	    /* frame pointer chain */
	UW_STEPPER_SCAN,    /* the next word on the stack that follows a call */
	UW_STEPPER_DYNAMIC, /* what the process registered about code it generated */
	/* how the function begins (x86_64); no rule for the pc */
	UW_STEPPER_PROLOGUE,
	UW_STEPPER_N /* from here on: steppers added by uw_steppers_add */
};

/* How sure it is that a frame is the caller. */
enum uw_confidence {
	/* Unwind information says so, or code that is recognized. */
	UW_CONFIDENCE_RULE,
	/* Guessed; a call precedes the return address and fits the code at the pc. */
	UW_CONFIDENCE_CHECKED,
	/* Guessed; it may be a frame further out, or the code could not be looked at. */
	UW_CONFIDENCE_GUESS,
};

/* Why a walk ended; each reason has a name and a sentence. */
enum uw_stop {
	UW_STOP_ROOT,	    /* proven: this is the thread's outermost frame */
	UW_STOP_TRUNCATED,  /* the walk needs memory that was not captured, at stop_addr */
	UW_STOP_NO_MAPPING, /* the pc lies in no executable mapping */
	/* The mapping's file is missing, replaced or unreadable, and no stepper found a caller. */
	UW_STOP_NO_OBJECT,
	UW_STOP_NO_UNWIND_INFO, /* no rule for the pc, and no stepper found a caller */
	UW_STOP_BAD_CFI,	/* damaged or unsupported unwind information */
	UW_STOP_REG_UNKNOWN,	/* a rule needs a register whose value is not known */
	UW_STOP_CFA_NOT_RISING, /* the caller's frame would not lie above this one */
	UW_STOP_CYCLE,		/* the walk came to the same pc and sp again */
	UW_STOP_MAX_FRAMES,	/* the stack has as many frames as the caller has room for */
	UW_STOP_NO_USER_STATE,	/* the sample has no user registers (kernel thread, exiting task) */
	UW_STOP_COMPAT,		/* 32-bit code under a 64-bit kernel, which is not supported */
	/* a zero frame pointer or return address, without proof of the end */
	UW_STOP_GUESS_ENDED,
	UW_STOP_LIMIT, /* the unwind information takes more work than limits.h allows */
	UW_STOP_N
};

/* Return the reason's name: "truncated". */
const char *uw_stop_name(enum uw_stop stop);

/* Return a sentence for people: the meaning, and what helps. */
const char *uw_stop_sentence(enum uw_stop stop);

/* Return the name of a built-in stepper: "cfi". */
const char *uw_stepper_name(enum uw_stepper stepper);

/* One frame of a walked stack. */
struct uw_frame {
	uint64_t pc;	 /* the return address without authentication bits, or the interrupted pc */
	uint64_t lookup; /* pc if exact, else pc - 1 */
	uint64_t cfa;	 /* 0 if the walk stopped before it was known */
	uint64_t sp;	 /* the stack pointer in this frame */
	const struct uw_mapping *mapping; /* borrowed until the space changes; NULL: none */
	uint8_t stepper;    /* enum uw_stepper: how this frame was found from the one inside it */
	uint8_t confidence; /* enum uw_confidence; RULE for frame 0 */
	/* lookup == pc: frame 0, interrupted by a signal, or the entry of a coroutine */
	bool exact;
	bool signal; /* this frame is a signal trampoline */
};

/* The result of a walk: frames[0] is the innermost frame. */
struct uw_stack {
	struct uw_frame *frames; /* owned by the caller, with room for max_frames */
	size_t max_frames;
	size_t n_frames;
	enum uw_stop stop;
	uint64_t stop_addr; /* TRUNCATED: the first address missing; else the last pc walked */
};

/* ---- where registers are saved --------------------------------------------- */

/* Where a caller's register was found. */
enum uw_place {
	UW_PLACE_UNDEFINED, /* the rules say that it is lost */
	UW_PLACE_SAME,	    /* in the same register */
	UW_PLACE_REGISTER,  /* in another register */
	UW_PLACE_MEMORY,    /* at addr */
	UW_PLACE_VALUE,	    /* computed, stored nowhere */
};

/* Where one of the caller's registers was found. */
struct uw_save {
	/* the caller's register by DWARF number; for the return address that of the pc */
	uint8_t reg;
	uint8_t place;	 /* enum uw_place */
	uint8_t from;	 /* REGISTER: which register */
	bool expression; /* found by a DWARF expression */
	bool popped;	 /* SAME, because its slot lies below sp already */
	bool known;	 /* value is known */
	uint64_t addr, value;
};

#ifdef __cplusplus
}
#endif

#endif

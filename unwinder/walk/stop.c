/* unwinder/walk/stop.c: names and sentences of the reasons why walks stop; names of steppers. */
#include "unwinder/unwinder.h"

static const struct {
	const char *name, *sentence;
} stops[] = {
	[UW_STOP_ROOT] = { "root", "The stack ended at its outermost frame, which is proven." },
	[UW_STOP_TRUNCATED] = { "truncated",
				"The next frame lies in memory that was not captured: capture a "
				"larger part of the stack, unless the frame is on another stack." },
	[UW_STOP_NO_MAPPING] = { "no_mapping",
				 "The address lies in no executable mapping: generated code that "
				 "is gone, "
				 "a jump into nowhere, or a mapping that was not recorded." },
	[UW_STOP_NO_OBJECT] = { "no_object", "The mapped file is missing, was replaced or cannot "
					     "be read, and no frame pointer leads to the caller: "
					     "unwind on the machine where the program ran." },
	[UW_STOP_NO_UNWIND_INFO] = { "no_unwind_info", "The code has no unwind information and "
						       "keeps no frame pointer: build "
						       "it with -fasynchronous-unwind-tables or "
						       "-fno-omit-frame-pointer." },
	[UW_STOP_BAD_CFI] = { "bad_cfi", "The unwind information for this address is damaged or "
					 "not supported." },
	[UW_STOP_REG_UNKNOWN] = { "reg_unknown", "The unwind information needs a register whose "
						 "value was not known." },
	[UW_STOP_CFA_NOT_RISING] = { "cfa_not_rising", "The caller's frame would not lie above its "
						       "callee's: wrong unwind "
						       "information or an overwritten stack." },
	[UW_STOP_CYCLE] = { "cycle", "The same frame came again: an overwritten stack." },
	[UW_STOP_MAX_FRAMES] = { "max_frames", "The stack has more frames than were asked for." },
	[UW_STOP_NO_USER_STATE] = { "no_user_state",
				    "The sample has no user registers that can be used: a kernel "
				    "thread, or a task that was exiting." },
	[UW_STOP_COMPAT] = { "compat", "32-bit code of a 64-bit system, which is not walked." },
	[UW_STOP_GUESS_ENDED] = { "guess_ended",
				  "The frame pointer or the return address is 0, but nothing "
				  "proves that this is the outermost frame: frames may be missing. "
				  "Build the code with -fasynchronous-unwind-tables." },
	[UW_STOP_LIMIT] = { "limit", "The unwind information for this address takes more work than "
				     "the limits of operations or instructions allow." },
};
_Static_assert(sizeof(stops) / sizeof(stops[0]) == UW_STOP_N, "each has a name and a sentence");

static const char *const steppers[] = {
	[UW_STEPPER_CONTEXT] = "context",   [UW_STEPPER_CFI] = "cfi",
	[UW_STEPPER_SIGNAL] = "signal",	    [UW_STEPPER_PLT] = "plt",
	[UW_STEPPER_LEAF] = "leaf",	    [UW_STEPPER_FP] = "fp",
	[UW_STEPPER_SCAN] = "scan",	    [UW_STEPPER_DYNAMIC] = "dynamic",
	[UW_STEPPER_PROLOGUE] = "prologue",
};
_Static_assert(sizeof(steppers) / sizeof(steppers[0]) == UW_STEPPER_N, "each has a name");

const char *uw_stop_name(enum uw_stop stop)
{
	return (unsigned int)stop < UW_STOP_N ? stops[stop].name : "unknown";
}

const char *uw_stop_sentence(enum uw_stop stop)
{
	return (unsigned int)stop < UW_STOP_N ? stops[stop].sentence : "";
}

const char *uw_stepper_name(enum uw_stepper stepper)
{
	return (unsigned int)stepper < UW_STEPPER_N ? steppers[stepper] : "unknown";
}

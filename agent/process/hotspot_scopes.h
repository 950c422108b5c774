/*
 * agent/process/hotspot_scopes.h: reads which methods, and where in them, an address in a Java virtual
 * machine's compiled code belongs to: the method that was compiled, and those inlined into it.
 */
#ifndef AGENT_PROCESS_HOTSPOT_SCOPES_H
#define AGENT_PROCESS_HOTSPOT_SCOPES_H

#include "agent/process/hotspot_layout.h"

#include <stddef.h>

/* The deepest inlining that is shown; HotSpot's own limit is 15 by default, besides recursion. */
#define HOTSPOT_CALLS_MAX 64

#define HOTSPOT_NO_BCI UINT32_MAX

struct hotspot_call {
	uint64_t method;
	uint32_t bci; /* index in its bytecode; HOTSPOT_NO_BCI: not known */
};

struct hotspot_nmethod {
	uint64_t at;	/* address of the blob */
	uint64_t start; /* of its code */
	uint64_t end;
};

/*
 * Read the calls that are open at pc, innermost first. exact: pc is where a thread was interrupted, not a
 * return address. The virtual machine only knows the calls at its calls and safepoints, so the calls at the
 * next of these are taken. Return how many there are; 0: it knows nothing of this pc, or it cannot be read.
 */
size_t hotspot_scopes_read(struct hotspot_memory *m, const struct hotspot_layout *l,
			   const struct hotspot_nmethod *nmethod, uint64_t pc, bool exact,
			   struct hotspot_call out[HOTSPOT_CALLS_MAX]);

/*
 * Return whether this return address has taken the place of another: the method's code is no longer valid, and its
 * frames are given up when they are returned to (deoptimization, frame.cpp). Then *saved is where each of them keeps its
 * own, in bytes above its stack pointer.
 */
bool hotspot_scopes_saved(struct hotspot_memory *m, const struct hotspot_layout *l,
			  const struct hotspot_nmethod *nmethod, uint64_t pc, uint32_t *saved);

#endif

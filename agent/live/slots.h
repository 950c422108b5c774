/*
 * agent/live/slots.h: lets records of the ring end their use in any order; the kernel takes them
 * back only in the order of the ring.
 */
#ifndef AGENT_LIVE_SLOTS_H
#define AGENT_LIVE_SLOTS_H

#include "agent/live/ring.h"

#include <stddef.h>
#include <stdint.h>

struct live_slot { /* a record in the ring */
	unsigned long end;
	/* It is needed until live_slots.taken is so much. UINT64_MAX: it is in use; 0: no longer needed. */
	uint64_t until;
	uint64_t time_ns; /* of live_slots_lend */
};

struct live_slots { /* all zero but ring: empty */
	struct live_ring *ring;
	uint64_t taken;		 /* by another reader of the ring; see live_slots_lend */
	struct live_slot *slots; /* circular; room is a power of two */
	size_t room;
	uint64_t first, next; /* numbers of the oldest slot and of the next one */
};

/*
 * Append a slot for the record that ends at position end. Its number is the value of next before.
 * -ENOMEM.
 */
int live_slots_add(struct live_slots *s, unsigned long end);

/*
 * Mark a record as no longer needed, and give the ring back all records before the oldest one that
 * is still in use.
 */
void live_slots_done(struct live_slots *s, uint64_t number);

/*
 * Another reader uses the record from now on: it is needed until live_slots_taken is called with until (at
 * least 1) or more. time_ns is the sample's time.
 */
void live_slots_lend(struct live_slots *s, uint64_t number, uint64_t until, uint64_t time_ns);
/*
 * Give back what that reader does not need any more. Return the time of the oldest record that it still
 * needs; UINT64_MAX: the oldest record in use is not lent, or there is none.
 */
uint64_t live_slots_taken(struct live_slots *s, uint64_t taken);
void live_slots_fini(struct live_slots *s);

#endif

/*
 * agent/live/slots.h: lets records of the ring end their use in any order; the kernel takes them
 * back only in the order of the ring.
 */
#ifndef AGENT_LIVE_SLOTS_H
#define AGENT_LIVE_SLOTS_H

#include "agent/live/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_slot { /* a record in the ring */
	unsigned long end;
	bool done;
};

struct live_slots { /* all zero but ring: empty */
	struct live_ring *ring;
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
void live_slots_fini(struct live_slots *s);

#endif

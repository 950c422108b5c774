/* agent/live/slots.c: remembers which records of the ring are still in use. */
#include "agent/live/slots.h"

#include <errno.h>
#include <stdlib.h>

/* Return the slot with this number, which must be between first and next. */
static struct live_slot *slot_at(struct live_slots *s, uint64_t number)
{
	return &s->slots[number & (s->room - 1)];
}

/*
 * Grow to a power of two: the place of a slot is its number modulo the room, so each slot moves to
 * its new place.
 */
int live_slots_add(struct live_slots *s, unsigned long end)
{
	if (s->next - s->first == s->room) {
		size_t room = s->room ? s->room * 2 : 1024;
		struct live_slot *bigger = calloc(room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		for (uint64_t i = s->first; i != s->next; i++)
			bigger[i & (room - 1)] = *slot_at(s, i);
		free(s->slots);
		s->slots = bigger;
		s->room = room;
	}
	*slot_at(s, s->next++) = (struct live_slot){ .end = end };
	return 0;
}

void live_slots_done(struct live_slots *s, uint64_t number)
{
	unsigned long end = 0;

	slot_at(s, number)->done = true;
	while (s->first != s->next && slot_at(s, s->first)->done)
		end = slot_at(s, s->first++)->end;
	if (end)
		live_ring_release(s->ring, end);
}

void live_slots_fini(struct live_slots *s)
{
	free(s->slots);
}

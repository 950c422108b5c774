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
	*slot_at(s, s->next++) = (struct live_slot){ .end = end, .until = UINT64_MAX };
	return 0;
}

/* Give the ring back what nobody needs. */
static void release(struct live_slots *s)
{
	unsigned long end = 0;

	while (s->first != s->next && slot_at(s, s->first)->until <= s->taken)
		end = slot_at(s, s->first++)->end;
	if (end)
		live_ring_release(s->ring, end);
}

void live_slots_done(struct live_slots *s, uint64_t number)
{
	slot_at(s, number)->until = 0;
	release(s);
}

void live_slots_lend(struct live_slots *s, uint64_t number, uint64_t until, uint64_t time_ns)
{
	slot_at(s, number)->until = until;
	slot_at(s, number)->time_ns = time_ns;
}

uint64_t live_slots_taken(struct live_slots *s, uint64_t taken)
{
	s->taken = taken;
	release(s);
	if (s->first == s->next || slot_at(s, s->first)->until == UINT64_MAX)
		return UINT64_MAX;
	return slot_at(s, s->first)->time_ns;
}

void live_slots_fini(struct live_slots *s)
{
	free(s->slots);
}

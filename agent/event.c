/* agent/event.c: names for the reasons why samples are lost. */
#include "agent/event.h"

#include <assert.h>

const char *event_lost_name(enum event_lost_reason reason)
{
	static const char *const names[EVENT_LOST_N] = {
		[EVENT_LOST_RING_FULL] = "ring_full", [EVENT_LOST_UNREADABLE] = "unreadable",
		[EVENT_LOST_DAMAGED] = "damaged",     [EVENT_LOST_UNSUPPORTED] = "unsupported",
		[EVENT_LOST_WAIT_END] = "wait_end",   [EVENT_LOST_NOT_WRITTEN] = "not_written",
		[EVENT_LOST_CRASHED] = "crashed",
	};

	assert(reason < EVENT_LOST_N);
	return names[reason];
}

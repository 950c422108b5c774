/* agent/event.c: sizes of events; names for the reasons why samples are lost, and stacks of wakers are not there. */
#include "agent/event.h"

#include <assert.h>

size_t event_size(const struct event *event)
{
	const size_t head = offsetof(struct event, mapping);

	switch (event->type) {
	case EVENT_MAPPING:
		return head + sizeof(event->mapping);
	case EVENT_EXEC:
	case EVENT_EXIT:
	case EVENT_CHANGED:
		return head;
	case EVENT_FORK:
		return head + sizeof(event->fork);
	case EVENT_COMM:
		return head + sizeof(event->comm);
	case EVENT_CGROUP:
		return head + sizeof(event->cgroup);
	case EVENT_FREED:
		return head + sizeof(event->freed);
	case EVENT_LOST:
		return head + sizeof(event->lost);
	case EVENT_SAMPLE:
		if (event->sample.record)
			return head + sizeof(event->sample.record);
		break;
	case EVENT_WAKER:
	case EVENT_GENERATED:
	case EVENT_MEMORY:
		break;
	}
	return sizeof(*event);
}

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

const char *event_waker_name(enum event_waker_stack stack)
{
	static const char *const names[EVENT_WAKER_N] = {
		[EVENT_WAKER_NOT_ASKED] = "not_asked",
		[EVENT_WAKER_SENT] = "sent",
		[EVENT_WAKER_INTERRUPT] = "interrupt",
		[EVENT_WAKER_UNSEEN] = "unseen",
		[EVENT_WAKER_NOT_SELECTED] = "not_selected",
		[EVENT_WAKER_TOO_SHORT] = "too_short",
		[EVENT_WAKER_LOST] = "lost",
		[EVENT_WAKER_UNREADABLE] = "unreadable",
	};

	assert(stack < EVENT_WAKER_N);
	return names[stack];
}

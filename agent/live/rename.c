/* agent/live/rename.c: holds the last name that a thread got. */
#include "agent/live/rename.h"

#include <stdio.h>

void live_rename_hold(struct live_rename *rename, const struct event *name)
{
	rename->held = true;
	rename->event = *name;
	(void)snprintf(rename->comm, sizeof(rename->comm), "%s", name->comm.comm);
	rename->event.comm.comm = rename->comm;
}

bool live_rename_replace(struct live_rename *rename, const struct event *event)
{
	uint64_t first_ns = rename->event.time_ns;

	if (!rename->held || event->type != EVENT_COMM || event->tid != rename->event.tid ||
	    event->time_ns < first_ns || event->time_ns - first_ns > LIVE_RENAME_NS)
		return false;
	live_rename_hold(rename, event);
	rename->event.time_ns = first_ns;
	return true;
}

const struct event *live_rename_take(struct live_rename *rename)
{
	bool held = rename->held;

	rename->held = false;
	return held ? &rename->event : NULL;
}

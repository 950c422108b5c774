/*
 * agent/live/rename.h: holds the last name that a thread got. A thread can rename itself a million
 * times a second, so of the names that it gets within 20 us only the last one counts. (Who does
 * something under a name that is to be seen takes longer: taking a sample alone takes some us.)
 */
#ifndef AGENT_LIVE_RENAME_H
#define AGENT_LIVE_RENAME_H

#include "agent/event.h"

#include <stdbool.h>

#define LIVE_RENAME_NS UINT64_C(20000)

struct live_rename { /* all zero: no name is held */
	bool held;
	struct event event; /* EVENT_COMM; with the time of the first name that was replaced */
	char comm[64];	    /* longer than any name of the kernel's */
};

/*
 * If the event is the next name of the thread whose name is held, hold this name instead. Return
 * false if it is something else, or comes later than LIVE_RENAME_NS.
 */
bool live_rename_replace(struct live_rename *rename, const struct event *event);

/* Hold a copy of this name. */
void live_rename_hold(struct live_rename *rename, const struct event *name);

/* Hold no name any more. Return the one that was held, valid until the next call; NULL: none was. */
const struct event *live_rename_take(struct live_rename *rename);

#endif

/*
 * agent/live/short_lived.h: finds processes that began and ended while their events are in the queue, and that have
 * no samples. Their events are left out: most processes of a build or of a shell script are such.
 */
#ifndef AGENT_LIVE_SHORT_LIVED_H
#define AGENT_LIVE_SHORT_LIVED_H

#include "agent/event.h"
#include "agent/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_short_process; /* a process that the queue has items of */

struct live_short_lived { /* all zero: empty */
	struct live_short_process *processes;
	size_t n, room;
	struct uw_hash_index by_pid;
	bool any_ended; /* since live_short_lived_settle */
};

/* Note that an event or, if event is NULL, a sample of a process was put into the queue. -ENOMEM: nothing was noted. */
int live_short_lived_put(struct live_short_lived *s, uint32_t pid, const struct event *event);
/*
 * Note that something of an event of a process, which is in the queue, is looked up later; live_short_lived_deferred returns
 * once whether that is so, and then forgets it.
 */
void live_short_lived_defer(struct live_short_lived *s, uint32_t pid);
bool live_short_lived_deferred(struct live_short_lived *s, uint32_t pid);
/* Return whether it was decided that a process's event of this time, which is in the queue, is left out. */
bool live_short_lived_leaves_out(const struct live_short_lived *s, uint32_t pid, uint64_t time_ns);
/*
 * Decide which processes are left out. All events and samples until time_ns must be in the queue. Processes stay whose
 * beginning was taken out already, or that have threads, or children that are needed.
 */
void live_short_lived_settle(struct live_short_lived *s, uint64_t time_ns);
/* Note that an event, or a sample, was taken out of the queue. Return whether the event is left out. */
bool live_short_lived_take(struct live_short_lived *s, uint32_t pid, const struct event *event);
void live_short_lived_fini(struct live_short_lived *s);

#endif

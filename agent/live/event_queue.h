/*
 * agent/live/event_queue.h: sorts what comes from many rings by time: events (copied) and samples
 * (left in the ring).
 */
#ifndef AGENT_LIVE_EVENT_QUEUE_H
#define AGENT_LIVE_EVENT_QUEUE_H

#include "agent/event.h"
#include "agent/live/short_lived.h"
#include "agent/live/wait.h"
#include "agent/time_heap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_item {
	uint64_t time_ns; /* this and order come first: see agent/time_heap.h */
	/* Among equal times: events before samples, then in the order in which they were added. */
	uint64_t order;
	/*
	 * With its strings (live_queue_release frees it); NULL: a sample. Only what its type uses is there, so it is
	 * copied by live_queue_read.
	 */
	struct event *event;
	const uint8_t *record; /* of a sample, in the ring */
	uint64_t slot;	       /* the caller's number for the record */
	/*
	 * The sample of a thread that waited, or of one that ended a wait (CAPTURE_WAKER), from malloc.
	 * record is NULL then.
	 */
	struct live_waited *wait;
	uint32_t pid;
	/* What is needed of a sample's record when it is given out, as that is not in the caches any more then. */
	uint32_t stack_bytes;
	uint16_t cpu;
	bool is_alloc; /* CAPTURE_ALLOC */
	bool unneeded; /* of an event that was taken: its process is left out (agent/live/short_lived.h) */
};

struct live_queue {	       /* all zero: an empty queue */
	struct time_heap heap; /* of struct live_item */
	uint64_t n_pushed;
	size_t bytes; /* of the copied events and their items */
	struct live_short_lived short_lived;
	struct event *newest; /* the copy that was added last; invalid once it was taken */
	/* Memory for events; malloc has the long ones, and those for which there is no room. */
	struct live_spare *block;
	struct live_spare *spare; /* of the block: not in use */
};

/* Add a copy of the event and its strings. A mapping's image is not copied. -ENOMEM. */
int live_queue_event(struct live_queue *queue, const struct event *event);
/* Copy an event that was taken from a queue. The strings stay where they are. */
void live_queue_read(const struct event *queued, struct event *out);
/* Free an event that was taken from a queue, for others. NULL is fine. */
void live_queue_release(struct live_queue *queue, struct event *queued);
/* Add a sample whose record stays in the ring. -ENOMEM. */
int live_queue_sample(struct live_queue *queue, const struct capture_head *record, uint64_t slot);
/* Add the sample of a wait, or of the thread that ended it. Takes ownership of it, except on failure. -ENOMEM. */
int live_queue_wait(struct live_queue *queue, uint64_t time_ns, struct live_waited *wait);

/* Find the processes that are left out (agent/live/short_lived.h). Nothing until time_ns is added any more. */
void live_queue_settle(struct live_queue *queue, uint64_t time_ns);

/* Return the first item without removing it; NULL: the queue is empty. */
const struct live_item *live_queue_first(const struct live_queue *queue);
/*
 * Remove the first item; the queue must not be empty. item->event or item->wait then belongs to the
 * caller, who frees it before live_queue_fini (live_queue_release, live_waited_free).
 */
void live_queue_take(struct live_queue *queue, struct live_item *item);
void live_queue_fini(struct live_queue *queue);

#endif

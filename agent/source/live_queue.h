/*
 * agent/source/live_queue.h: puts what comes from many rings into the order of
 * time: a binary heap of events (copied) and of samples (left where they are).
 */
#ifndef AGENT_SOURCE_LIVE_QUEUE_H
#define AGENT_SOURCE_LIVE_QUEUE_H

#include "agent/event.h"

#include "schema/capture.h"

#include <stddef.h>
#include <stdint.h>

struct live_item {
	uint64_t time_ns;
	uint64_t order;	       /* of equal times: events before samples, then as they were pushed */
	struct event *event;   /* with its strings, from malloc; NULL: a sample */
	const uint8_t *record; /* the sample's */
	uint64_t slot;	       /* the caller's number for it */
	struct capture_head
		*wait; /* or a sample of a thread that waited, from malloc; record NULL */
};

struct live_queue { /* all zero: empty */
	struct live_item *items;
	size_t n, room;
	uint64_t n_pushed;
	size_t bytes; /* held by copied events */
};

/* Copies the event and its strings; an image stays the caller's.  -ENOMEM. */
int live_queue_event(struct live_queue *queue, const struct event *event);
int live_queue_sample(struct live_queue *queue, uint64_t time_ns, const uint8_t *record,
		      uint64_t slot);
/* Takes the record over, but on failure. */
int live_queue_wait(struct live_queue *queue, uint64_t time_ns, struct capture_head *record);

const struct live_item *live_queue_first(const struct live_queue *queue); /* NULL: empty */
/* Only where there is a first one; item->event or wait becomes the caller's, to be freed. */
void live_queue_take(struct live_queue *queue, struct live_item *item);
void live_queue_fini(struct live_queue *queue);

#endif

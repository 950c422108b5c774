/*
 * agent/perfdata/record_queue.h: sorts records by time.
 *
 * perf writes one per-CPU buffer after another; each buffer is in order, and a FINISHED_ROUND
 * record follows when all of them were written once. An entry may leave the queue if no older
 * entry can follow it. That is certain for times up to the newest time seen at the end of the
 * round before the last one.
 */
#ifndef AGENT_PERFDATA_RECORD_QUEUE_H
#define AGENT_PERFDATA_RECORD_QUEUE_H

#include "agent/time_heap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Entries of 24 bytes each. Above this number the older half leaves before its order is certain. */
#define PERFDATA_QUEUE_MAX (1u << 20)

struct perfdata_entry {
	uint64_t time_ns; /* these two come first: see agent/time_heap.h */
	uint64_t order;	  /* entries with equal times leave in this order */
	uint64_t where;	  /* not used by the queue */
};

struct perfdata_queue {
	struct time_heap heap; /* of struct perfdata_entry */
	uint64_t newest_ns;    /* newest time of all entries so far */
	uint64_t round_ns;     /* newest_ns at the end of the last round */
	uint64_t may_leave_ns; /* entries up to this time may leave */
};

void perfdata_queue_init(struct perfdata_queue *queue);
void perfdata_queue_fini(struct perfdata_queue *queue);

/* Return the oldest entry without removing it; NULL: the queue is empty. */
static inline const struct perfdata_entry *perfdata_queue_first(const struct perfdata_queue *queue)
{
	return queue->heap.n ? (const struct perfdata_entry *)queue->heap.items : NULL;
}

int perfdata_queue_add(struct perfdata_queue *queue, const struct perfdata_entry *entry);

void perfdata_queue_round(struct perfdata_queue *queue); /* after a FINISHED_ROUND record */
void perfdata_queue_drain(struct perfdata_queue *queue); /* no entry will follow */
/* Let the older half leave, to save memory. */
void perfdata_queue_half(struct perfdata_queue *queue);

/* Take out the oldest entry. Return false if no entry may leave. */
bool perfdata_queue_take(struct perfdata_queue *queue, struct perfdata_entry *out);

#endif

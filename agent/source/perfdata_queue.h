/*
 * agent/source/perfdata_queue.h: puts records in the order of their times.
 *
 * perf writes one buffer after another, each in order in itself, and a
 * FINISHED_ROUND when it has been through all of them.  What is older than
 * the newest time seen by the end of the round before the last one can have
 * no elder still to come, and may leave.
 */
#ifndef AGENT_SOURCE_PERFDATA_QUEUE_H
#define AGENT_SOURCE_PERFDATA_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* At 24 bytes each; beyond it, the elder half leaves before its order is certain. */
#define PERFDATA_QUEUE_MAX (1u << 20)

struct perfdata_entry {
	uint64_t time_ns;
	uint64_t order; /* equal times keep the order they came in */
	uint64_t where; /* the owner's */
};

struct perfdata_queue {
	struct perfdata_entry *heap;
	size_t n, room;
	uint64_t newest_ns;    /* of all that came */
	uint64_t round_ns;     /* newest_ns when the last round ended */
	uint64_t may_leave_ns; /* entries up to here may leave */
};

void perfdata_queue_init(struct perfdata_queue *queue);
void perfdata_queue_fini(struct perfdata_queue *queue);

int perfdata_queue_add(struct perfdata_queue *queue, const struct perfdata_entry *entry);

void perfdata_queue_round(struct perfdata_queue *queue); /* a FINISHED_ROUND came */
void perfdata_queue_drain(struct perfdata_queue *queue); /* nothing more will come */
void perfdata_queue_half(struct perfdata_queue *queue); /* memory is short: let the elder half go */

/* The oldest entry that may leave, or false. */
bool perfdata_queue_take(struct perfdata_queue *queue, struct perfdata_entry *out);

#endif

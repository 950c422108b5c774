/* agent/perfdata/record_queue.c: a heap of records by time, and the time up to which they may leave it. */
#include "agent/perfdata/record_queue.h"

#include <stdlib.h>

void perfdata_queue_init(struct perfdata_queue *queue)
{
	*queue = (struct perfdata_queue){ .newest_ns = 0 };
}

void perfdata_queue_fini(struct perfdata_queue *queue)
{
	free(queue->heap.items);
	perfdata_queue_init(queue);
}

int perfdata_queue_add(struct perfdata_queue *queue, const struct perfdata_entry *entry)
{
	int err = time_heap_push(&queue->heap, entry, sizeof(*entry));

	if (err)
		return err;
	if (entry->time_ns > queue->newest_ns)
		queue->newest_ns = entry->time_ns;
	if (queue->heap.n >= PERFDATA_QUEUE_MAX)
		perfdata_queue_half(queue);
	return 0;
}

void perfdata_queue_round(struct perfdata_queue *queue)
{
	if (queue->round_ns > queue->may_leave_ns)
		queue->may_leave_ns = queue->round_ns;
	queue->round_ns = queue->newest_ns;
}

void perfdata_queue_drain(struct perfdata_queue *queue)
{
	queue->may_leave_ns = UINT64_MAX;
}

/*
 * Let the older half leave. Half is meant in time: the limit is the middle of the queue's time
 * span.
 */
void perfdata_queue_half(struct perfdata_queue *queue)
{
	const struct perfdata_entry *first = perfdata_queue_first(queue);
	uint64_t oldest;

	if (!first)
		return;
	oldest = first->time_ns;
	if (oldest + (queue->newest_ns - oldest) / 2 > queue->may_leave_ns)
		queue->may_leave_ns = oldest + (queue->newest_ns - oldest) / 2;
}

bool perfdata_queue_take(struct perfdata_queue *queue, struct perfdata_entry *out)
{
	const struct perfdata_entry *first = perfdata_queue_first(queue);

	if (!first || first->time_ns > queue->may_leave_ns)
		return false;
	time_heap_pop(&queue->heap, out, sizeof(*out));
	return true;
}

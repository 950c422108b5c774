/* agent/perfdata/queue.c: a binary heap of records, oldest first. */
#include "agent/perfdata/queue.h"

#include <errno.h>
#include <stdlib.h>

void perfdata_queue_init(struct perfdata_queue *queue)
{
	*queue = (struct perfdata_queue){ .heap = NULL };
}

void perfdata_queue_fini(struct perfdata_queue *queue)
{
	free(queue->heap);
	perfdata_queue_init(queue);
}

/* Return whether a leaves the queue before b. */
static bool before(const struct perfdata_entry *a, const struct perfdata_entry *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

int perfdata_queue_add(struct perfdata_queue *queue, const struct perfdata_entry *entry)
{
	size_t i;

	if (queue->n == queue->room) {
		size_t room = queue->room ? queue->room * 2 : 1024;
		struct perfdata_entry *heap = realloc(queue->heap, room * sizeof(*heap));

		if (!heap)
			return -ENOMEM;
		queue->heap = heap;
		queue->room = room;
	}
	for (i = queue->n++; i && before(entry, &queue->heap[(i - 1) / 2]); i = (i - 1) / 2)
		queue->heap[i] = queue->heap[(i - 1) / 2];
	queue->heap[i] = *entry;
	if (entry->time_ns > queue->newest_ns)
		queue->newest_ns = entry->time_ns;
	if (queue->n >= PERFDATA_QUEUE_MAX)
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
	uint64_t oldest;

	if (!queue->n)
		return;
	oldest = queue->heap[0].time_ns;
	if (oldest + (queue->newest_ns - oldest) / 2 > queue->may_leave_ns)
		queue->may_leave_ns = oldest + (queue->newest_ns - oldest) / 2;
}

bool perfdata_queue_take(struct perfdata_queue *queue, struct perfdata_entry *out)
{
	struct perfdata_entry last;
	size_t i = 0, child;

	if (!queue->n || queue->heap[0].time_ns > queue->may_leave_ns)
		return false;
	*out = queue->heap[0];
	last = queue->heap[--queue->n];
	while ((child = 2 * i + 1) < queue->n) {
		if (child + 1 < queue->n && before(&queue->heap[child + 1], &queue->heap[child]))
			child++;
		if (!before(&queue->heap[child], &last))
			break;
		queue->heap[i] = queue->heap[child];
		i = child;
	}
	queue->heap[i] = last;
	return true;
}

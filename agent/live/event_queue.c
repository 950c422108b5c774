/* agent/live/event_queue.c: a heap of events and samples by time; copies events with their strings. */
#include "agent/live/event_queue.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_ORDER (1ull << 63)
#define EVENT_BYTES  256u  /* nearly all events have room in so many */
#define N_EVENTS     4096u /* more than a build puts into the queue at a time */

struct live_spare { /* of the block; not in use */
	struct live_spare *next;
	char rest[EVENT_BYTES - sizeof(struct live_spare *)];
};

/*
 * Add an item. Its order becomes unique, by the number of items added before. An item that has no room is not
 * counted for its process, either: so make room first.
 */
static int push(struct live_queue *queue, struct live_item item)
{
	int err = time_heap_reserve(&queue->heap, sizeof(item));

	if (!err)
		err = live_short_lived_put(&queue->short_lived, item.pid, item.event);
	if (err)
		return err;
	item.order |= queue->n_pushed++;
	return time_heap_push(&queue->heap, &item, sizeof(item));
}

/* Return the event's string, which must be copied with it; NULL: it has none. */
static const char *text_of(const struct event *event)
{
	if (event->type == EVENT_MAPPING)
		return event->mapping.path;
	if (event->type == EVENT_CGROUP)
		return event->cgroup.path;
	return event->type == EVENT_COMM ? event->comm.comm : NULL;
}

/* Return the bytes that a copy of the event takes, with its string and its item. */
static size_t size_of(const struct event *event)
{
	const char *text = text_of(event);

	return sizeof(struct live_item) + event_size(event) + (text ? strlen(text) + 1 : 0);
}

/*
 * Allocate the block of memory for events, and room for their items. All of it is written to, so that it does not become
 * resident with each burst that is larger than those before. Without memory for it, the queue does without.
 */
static void make_block(struct live_queue *queue)
{
	struct time_heap *heap = &queue->heap;

	queue->block = malloc(N_EVENTS * sizeof(*queue->block));
	for (size_t i = N_EVENTS; queue->block && i--;) {
		queue->block[i].next = queue->spare;
		queue->spare = &queue->block[i];
	}
	if (heap->room < N_EVENTS && !uw_array_reserve(&heap->items, N_EVENTS, &heap->room,
						       sizeof(struct live_item), SIZE_MAX))
		memset((struct live_item *)heap->items + heap->n, 0,
		       (heap->room - heap->n) * sizeof(struct live_item));
}

/*
 * Allocate memory for an event. There are thousands a second, and those of 0.2 s are in use at the same time: malloc would
 * cost more than all else that the queue does.
 */
static void *allocate(struct live_queue *queue, size_t size)
{
	struct live_spare *spare;

	if (!queue->block)
		make_block(queue);
	spare = queue->spare;
	if (size > EVENT_BYTES || !spare)
		return malloc(size);
	queue->spare = spare->next;
	return spare;
}

void live_queue_release(struct live_queue *queue, struct event *event)
{
	struct live_spare *spare = (void *)event;

	/* Numbers: pointers into different memory cannot be compared. */
	if (!queue->block ||
	    (uintptr_t)event - (uintptr_t)queue->block >= N_EVENTS * sizeof(*queue->block)) {
		free(event);
		return;
	}
	spare->next = queue->spare;
	queue->spare = spare;
}

/* Allocate the event and its string together, so that both are released together. */
int live_queue_event(struct live_queue *queue, const struct event *event)
{
	struct event *copy = allocate(queue, size_of(event) - sizeof(struct live_item));
	int err;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, event, event_size(event));
	if (text_of(event)) {
		char *text = (char *)copy + event_size(event);

		strcpy(text, text_of(event));
		if (event->type == EVENT_MAPPING)
			copy->mapping.path = text;
		else if (event->type == EVENT_CGROUP)
			copy->cgroup.path = text;
		else
			copy->comm.comm = text;
	}
	err = push(queue, (struct live_item){
				  .time_ns = event->time_ns, .event = copy, .pid = event->pid });
	if (err) {
		live_queue_release(queue, copy);
		return err;
	}
	queue->bytes += size_of(copy);
	queue->newest = copy;
	return 0;
}

void live_queue_read(const struct event *queued, struct event *out)
{
	memcpy(out, queued, event_size(queued));
}

/* Return the item of a sample, without what tells where its record is. */
static struct live_item item_of(const struct capture_head *head, uint64_t time_ns)
{
	return (struct live_item){ .time_ns = time_ns,
				   .order = SAMPLE_ORDER,
				   .pid = head->pid,
				   .stack_bytes = head->stack_len + head->interrupted_len,
				   .cpu = head->cpu,
				   .is_alloc = head->flags & CAPTURE_ALLOC };
}

int live_queue_sample(struct live_queue *queue, const struct capture_head *record, uint64_t slot)
{
	struct live_item item = item_of(record, record->time_ns);

	item.record = (const void *)record;
	item.slot = slot;
	return push(queue, item);
}

int live_queue_wait(struct live_queue *queue, uint64_t time_ns, struct live_waited *wait)
{
	struct live_item item = item_of(&wait->head, time_ns);

	item.wait = wait;
	return push(queue, item);
}

void live_queue_settle(struct live_queue *queue, uint64_t time_ns)
{
	live_short_lived_settle(&queue->short_lived, time_ns);
}

const struct live_item *live_queue_first(const struct live_queue *queue)
{
	return queue->heap.n ? queue->heap.items : NULL;
}

void live_queue_take(struct live_queue *queue, struct live_item *item)
{
	assert(queue->heap.n);
	time_heap_pop(&queue->heap, item, sizeof(*item));
	item->unneeded = live_short_lived_take(&queue->short_lived, item->pid, item->event);
	if (item->event)
		queue->bytes -= size_of(item->event);
}

void live_queue_fini(struct live_queue *queue)
{
	const struct live_item *items = queue->heap.items;

	for (size_t i = 0; i < queue->heap.n; i++) {
		live_queue_release(queue, items[i].event);
		live_waited_free(items[i].wait);
	}
	free(queue->block);
	free(queue->heap.items);
	live_short_lived_fini(&queue->short_lived);
	*queue = (struct live_queue){ 0 };
}

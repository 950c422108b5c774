/* agent/live/queue.c: a binary heap of events and samples, by time. */
#include "agent/live/queue.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_ORDER (1ull << 63)

/* Return whether a is delivered before b. */
static bool before(const struct live_item *a, const struct live_item *b)
{
	return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->order < b->order;
}

/* Add an item. Its order becomes unique, by the number of items added before. */
static int push(struct live_queue *queue, struct live_item item)
{
	size_t at;

	if (queue->n == queue->room) {
		size_t room = queue->room ? queue->room * 2 : 256;
		struct live_item *bigger = reallocarray(queue->items, room, sizeof(*bigger));

		if (!bigger)
			return -ENOMEM;
		queue->items = bigger;
		queue->room = room;
	}
	item.order |= queue->n_pushed++;
	for (at = queue->n++; at; at = (at - 1) / 2) {
		if (!before(&item, &queue->items[(at - 1) / 2]))
			break;
		queue->items[at] = queue->items[(at - 1) / 2];
	}
	queue->items[at] = item;
	return 0;
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

/* Return the bytes that a copy of the event takes, with its string. */
static size_t size_of(const struct event *event)
{
	const char *text = text_of(event);

	return sizeof(*event) + (text ? strlen(text) + 1 : 0);
}

int live_queue_event(struct live_queue *queue, const struct event *event)
{
	struct event *copy = malloc(size_of(event));
	int err;

	if (!copy)
		return -ENOMEM;
	*copy = *event;
	if (text_of(event)) {
		char *text = (char *)(copy + 1);

		strcpy(text, text_of(event));
		if (event->type == EVENT_MAPPING)
			copy->mapping.path = text;
		else if (event->type == EVENT_CGROUP)
			copy->cgroup.path = text;
		else
			copy->comm.comm = text;
	}
	err = push(queue, (struct live_item){ .time_ns = event->time_ns, .event = copy });
	if (err)
		free(copy);
	else
		queue->bytes += size_of(copy);
	return err;
}

int live_queue_sample(struct live_queue *queue, uint64_t time_ns, const uint8_t *record,
		      uint64_t slot)
{
	return push(queue, (struct live_item){ .time_ns = time_ns,
					       .order = SAMPLE_ORDER,
					       .record = record,
					       .slot = slot });
}

int live_queue_wait(struct live_queue *queue, uint64_t time_ns, struct capture_head *record)
{
	return push(queue, (struct live_item){
				   .time_ns = time_ns, .order = SAMPLE_ORDER, .wait = record });
}

const struct live_item *live_queue_first(const struct live_queue *queue)
{
	return queue->n ? &queue->items[0] : NULL;
}

void live_queue_take(struct live_queue *queue, struct live_item *item)
{
	struct live_item last;
	size_t at = 0;

	assert(queue->n);
	*item = queue->items[0];
	if (item->event)
		queue->bytes -= size_of(item->event);
	last = queue->items[--queue->n];
	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= queue->n)
			break;
		if (child + 1 < queue->n && before(&queue->items[child + 1], &queue->items[child]))
			child++;
		if (!before(&queue->items[child], &last))
			break;
		queue->items[at] = queue->items[child];
		at = child;
	}
	if (queue->n)
		queue->items[at] = last;
}

void live_queue_fini(struct live_queue *queue)
{
	for (size_t i = 0; i < queue->n; i++) {
		free(queue->items[i].event);
		free(queue->items[i].wait);
	}
	free(queue->items);
	*queue = (struct live_queue){ 0 };
}

/*
 * agent/time_heap.h: a binary heap of elements by time, for sources that get events out of order.
 *
 * An element begins with two uint64_t: its time, and a number by which elements of equal times are
 * ordered. All elements of a heap have the same size. The functions are inline, so that the
 * compiler knows the size: the heaps hold each sample of a recording for a while.
 */
#ifndef AGENT_TIME_HEAP_H
#define AGENT_TIME_HEAP_H

#include "agent/array.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct time_heap {   /* all zero: empty */
	void *items; /* the first is the earliest; the caller frees them */
	size_t n, room;
};

/* Return element i of a heap with elements of size bytes. */
static inline uint8_t *time_heap_at(const struct time_heap *heap, size_t i, size_t size)
{
	return (uint8_t *)heap->items + i * size;
}

/* Return whether element a leaves the heap before element b. */
static inline bool time_heap_before(const void *a, const void *b)
{
	uint64_t x[2], y[2];

	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	return x[0] != y[0] ? x[0] < y[0] : x[1] < y[1];
}

/* Make room for one more element: the next time_heap_push cannot fail. -ENOMEM. */
static inline int time_heap_reserve(struct time_heap *heap, size_t size)
{
	if (heap->n == heap->room &&
	    uw_array_reserve(&heap->items, heap->n + 1, &heap->room, size, SIZE_MAX))
		return -ENOMEM;
	return 0;
}

/* Add a copy of an element. -ENOMEM. */
static inline int time_heap_push(struct time_heap *heap, const void *item, size_t size)
{
	size_t i;

	if (time_heap_reserve(heap, size))
		return -ENOMEM;
	for (i = heap->n++; i; i = (i - 1) / 2) {
		const uint8_t *parent = time_heap_at(heap, (i - 1) / 2, size);

		if (!time_heap_before(item, parent))
			break;
		memcpy(time_heap_at(heap, i, size), parent, size);
	}
	memcpy(time_heap_at(heap, i, size), item, size);
	return 0;
}

/* Move the earliest element to *item. The heap must not be empty. */
static inline void time_heap_pop(struct time_heap *heap, void *item, size_t size)
{
	size_t last = --heap->n, i = 0, child;

	memcpy(item, heap->items, size);
	/* Find the place of the last element from the top on; its own place becomes free. */
	for (; (child = 2 * i + 1) < last; i = child) {
		if (child + 1 < last && time_heap_before(time_heap_at(heap, child + 1, size),
							 time_heap_at(heap, child, size)))
			child++;
		if (!time_heap_before(time_heap_at(heap, child, size),
				      time_heap_at(heap, last, size)))
			break;
		memcpy(time_heap_at(heap, i, size), time_heap_at(heap, child, size), size);
	}
	if (i != last)
		memcpy(time_heap_at(heap, i, size), time_heap_at(heap, last, size), size);
}

#endif

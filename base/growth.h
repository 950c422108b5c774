/* base/growth.h: arrays that grow by doubling, up to a limit. */
#ifndef BASE_GROWTH_H
#define BASE_GROWTH_H

#include <stddef.h>

/*
 * Give the array at `array`, which has space for *room elements of size bytes, space for need
 * elements. The array may move. -E2BIG: more than max elements; -ENOMEM; the array and *room are
 * then unchanged.
 */
int uw_array_enlarge(void *array, size_t need, size_t *room, size_t size, size_t max);

static inline int uw_array_reserve(void *array, size_t need, size_t *room, size_t size, size_t max)
{
	return need <= *room ? 0 : uw_array_enlarge(array, need, room, size, max);
}

/* array and room are variables; room is a size_t. The caller frees the array. */
#define UW_ARRAY_RESERVE(array, need, room, max) \
	uw_array_reserve(&(array), (need), &(room), sizeof(*(array)), (max))
/* Make space for one more than n elements. */
#define UW_ARRAY_GROW(array, n, room, max) UW_ARRAY_RESERVE(array, (size_t)(n) + 1, room, max)

#endif

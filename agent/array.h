/* agent/array.h: arrays that grow by doubling, as those of base/growth.h, without a limit. */
#ifndef AGENT_ARRAY_H
#define AGENT_ARRAY_H

#include "base/growth.h"

#include <stdint.h>

/*
 * array_grow ensures that array, which holds n elements and has space for room of them, has space
 * for one more; array_reserve ensures that it has space for need elements in all. array and room
 * (a size_t) are variables that these change; the array may move. Both return 0, or -ENOMEM with
 * array and room unchanged. The caller frees the array.
 */
#define array_grow(array, n, room)	 UW_ARRAY_GROW(array, n, room, SIZE_MAX)
#define array_reserve(array, need, room) UW_ARRAY_RESERVE(array, need, room, SIZE_MAX)

#endif

/*
 * agent/array.h: arrays that grow by doubling.
 */
#ifndef AGENT_ARRAY_H
#define AGENT_ARRAY_H

#include <stddef.h>

/*
 * array_grow ensures that array, which holds n elements and has space for room of them, has space
 * for one more; array_reserve ensures that it has space for need elements in all. array and room
 * (a size_t) are variables that these change; the array may move. Space for 64 elements is allocated
 * first, and then doubled. Both return 0, or -ENOMEM with array and room unchanged. The caller frees
 * the array.
 */
#define array_grow(array, n, room)	 array_reserve(array, (size_t)(n) + 1, room)
#define array_reserve(array, need, room) array_make(&(array), need, &(room), sizeof(*(array)))

/* Do it for the pointer at array, whatever its type, and elements of size bytes. */
int array_make(void *array, size_t need, size_t *room, size_t size);

#endif

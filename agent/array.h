/*
 * agent/array.h: arrays that grow by doubling.
 */
#ifndef AGENT_ARRAY_H
#define AGENT_ARRAY_H

#include <stddef.h>

/*
 * Ensure that *array, which holds n elements of size bytes and has space for *room of them, has
 * space for one more. The array may move. Room for 64 elements is allocated first, and then
 * doubled. Return 0, or -ENOMEM with *array and *room unchanged. The caller frees *array.
 */
int array_make_room(void **array, size_t n, size_t *room, size_t size);

#endif

/*
 * agent/array.h: arrays that grow by doubling.
 */
#ifndef AGENT_ARRAY_H
#define AGENT_ARRAY_H

#include <stddef.h>

/*
 * Makes room for one more element of size bytes behind the n that *array holds; it may move.
 * -ENOMEM: *array and *room are as they were.
 */
int array_make_room(void **array, size_t n, size_t *room, size_t size);

#endif

/* agent/array.c: growth of arrays, with the size's overflow checked by reallocarray. */
#include "agent/array.h"

#include <errno.h>
#include <stdlib.h>

int array_make_room(void **array, size_t n, size_t *room, size_t size)
{
	size_t bigger = *room ? *room * 2 : 64;
	void *moved;

	if (n < *room)
		return 0;
	moved = reallocarray(*array, bigger, size);
	if (!moved)
		return -ENOMEM;
	*array = moved;
	*room = bigger;
	return 0;
}

/* agent/array.c: growth of arrays, with the size's overflow checked by reallocarray. */
#include "agent/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int array_make(void *array, size_t need, size_t *room, size_t size)
{
	size_t bigger = *room ? *room : 64;
	void *moved;

	if (need <= *room)
		return 0;
	while (bigger < need) {
		if (bigger > SIZE_MAX / 2)
			return -ENOMEM;
		bigger *= 2;
	}
	/* The caller's pointer is of another type than void *, so copy its bytes. */
	memcpy(&moved, array, sizeof(moved));
	moved = reallocarray(moved, bigger, size);
	if (!moved)
		return -ENOMEM;
	memcpy(array, &moved, sizeof(moved));
	*room = bigger;
	return 0;
}

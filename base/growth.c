/* base/growth.c: enlarges arrays. */
#include "base/growth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEAST 64 /* elements */

int uw_array_enlarge(void *array, size_t need, size_t *room, size_t size, size_t max)
{
	size_t bigger = *room > max / 2 ? max : *room * 2;
	void *moved;

	if (need > max)
		return -E2BIG;
	if (bigger < need)
		bigger = need;
	if (bigger < LEAST && LEAST <= max)
		bigger = LEAST;
	/* The caller's pointer is of another type than void *, so copy its bytes. */
	memcpy(&moved, array, sizeof(moved));
	moved = reallocarray(moved, bigger, size);
	if (!moved)
		return -ENOMEM;
	memcpy(array, &moved, sizeof(moved));
	*room = bigger;
	return 0;
}

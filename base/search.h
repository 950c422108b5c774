/* base/search.h: binary search in arrays that ascend by a 64-bit field. */
#ifndef BASE_SEARCH_H
#define BASE_SEARCH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Return how many of n elements have a field of at most value, which is the index of the first
 * element above it. The elements are `size` bytes large, and the field is at offset `field`.
 */
static inline size_t uw_count_upto(const void *array, size_t size, size_t field, size_t n,
				   uint64_t value)
{
	size_t low = 0, high = n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		uint64_t here;

		memcpy(&here, (const char *)array + middle * size + field, sizeof(here));
		if (here <= value)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Return how many elements have a field below value. */
static inline size_t uw_count_below(const void *array, size_t size, size_t field, size_t n,
				    uint64_t value)
{
	return value ? uw_count_upto(array, size, field, n, value - 1) : 0;
}

/* The offset of a field of 64 bits; other fields do not compile. */
#define UW_OFFSET_64(array, field)                                           \
	_Generic((array)->field, unsigned long                               \
		 : offsetof(__typeof__(*(array)), field), unsigned long long \
		 : offsetof(__typeof__(*(array)), field))

/* Do the same for an array of structs, by the name of the field. */
#define UW_COUNT_UPTO(array, n, field, value) \
	uw_count_upto((array), sizeof(*(array)), UW_OFFSET_64(array, field), (n), (value))
#define UW_COUNT_BELOW(array, n, field, value) \
	uw_count_below((array), sizeof(*(array)), UW_OFFSET_64(array, field), (n), (value))

#endif

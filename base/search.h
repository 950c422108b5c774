/* base/search.h: binary search in arrays of any kind. */
#ifndef BASE_SEARCH_H
#define BASE_SEARCH_H

#include <stddef.h>

/*
 * Return how many of the indices i from 0 to n - 1 fulfil the condition, an expression of i. The
 * condition must hold for all indices before some index and for none from there on, so the result is
 * the index of the first element that does not fulfil it. Other names than i are those of the caller.
 */
#define UW_COUNT_WHILE(i, n, condition)                             \
	__extension__({                                             \
		size_t low_ = 0, high_ = (n);                       \
                                                                    \
		while (low_ < high_) {                              \
			const size_t i = low_ + (high_ - low_) / 2; \
                                                                    \
			if (condition)                              \
				low_ = i + 1;                       \
			else                                        \
				high_ = i;                          \
		}                                                   \
		low_;                                               \
	})

#endif

/* base/search.h: the order of sorted arrays of any kind, and binary search in them. */
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

/* Define a comparison for qsort(3): ascending by a field, which is a number. */
#define UW_ORDER(name, type, field) UW_ORDER_2(name, type, field, field)
/* The same, with elements of equal first fields ascending by the second. */
#define UW_ORDER_2(name, type, first, second)                             \
	static int name(const void *a, const void *b)                     \
	{                                                                 \
		const type *x = a, *y = b;                                \
                                                                          \
		if (x->first != y->first)                                 \
			return x->first < y->first ? -1 : 1;              \
		return (x->second > y->second) - (x->second < y->second); \
	}

#endif

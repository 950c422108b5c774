/* symbolizer/prefer.h: which of two names for one address people mean. */
#ifndef SYMBOLIZER_PREFER_H
#define SYMBOLIZER_PREFER_H

#include <stddef.h>

/* < 0: a is the better name; 0: they are equal.  Fewer leading underscores, shorter, then by bytes. */
int sym_prefer(const char *a, size_t n_a, const char *b, size_t n_b);

#endif

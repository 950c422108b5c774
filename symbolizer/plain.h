/* symbolizer/plain.h: which bytes need no cleaning. */
#ifndef SYMBOLIZER_PLAIN_H
#define SYMBOLIZER_PLAIN_H

#include <stddef.h>

/* How many bytes from the first on are printable ASCII or `also`; may tell up to 255 too few. */
size_t sym_plain_size(const char *bytes, size_t size, char also);

#endif

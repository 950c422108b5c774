/* symbolizer/text/plain.h: finds bytes that need no sanitising. */
#ifndef SYMBOLIZER_TEXT_PLAIN_H
#define SYMBOLIZER_TEXT_PLAIN_H

#include <stddef.h>

/*
 * Return how many bytes from the first on are printable ASCII or `also`. The result may be up to
 * 255 too small.
 */
size_t sym_plain_size(const char *bytes, size_t size, char also);

#endif

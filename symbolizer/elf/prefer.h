/* symbolizer/elf/prefer.h: chooses between two names of one address. */
#ifndef SYMBOLIZER_ELF_PREFER_H
#define SYMBOLIZER_ELF_PREFER_H

#include <stddef.h>

/*
 * Compare two names: fewer leading underscores, then shorter, then by bytes. Return < 0 if a is the
 * better name, 0 if they are equal.
 */
int sym_prefer(const char *a, size_t n_a, const char *b, size_t n_b);

#endif

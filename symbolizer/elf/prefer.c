/* symbolizer/elf/prefer.c: the order of names for one address. */
#include "symbolizer/elf/prefer.h"

#include <string.h>

#define UNDERSCORES_MAX 16 /* more are not counted, in case a hostile name has nothing else */

static size_t underscores(const char *name, size_t n)
{
	size_t i = 0;

	while (i < n && i < UNDERSCORES_MAX && name[i] == '_')
		i++;
	return i;
}

int sym_prefer(const char *a, size_t n_a, const char *b, size_t n_b)
{
	size_t under_a = underscores(a, n_a), under_b = underscores(b, n_b);

	if (under_a != under_b)
		return under_a < under_b ? -1 : 1;
	if (n_a != n_b)
		return n_a < n_b ? -1 : 1;
	return memcmp(a, b, n_a);
}

/*
 * symbolizer/lines.h: what readers of debug information put into flat arrays.
 *
 * Pieces that came out of a store are followed by those read since; a look-up is
 * a binary search in each.
 */
#ifndef SYMBOLIZER_LINES_H
#define SYMBOLIZER_LINES_H

#include "schema/lines.h"
#include "symbolizer/symbolizer.h"

#include <stdbool.h>

/* Where text stands among the fresh names, sanitised; the same text, the same place.  -E2BIG. */
int sym_lines_intern(struct sym_lines *lines, const char *text, size_t n, uint32_t *out);

/* The stretch around vaddr of which nothing is known so far; -EEXIST: something is. */
int sym_lines_gap(const struct sym_lines *lines, uint64_t vaddr, uint64_t *low, uint64_t *high);

/*
 * Adds a piece inside such a gap, which is not found before sym_lines_settle; row is NULL where no line
 * is told.  All is copied, and names are interned ones.  lasting: false keeps it out of what is packed.
 * -E2BIG: there is no more room for any.
 */
int sym_lines_put(struct sym_lines *lines, uint64_t low, uint64_t high, const struct lines_row *row,
		  const struct lines_scope *scopes, size_t n_scopes, bool lasting);
void sym_lines_settle(struct sym_lines *lines);

#endif

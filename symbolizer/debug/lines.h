/*
 * symbolizer/debug/lines.h: the flat arrays that readers of debug information fill.
 *
 * Pieces from the store and pieces read since then are in separate arrays; a lookup is a binary
 * search in each.
 */
#ifndef SYMBOLIZER_DEBUG_LINES_H
#define SYMBOLIZER_DEBUG_LINES_H

#include "schema/lines_blob.h"
#include "symbolizer/symbolizer.h"

#include <stdbool.h>

/*
 * Return the offset of a sanitised copy of text. Equal texts have the same offset. -E2BIG, -ENOMEM.
 */
int sym_lines_intern(struct sym_lines *lines, const char *text, size_t n, uint32_t *out);

/* Return the range around vaddr about which nothing is known yet. -EEXIST: something is known. */
int sym_lines_gap(const struct sym_lines *lines, uint64_t vaddr, uint64_t *low, uint64_t *high);

/*
 * Add a piece inside such a range. It is not found before sym_lines_settle. row is NULL if no line
 * is known. Everything is copied; names are offsets from sym_lines_intern. lasting false: do not
 * store the piece when packing. -E2BIG: there is no more room.
 */
int sym_lines_put(struct sym_lines *lines, uint64_t low, uint64_t high, const struct lines_row *row,
		  const struct lines_scope *scopes, size_t n_scopes, bool lasting);
/* Make all pieces that were added findable. */
void sym_lines_settle(struct sym_lines *lines);

#endif

/* unwinder/cfi/expr_text.h: writes DWARF expressions as text in readelf's format. */
#ifndef UNWINDER_CFI_EXPR_TEXT_H
#define UNWINDER_CFI_EXPR_TEXT_H

#include <stddef.h>
#include <stdint.h>

/*
 * Write the expression as text, as much as fits into size bytes with the NUL. The text ends at
 * the first operator that cannot be decoded, and says so.
 */
void uw_expr_text(uint16_t machine, const uint8_t *expr, size_t length, char *out, size_t size);

#endif

/* unwinder/expr_text.h: DWARF expressions in words, as readelf writes them. */
#ifndef UNWINDER_EXPR_TEXT_H
#define UNWINDER_EXPR_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* As much as fits into size bytes, NUL included; what cannot be decoded ends it, and is told. */
void uw_expr_text(uint16_t machine, const uint8_t *expr, size_t length, char *out, size_t size);

#endif

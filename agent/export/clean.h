/*
 * agent/export/clean.h: any bytes as a field of a line.
 */
#ifndef AGENT_EXPORT_CLEAN_H
#define AGENT_EXPORT_CLEAN_H

#include <stddef.h>

enum { CLEAN_MAX = 64 * 1024 + 64 }; /* holds the longest name there is, with a suffix */

/*
 * Copies text (NULL: "") for a terminal or a line-based format: invalid UTF-8
 * becomes U+FFFD, a control character or one of `also` becomes `instead`.  At most
 * size - 1 bytes, cut at a character, always NUL-terminated; gives their number.
 */
size_t clean_text(const char *text, const char *also, char instead, char *out, size_t size);

#endif

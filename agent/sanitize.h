/* agent/sanitize.h: sanitizes any bytes for one field of a line. */
#ifndef AGENT_SANITIZE_H
#define AGENT_SANITIZE_H

#include <stddef.h>

enum { SANITIZED_MAX = 64 * 1024 + 64 }; /* holds the longest name, with a suffix */

/*
 * Copy text (NULL: "") for a terminal or a line-based format. Invalid UTF-8 becomes U+FFFD; control
 * characters, characters that break lines or reorder text, and the characters in `also` become
 * `instead`. At most size - 1 bytes are written, cut between characters, and a NUL. Return the
 * number of bytes without the NUL.
 */
size_t sanitize_text(const char *text, const char *also, char instead, char *out, size_t size);

#endif

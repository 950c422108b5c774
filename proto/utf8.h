/*
 * proto/utf8.h: checks and repairs UTF-8. A protobuf `string` must be valid UTF-8, but names from
 * files and processes can hold any bytes.
 */
#ifndef PROTO_UTF8_H
#define PROTO_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool utf8_valid(const char *bytes, size_t size);

/* Return the number of bytes that utf8_repair() may write for size bytes, including the NUL. */
size_t utf8_repaired_size(size_t size);
/*
 * Copy the text and replace what is no valid character by U+FFFD (see uw_text_decode). Control
 * characters stay. The result ends with a NUL. Return its length.
 */
size_t utf8_repair(const char *bytes, size_t size, char *out);

#endif

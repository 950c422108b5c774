/*
 * proto/utf8.h: protobuf's `string` is valid UTF-8 (Unicode 15 §3.9, table 3-7);
 * names from files and processes are any bytes.
 */
#ifndef PROTO_UTF8_H
#define PROTO_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character that bytes begin with, 1 to 4; 0: none that is valid.  size ≥ 1. */
size_t utf8_length(const char *bytes, size_t size);
bool utf8_valid(const char *bytes, size_t size);

/* Room that utf8_repair needs for size bytes, with the NUL. */
size_t utf8_repaired_size(size_t size);
/* Copies, each byte that belongs to no character as U+FFFD; NUL-terminates; gives the length. */
size_t utf8_repair(const char *bytes, size_t size, char *out);

#endif

/* agent/textbuf.h: puts text together in buffers of a fixed size. */
#ifndef AGENT_TEXTBUF_H
#define AGENT_TEXTBUF_H

#include "unwinder/unwinder.h"

#include <stddef.h>

/* Append formatted text to the text in a buffer of size bytes. What does not fit is cut. */
void textbuf_add(char *text, size_t size, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Write a build-id as hexadecimal digits; nothing if it is empty. Return out. */
char *textbuf_build_id(const struct uw_build_id *id, char out[2 * UW_BUILD_ID_MAX + 1]);

#endif

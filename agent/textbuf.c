/* agent/textbuf.c: puts text together in buffers of a fixed size. */
#include "agent/textbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void textbuf_add(char *text, size_t size, const char *format, ...)
{
	size_t used = strlen(text);
	va_list args;

	va_start(args, format);
	(void)vsnprintf(text + used, size - used, format, args);
	va_end(args);
}

char *textbuf_build_id(const struct uw_build_id *id, char out[2 * UW_BUILD_ID_MAX + 1])
{
	static const char digits[] = "0123456789abcdef";
	char *to = out;

	for (size_t i = 0; i < id->size && i < UW_BUILD_ID_MAX; i++) {
		*to++ = digits[id->bytes[i] >> 4];
		*to++ = digits[id->bytes[i] & 15];
	}
	*to = '\0';
	return out;
}

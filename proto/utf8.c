/* proto/utf8.c: checks and repairs UTF-8. */
#include "proto/utf8.h"

#include "base/text.h"

#include <string.h>

bool utf8_valid(const char *bytes, size_t size)
{
	uint32_t code;

	for (size_t at = uw_text_plain_size(bytes, size, ' '); at < size;) {
		at += uw_text_decode(bytes + at, size - at, &code);
		if (code == UW_TEXT_BAD)
			return false;
	}
	return true;
}

size_t utf8_repaired_size(size_t size)
{
	return size * strlen(UW_TEXT_REPLACEMENT) + 1;
}

size_t utf8_repair(const char *bytes, size_t size, char *out)
{
	size_t used = 0;
	uint32_t code;

	for (size_t at = 0; at < size;) {
		size_t n = uw_text_decode(bytes + at, size - at, &code);
		size_t put = code == UW_TEXT_BAD ? strlen(UW_TEXT_REPLACEMENT) : n;

		memcpy(out + used, code == UW_TEXT_BAD ? UW_TEXT_REPLACEMENT : bytes + at, put);
		used += put;
		at += n;
	}
	out[used] = '\0';
	return used;
}

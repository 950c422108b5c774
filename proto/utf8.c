/* proto/utf8.c: checks and repairs UTF-8. */
#include "proto/utf8.h"

#include <stdint.h>
#include <string.h>

size_t utf8_length(const char *bytes, size_t size)
{
	const uint8_t *b = (const uint8_t *)bytes;
	uint8_t low = 0x80, high = 0xbf; /* range of the second byte */
	size_t n;

	if (b[0] < 0x80)
		return 1;
	if (b[0] < 0xc2 || b[0] > 0xf4)
		return 0;
	n = b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
	if (n > size)
		return 0;
	if (b[0] == 0xe0)
		low = 0xa0; /* no overlong forms */
	else if (b[0] == 0xed)
		high = 0x9f; /* no surrogates */
	else if (b[0] == 0xf0)
		low = 0x90;
	else if (b[0] == 0xf4)
		high = 0x8f; /* nothing above U+10FFFF */
	if (b[1] < low || b[1] > high)
		return 0;
	for (size_t i = 2; i < n; i++)
		if ((b[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/*
 * Return the length of the ASCII text at the start of bytes. The result can be up to 7 too small.
 */
static size_t ascii_size(const char *bytes, size_t size)
{
	size_t at = 0;
	uint64_t eight;

	for (; size - at >= sizeof(eight); at += sizeof(eight)) {
		memcpy(&eight, bytes + at, sizeof(eight));
		if (eight & UINT64_C(0x8080808080808080))
			break;
	}
	return at;
}

bool utf8_valid(const char *bytes, size_t size)
{
	for (size_t n, at = ascii_size(bytes, size); at < size; at += n) {
		n = utf8_length(bytes + at, size - at);
		if (!n)
			return false;
	}
	return true;
}

size_t utf8_repaired_size(size_t size)
{
	return size * 3 + 1; /* U+FFFD has three bytes */
}

size_t utf8_repair(const char *bytes, size_t size, char *out)
{
	size_t used = 0;

	for (size_t at = 0; at < size;) {
		size_t n = utf8_length(bytes + at, size - at);

		memcpy(out + used, n ? bytes + at : "\xef\xbf\xbd", n ? n : 3);
		used += n ? n : 3;
		at += n ? n : 1;
	}
	out[used] = '\0';
	return used;
}

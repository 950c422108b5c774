/* base/text.c: decodes UTF-8, and scans for bytes that are not printable ASCII. */
#include "base/text.h"

#include <string.h>

#define PIECE 256

size_t uw_text_decode(const char *bytes, size_t size, uint32_t *code)
{
	const uint8_t *p = (const uint8_t *)bytes;
	uint8_t low = 0x80, high = 0xbf; /* range of the second byte */
	uint32_t value;
	size_t need;

	*code = UW_TEXT_BAD;
	if (p[0] < 0x80) {
		*code = p[0];
		return 1;
	}
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 1;
	need = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	if (p[0] == 0xe0)
		low = 0xa0; /* no overlong forms */
	else if (p[0] == 0xed)
		high = 0x9f; /* no surrogates */
	else if (p[0] == 0xf0)
		low = 0x90; /* no overlong forms */
	else if (p[0] == 0xf4)
		high = 0x8f; /* nothing above U+10FFFF */
	value = p[0] & (0x7fu >> need);
	for (size_t i = 1; i < need; i++) {
		if (i == size || p[i] < low || p[i] > high)
			return i;
		value = value << 6 | (p[i] & 0x3f);
		low = 0x80;
		high = 0xbf;
	}
	*code = value;
	return need;
}

bool uw_text_is_shown(uint32_t c)
{
	return c != UW_TEXT_BAD && c >= 0x20 && !(c >= 0x7f && c < 0xa0) && c != 0x2028 &&
	       c != 0x2029 && c != 0x061c && c != 0x200e && c != 0x200f &&
	       !(c >= 0x202a && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069);
}

/* 16 bytes at a time, on any machine with such vectors. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));

/* Return a mask of the bytes that are neither printable ASCII nor also. */
static bytes16 odd_bytes(bytes16 v, uint8_t also)
{
	return (bytes16)(v > 0x7e) | ((bytes16)(v < 0x20) & (bytes16)(v != also));
}

static bool has_bits(bytes16 v)
{
	uint64_t half[2];

	memcpy(half, &v, sizeof(half));
	return half[0] | half[1];
}

/* Look at PIECE bytes with one branch, then at 16, then at single bytes. */
size_t uw_text_plain_size(const char *bytes, size_t size, char also)
{
	size_t at = 0;

	for (; size - at >= PIECE; at += PIECE) {
		bytes16 odd = { 0 }, v;

		for (size_t i = 0; i < PIECE; i += sizeof(v)) {
			memcpy(&v, bytes + at + i, sizeof(v));
			odd |= odd_bytes(v, (uint8_t)also);
		}
		if (has_bits(odd))
			break;
	}
	for (; size - at >= sizeof(bytes16); at += sizeof(bytes16)) {
		bytes16 v;

		memcpy(&v, bytes + at, sizeof(v));
		if (has_bits(odd_bytes(v, (uint8_t)also)))
			break;
	}
	for (; at < size; at++) {
		uint8_t byte = (uint8_t)bytes[at];

		if (byte > 0x7e || (byte < 0x20 && byte != (uint8_t)also))
			break;
	}
	return at;
}

size_t uw_text_columns(const char *text)
{
	size_t n = 0;

	/* A character begins with a byte that is not 10xxxxxx. */
	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

/* symbolizer/text/plain.c: scans for bytes that are not printable ASCII, with vectors. */
#include "symbolizer/text/plain.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PIECE 256

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

size_t sym_plain_size(const char *bytes, size_t size, char also)
{
	size_t at = 0;

	for (; size - at >= PIECE; at += PIECE) {
		bytes16 odd = { 0 }, v;

		for (size_t i = 0; i < PIECE; i += sizeof(v)) {
			memcpy(&v, bytes + at + i, sizeof(v));
			odd |= odd_bytes(v, (uint8_t)also);
		}
		if (has_bits(odd))
			return at;
	}
	for (; size - at >= sizeof(bytes16); at += sizeof(bytes16)) {
		bytes16 v;

		memcpy(&v, bytes + at, sizeof(v));
		if (has_bits(odd_bytes(v, (uint8_t)also)))
			return at;
	}
	for (; at < size; at++) {
		uint8_t byte = (uint8_t)bytes[at];

		if (byte > 0x7e || (byte < 0x20 && byte != (uint8_t)also))
			break;
	}
	return at;
}

/* base/bytes.c: reads LEB128 numbers and strings from a range of bytes (bytes.h). */
#include "base/bytes.h"

#include <string.h>

uint64_t uw_bytes_uleb_long(struct uw_bytes *b)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		uint8_t byte = uw_bytes_u8(b); /* 0 on failure, which ends the loop */

		/* The tenth byte has room for bit 63 alone and cannot continue. */
		if (shift == 63 && byte > 1)
			break;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return b->err ? 0 : value;
	}
	b->err = -EBADMSG;
	return 0;
}

int64_t uw_bytes_sleb(struct uw_bytes *b)
{
	uint64_t value = 0;

	for (unsigned int shift = 0; shift < 64; shift += 7) {
		uint8_t byte = uw_bytes_u8(b);

		/* The tenth byte holds bit 63 and copies of it. */
		if (shift == 63 && byte != 0 && byte != 0x7f)
			break;
		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) {
			if (byte & 0x40 && shift < 57)
				value |= ~(uint64_t)0 << (shift + 7);
			return b->err ? 0 : (int64_t)value;
		}
	}
	b->err = -EBADMSG;
	return 0;
}

const char *uw_bytes_string(struct uw_bytes *b)
{
	uint64_t left = uw_bytes_left(b);
	const uint8_t *nul = left ? memchr(b->pos, 0, left) : NULL;

	if (!nul) {
		b->err = -EBADMSG;
		return "";
	}
	return (const char *)uw_bytes_advance(b, (uint64_t)(nul - b->pos) + 1);
}

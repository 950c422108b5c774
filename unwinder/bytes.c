#include "unwinder/bytes.h"

#include <errno.h>
#include <string.h>

/* The only bounds check in this file: every read passes through it. */
static const uint8_t *advance(struct uw_bytes *b, uint64_t size)
{
	const uint8_t *start = b->pos;

	if (b->err || size > (uint64_t)(b->end - start)) {
		b->err = -EBADMSG;
		return NULL;
	}
	b->pos += size;
	return start;
}

/* Compilers make one load of this where the host is little-endian. */
static uint64_t little(const uint8_t *p, unsigned int size)
{
	uint64_t value = 0;

	for (unsigned int i = 0; i < size; i++)
		value |= (uint64_t)p[i] << (8 * i);
	return value;
}

struct uw_bytes uw_bytes_of(const void *data, size_t size)
{
	const uint8_t *start = data;

	return (struct uw_bytes){ .pos = start, .end = size ? start + size : start };
}

bool uw_bytes_done(const struct uw_bytes *b)
{
	return b->err || b->pos == b->end;
}

uint64_t uw_bytes_left(const struct uw_bytes *b)
{
	return b->err ? 0 : (uint64_t)(b->end - b->pos);
}

uint8_t uw_bytes_u8(struct uw_bytes *b)
{
	const uint8_t *p = advance(b, 1);

	return p ? *p : 0;
}

uint16_t uw_bytes_u16(struct uw_bytes *b)
{
	const uint8_t *p = advance(b, 2);

	return p ? (uint16_t)little(p, 2) : 0;
}

uint32_t uw_bytes_u32(struct uw_bytes *b)
{
	const uint8_t *p = advance(b, 4);

	return p ? (uint32_t)little(p, 4) : 0;
}

uint64_t uw_bytes_u64(struct uw_bytes *b)
{
	const uint8_t *p = advance(b, 8);

	return p ? little(p, 8) : 0;
}

uint64_t uw_bytes_uleb(struct uw_bytes *b)
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

void uw_bytes_skip(struct uw_bytes *b, uint64_t size)
{
	(void)advance(b, size);
}

struct uw_bytes uw_bytes_take(struct uw_bytes *b, uint64_t size)
{
	const uint8_t *start = advance(b, size);

	return (struct uw_bytes){ .pos = start ? start : b->pos, .end = b->pos, .err = b->err };
}

const char *uw_bytes_string(struct uw_bytes *b)
{
	uint64_t left = uw_bytes_left(b);
	const uint8_t *nul = left ? memchr(b->pos, 0, left) : NULL;

	if (!nul) {
		b->err = -EBADMSG;
		return "";
	}
	return (const char *)advance(b, (uint64_t)(nul - b->pos) + 1);
}

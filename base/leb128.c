/* base/leb128.c: reads LEB128 numbers of any length (leb128.h). */
#include "base/leb128.h"

#include "base/bytes.h"

/*
 * Read a number of at most eight bytes at once. Return how many it has, and its bits, which are not extended by its sign;
 * 0: it has more bytes, or there are not eight before end.
 */
static unsigned int read_at_once(const uint8_t *p, const uint8_t *end, uint64_t *out)
{
	const uint64_t more = UINT64_C(0x8080808080808080); /* the bit of each byte that says so */
	uint64_t bits, last;

	if (end - p < 8)
		return 0;
	bits = uw_bytes_little8(p);
	last = ~bits & more;
	if (!last)
		return 0;
	last &= -last;
	bits &= (last | (last - 1)) & ~more;
	/* Join neighbours: 7 bits to 14, 28 and 56. */
	bits = (bits & UINT64_C(0x007f007f007f007f)) | (bits & UINT64_C(0x7f007f007f007f00)) >> 1;
	bits = (bits & UINT64_C(0x00003fff00003fff)) | (bits & UINT64_C(0x3fff00003fff0000)) >> 2;
	*out = (bits & 0x0fffffff) | (bits & UINT64_C(0x0fffffff00000000)) >> 4;
	return ((unsigned int)__builtin_ctzll(last) + 1) / 8;
}

const uint8_t *uw_uleb_long(const uint8_t *p, const uint8_t *end, uint64_t *out)
{
	const unsigned int n = read_at_once(p, end, out);
	unsigned int shift = 0; /* stays above 63 in the padding */
	uint64_t value = 0;

	if (n)
		return p + n;
	for (; p < end; p++) {
		uint64_t bits = *p & 0x7fu;

		if (shift < 64)
			value |= bits << shift;
		if (shift < 64 ? value >> shift != bits : bits != 0)
			return NULL;
		if (*p < 0x80) {
			*out = value;
			return p + 1;
		}
		shift += shift < 64 ? 7 : 0;
	}
	return NULL;
}

const uint8_t *uw_sleb_long(const uint8_t *p, const uint8_t *end, int64_t *out)
{
	unsigned int shift = 0; /* stays above 63 in the padding */
	uint64_t value = 0;
	const unsigned int n = read_at_once(p, end, &value);

	if (n) {
		const uint64_t sign = UINT64_C(1) << (7 * n - 1);

		*out = (int64_t)((value ^ sign) - sign);
		return p + n;
	}
	for (; p < end; p++) {
		uint64_t bits = *p & 0x7fu;

		if (shift < 64)
			value |= bits << shift;
		/* From bit 63 on, all bits are copies of the sign. */
		if (shift >= 63 && bits != (value >> 63 ? 0x7f : 0))
			return NULL;
		shift += shift < 64 ? 7 : 0;
		if (*p < 0x80) {
			if (bits & 0x40 && shift < 64)
				value |= ~(uint64_t)0 << shift;
			*out = (int64_t)value;
			return p + 1;
		}
	}
	return NULL;
}

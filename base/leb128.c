/* base/leb128.c: reads LEB128 numbers of any length (leb128.h). */
#include "base/leb128.h"

const uint8_t *uw_uleb_long(const uint8_t *p, const uint8_t *end, uint64_t *out)
{
	unsigned int shift = 0; /* stays above 63 in the padding */
	uint64_t value = 0;

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

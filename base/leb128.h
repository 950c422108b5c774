/*
 * base/leb128.h: reads LEB128 numbers (DWARF 5 §7.6), in one way for all readers of foreign bytes.
 *
 * Some producers pad numbers: a number may have any length. Its value must fit in 64 bits.
 */
#ifndef BASE_LEB128_H
#define BASE_LEB128_H

#include <stdbool.h>
#include <stdint.h>

/* Read a ULEB128 number of any length: the slow path of uw_uleb. */
bool uw_uleb_long(const uint8_t **p, const uint8_t *end, uint64_t *out);

/*
 * Read the ULEB128 number at *p, and advance *p behind it. False, and nothing changed: the number is
 * cut off at end, or it does not fit in 64 bits. Nearly all numbers have one byte.
 */
static inline bool uw_uleb(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
	if (__builtin_expect(*p < end && **p < 0x80, 1)) {
		*out = *(*p)++;
		return true;
	}
	return uw_uleb_long(p, end, out);
}

/* Read the SLEB128 number at *p likewise. */
bool uw_sleb(const uint8_t **p, const uint8_t *end, int64_t *out);

#endif

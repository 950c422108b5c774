/*
 * base/leb128.h: reads LEB128 numbers (DWARF 5 §7.6), in one way for all readers of foreign bytes.
 *
 * Some producers pad numbers: a number may have any length. Its value must fit in 64 bits.
 */
#ifndef BASE_LEB128_H
#define BASE_LEB128_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Read a ULEB128 or an SLEB128 number of any length at p. Return where it ends; NULL: as uw_uleb.
 * These are the slow paths of uw_uleb and uw_sleb. They take no pointer to the caller's position,
 * so that it can stay in a register.
 */
const uint8_t *uw_uleb_long(const uint8_t *p, const uint8_t *end, uint64_t *out);
const uint8_t *uw_sleb_long(const uint8_t *p, const uint8_t *end, int64_t *out);

/*
 * Read the ULEB128 number at *p, and advance *p behind it. False, and *p is as it was: the number
 * is cut off at end, or it does not fit in 64 bits. Nearly all numbers have one byte or two.
 */
static inline bool uw_uleb(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
	const uint8_t *at = *p;

	if (__builtin_expect(at < end && at[0] < 0x80, 1)) {
		*out = at[0];
		*p = at + 1;
		return true;
	}
	if (end - at >= 2 && at[1] < 0x80) {
		*out = (at[0] & 0x7fu) | (uint32_t)at[1] << 7;
		*p = at + 2;
		return true;
	}
	at = uw_uleb_long(at, end, out);
	if (at)
		*p = at;
	return at != NULL;
}

/* Read the SLEB128 number at *p likewise. */
static inline bool uw_sleb(const uint8_t **p, const uint8_t *end, int64_t *out)
{
	const uint8_t *at = *p;

	if (__builtin_expect(at < end && at[0] < 0x80, 1)) {
		*out = (at[0] ^ 0x40) - 0x40;
		*p = at + 1;
		return true;
	}
	if (end - at >= 2 && at[1] < 0x80) {
		*out = (((at[0] & 0x7f) | at[1] << 7) ^ 0x2000) - 0x2000;
		*p = at + 2;
		return true;
	}
	at = uw_sleb_long(at, end, out);
	if (at)
		*p = at;
	return at != NULL;
}

#endif

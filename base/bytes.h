/* base/bytes.h: bounded reads from a range of bytes that the caller owns. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/leb128.h"

/*
 * Sections come from untrusted files, so every read is checked. The first failed read sets err,
 * leaves pos at the damage and sets end to it; so nothing is left, and every later read returns 0. A
 * parser therefore decodes a whole entry and tests err once, before it uses any of the values.
 * Numbers are little-endian.
 *
 * The functions are inline because millions of bytes are read through them.
 */
struct uw_bytes {
	const uint8_t *pos; /* next unread byte */
	const uint8_t *end; /* one past the last; borrowed, must outlive the cursor */
	int err;	    /* 0 or -EBADMSG */
};

/* Let this read, and every later one, fail. */
static inline void uw_bytes_fail(struct uw_bytes *b)
{
	b->err = -EBADMSG;
	b->end = b->pos;
}

/*
 * Advance by size bytes and return the old position, or NULL on failure. Every read passes
 * through this bounds check.
 */
static inline const uint8_t *uw_bytes_advance(struct uw_bytes *b, uint64_t size)
{
	const uint8_t *start = b->pos;

	if (__builtin_expect(size > (uint64_t)(b->end - start), 0)) {
		uw_bytes_fail(b);
		return NULL;
	}
	b->pos += size;
	return start;
}

/* Return a cursor over size bytes at data. (NULL, 0) is fine. */
static inline struct uw_bytes uw_bytes_of(const void *data, size_t size)
{
	const uint8_t *start = data;

	return (struct uw_bytes){ .pos = start, .end = size ? start + size : start };
}

/* Return whether the cursor is at the end or a read has failed. */
static inline bool uw_bytes_done(const struct uw_bytes *b)
{
	return b->pos == b->end;
}

/* Return the number of unread bytes, 0 after a failure. */
static inline uint64_t uw_bytes_left(const struct uw_bytes *b)
{
	return (uint64_t)(b->end - b->pos);
}

/* Read 2 unchecked bytes. */
static inline uint16_t uw_bytes_little2(const uint8_t *p)
{
	return (uint16_t)((uint32_t)p[0] | (uint32_t)p[1] << 8);
}

/* Read 4 unchecked bytes. On little-endian hosts compilers make one load of this. */
static inline uint32_t uw_bytes_little(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Read 8 unchecked bytes. */
static inline uint64_t uw_bytes_little8(const uint8_t *p)
{
	return uw_bytes_little(p) | (uint64_t)uw_bytes_little(p + 4) << 32;
}

/* Read n unchecked bytes, at most 8. */
static inline uint64_t uw_bytes_little_n(const uint8_t *p, unsigned int n)
{
	uint64_t value = 0;

	for (unsigned int i = n; i-- > 0;)
		value = value << 8 | p[i];
	return value;
}

static inline uint8_t uw_bytes_u8(struct uw_bytes *b)
{
	const uint8_t *p = uw_bytes_advance(b, 1);

	return p ? *p : 0;
}

static inline uint16_t uw_bytes_u16(struct uw_bytes *b)
{
	const uint8_t *p = uw_bytes_advance(b, 2);

	return p ? uw_bytes_little2(p) : 0;
}

static inline uint32_t uw_bytes_u32(struct uw_bytes *b)
{
	const uint8_t *p = uw_bytes_advance(b, 4);

	return p ? uw_bytes_little(p) : 0;
}

static inline uint64_t uw_bytes_u64(struct uw_bytes *b)
{
	const uint8_t *p = uw_bytes_advance(b, 8);

	return p ? uw_bytes_little8(p) : 0;
}

/* Read a number of n bytes, 1 to 8. */
static inline uint64_t uw_bytes_uint(struct uw_bytes *b, unsigned int n)
{
	const uint8_t *p = uw_bytes_advance(b, n);
	uint64_t value = 0;

	if (p)
		memcpy(&value, p, n);
	return value;
}

/* Read a ULEB128 number of up to 64 bits (base/leb128.h); a larger one is an error. */
static inline uint64_t uw_bytes_uleb(struct uw_bytes *b)
{
	uint64_t value;

	if (uw_uleb(&b->pos, b->end, &value))
		return value;
	uw_bytes_fail(b);
	return 0;
}

/* Read an SLEB128 number likewise. */
static inline int64_t uw_bytes_sleb(struct uw_bytes *b)
{
	int64_t value;

	if (uw_sleb(&b->pos, b->end, &value))
		return value;
	uw_bytes_fail(b);
	return 0;
}

static inline void uw_bytes_skip(struct uw_bytes *b, uint64_t size)
{
	(void)uw_bytes_advance(b, size);
}

/* Return a cursor over the next size bytes, which inherits b's failure, and skip them in b. */
static inline struct uw_bytes uw_bytes_take(struct uw_bytes *b, uint64_t size)
{
	const uint8_t *start = uw_bytes_advance(b, size);

	return (struct uw_bytes){ .pos = start ? start : b->pos, .end = b->pos, .err = b->err };
}

/*
 * Read a NUL-terminated string. It is borrowed from the bytes. Without a NUL, return "" and
 * fail.
 */
static inline const char *uw_bytes_string(struct uw_bytes *b)
{
	const uint8_t *start = b->pos,
		      *nul = b->pos == b->end ? NULL : memchr(start, 0, uw_bytes_left(b));

	if (!nul) {
		uw_bytes_fail(b);
		return "";
	}
	b->pos = nul + 1;
	return (const char *)start;
}

#endif

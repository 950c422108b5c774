/* base/bytes.h: bounded reads from a range of bytes that the caller owns. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Sections come from untrusted files, so every read is checked. The first failed read sets err
 * and leaves pos at the damage; every later read returns 0. A parser therefore decodes a whole
 * entry and tests err once, before it uses any of the values. Numbers are little-endian.
 *
 * Functions that run once for each row or entry are inline.
 */
struct uw_bytes {
	const uint8_t *pos; /* next unread byte */
	const uint8_t *end; /* one past the last; borrowed, must outlive the cursor */
	int err;	    /* 0 or -EBADMSG */
};

/*
 * Advance by size bytes and return the old position, or NULL on failure. Every read passes
 * through this bounds check.
 */
static inline const uint8_t *uw_bytes_advance(struct uw_bytes *b, uint64_t size)
{
	const uint8_t *start = b->pos;

	if (__builtin_expect(b->err || size > (uint64_t)(b->end - start), 0)) {
		b->err = -EBADMSG;
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
	return b->err || b->pos == b->end;
}

/* Return the number of unread bytes, 0 after a failure. */
static inline uint64_t uw_bytes_left(const struct uw_bytes *b)
{
	return b->err ? 0 : (uint64_t)(b->end - b->pos);
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

static inline uint8_t uw_bytes_u8(struct uw_bytes *b)
{
	const uint8_t *p = uw_bytes_advance(b, 1);

	return p ? *p : 0;
}

static inline uint16_t uw_bytes_u16(struct uw_bytes *b)
{
	const uint8_t *p = uw_bytes_advance(b, 2);

	return p ? (uint16_t)((uint32_t)p[0] | (uint32_t)p[1] << 8) : 0;
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

/* Read a ULEB128 number of any length: the slow path of uw_bytes_uleb. */
uint64_t uw_bytes_uleb_long(struct uw_bytes *b);

/*
 * Read a ULEB128 number of up to 64 bits (base/leb128.h); a larger one is an error. Nearly all have
 * one byte.
 */
static inline uint64_t uw_bytes_uleb(struct uw_bytes *b)
{
	if (__builtin_expect(!b->err && b->pos != b->end && *b->pos < 0x80, 1))
		return *b->pos++;
	return uw_bytes_uleb_long(b);
}

/* Read an SLEB128 number of up to 64 bits (base/leb128.h); a larger one is an error. */
int64_t uw_bytes_sleb(struct uw_bytes *b);

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
const char *uw_bytes_string(struct uw_bytes *b);

#endif

/*
 * symbolizer/byte_cursor.h: a bounded cursor over bytes of debug information.
 *
 * Every read is checked. The first read that does not fit sets bad, and the values of all later
 * reads are 0 or NULL. Little-endian. The functions are inline because millions of bytes are read
 * through them.
 */
#ifndef SYMBOLIZER_BYTE_CURSOR_H
#define SYMBOLIZER_BYTE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/leb128.h"

struct sym_cursor {
	const uint8_t *p, *end; /* borrowed */
	bool bad;
};

static inline struct sym_cursor sym_cursor_of(const void *bytes, uint64_t size)
{
	const uint8_t *p = bytes;

	return (struct sym_cursor){ .p = p, .end = size ? p + size : p };
}

static inline uint64_t sym_cursor_left(const struct sym_cursor *c)
{
	return (uint64_t)(c->end - c->p);
}

/* Return the next size bytes; NULL if fewer are left. */
static inline const uint8_t *sym_cursor_take(struct sym_cursor *c, uint64_t size)
{
	const uint8_t *p = c->p;

	if (size > sym_cursor_left(c)) {
		c->bad = true;
		c->p = c->end;
		return NULL;
	}
	c->p += size;
	return p;
}

/* Read a number of n bytes, 1 to 8. */
static inline uint64_t sym_cursor_uint(struct sym_cursor *c, unsigned int n)
{
	const uint8_t *p = sym_cursor_take(c, n);
	uint64_t value = 0;

	if (p)
		memcpy(&value, p, n);
	return value;
}

static inline uint8_t sym_cursor_u8(struct sym_cursor *c)
{
	const uint8_t *p = sym_cursor_take(c, 1);

	return p ? *p : 0;
}

static inline uint16_t sym_cursor_u16(struct sym_cursor *c)
{
	return (uint16_t)sym_cursor_uint(c, 2);
}

static inline uint32_t sym_cursor_u32(struct sym_cursor *c)
{
	return (uint32_t)sym_cursor_uint(c, 4);
}

static inline uint64_t sym_cursor_u64(struct sym_cursor *c)
{
	return sym_cursor_uint(c, 8);
}

/* Read a LEB128 number (base/leb128.h); one that does not fit in 64 bits is damage. */
static inline uint64_t sym_cursor_uleb(struct sym_cursor *c)
{
	uint64_t value;

	if (uw_uleb(&c->p, c->end, &value))
		return value;
	c->bad = true;
	c->p = c->end;
	return 0;
}

static inline int64_t sym_cursor_sleb(struct sym_cursor *c)
{
	int64_t value;

	if (uw_sleb(&c->p, c->end, &value))
		return value;
	c->bad = true;
	c->p = c->end;
	return 0;
}

/* Return a string up to its NUL; NULL if there is none. */
static inline const char *sym_cursor_text(struct sym_cursor *c)
{
	const uint8_t *p = c->p, *nul = p < c->end ? memchr(p, 0, sym_cursor_left(c)) : NULL;

	if (!nul) {
		c->bad = true;
		c->p = c->end;
		return NULL;
	}
	c->p = nul + 1;
	return (const char *)p;
}

#endif

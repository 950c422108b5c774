/* unwinder/bytes.h: a bounded cursor over bytes that somebody else owns. */
#ifndef UNWINDER_BYTES_H
#define UNWINDER_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Sections come from files nobody here controls, so every read is checked.
 * The first failed read sets err and leaves pos where the damage was met;
 * every read after it returns 0.  A parser decodes a whole entry and tests
 * err once, before it uses any of the values.  Numbers are little-endian.
 */
struct uw_bytes {
	const uint8_t *pos; /* next unread byte */
	const uint8_t *end; /* one past the last; borrowed, must outlive the cursor */
	int err;	    /* 0 or -EBADMSG */
};

struct uw_bytes uw_bytes_of(const void *data, size_t size); /* (NULL, 0) is fine */
bool uw_bytes_done(const struct uw_bytes *b);		    /* at the end, or failed */
uint64_t uw_bytes_left(const struct uw_bytes *b);	    /* 0 after a failure */

uint8_t uw_bytes_u8(struct uw_bytes *b);
uint16_t uw_bytes_u16(struct uw_bytes *b);
uint32_t uw_bytes_u32(struct uw_bytes *b);
uint64_t uw_bytes_u64(struct uw_bytes *b);
uint64_t uw_bytes_uleb(struct uw_bytes *b); /* DWARF 5 §7.6, up to 64 bits */
int64_t uw_bytes_sleb(struct uw_bytes *b);

void uw_bytes_skip(struct uw_bytes *b, uint64_t size);

/* The next size bytes as a cursor of their own; it inherits b's failure. */
struct uw_bytes uw_bytes_take(struct uw_bytes *b, uint64_t size);

/* A NUL-terminated string inside the bytes, or "" and a failure. */
const char *uw_bytes_string(struct uw_bytes *b);

#endif

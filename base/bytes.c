/* base/bytes.c: the reads from a range of bytes that are not inline (bytes.h). */
#include "base/bytes.h"

#include <string.h>

#include "base/leb128.h"

uint64_t uw_bytes_uleb_long(struct uw_bytes *b)
{
	uint64_t value;

	if (!b->err && uw_uleb(&b->pos, b->end, &value))
		return value;
	b->err = -EBADMSG;
	return 0;
}

int64_t uw_bytes_sleb(struct uw_bytes *b)
{
	int64_t value;

	if (!b->err && uw_sleb(&b->pos, b->end, &value))
		return value;
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

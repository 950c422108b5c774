/* symbolizer/text/sanitize.c: copies untrusted bytes as valid UTF-8 without control characters. */
#include "symbolizer/symbolizer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT ((size_t)64 << 10)

/*
 * Return the length of the well-formed character at p (Unicode 15, table 3-7). If it is malformed,
 * return 0 and set *bad to the number of bytes that one U+FFFD replaces (the maximal subpart,
 * §3.9).
 */
static size_t character(const unsigned char *p, size_t n, uint32_t *code, size_t *bad)
{
	unsigned char low = 0x80, high = 0xbf; /* range of the second byte */
	size_t need;

	*bad = 1;
	if (p[0] < 0x80) {
		*code = p[0];
		return 1;
	}
	if (p[0] >= 0xc2 && p[0] <= 0xdf) {
		need = 2;
		*code = p[0] & 0x1f;
	} else if (p[0] >= 0xe0 && p[0] <= 0xef) {
		need = 3;
		*code = p[0] & 0x0f;
		low = p[0] == 0xe0 ? 0xa0 : low;   /* no overlong forms */
		high = p[0] == 0xed ? 0x9f : high; /* no surrogates */
	} else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
		need = 4;
		*code = p[0] & 0x07;
		low = p[0] == 0xf0 ? 0x90 : low;
		high = p[0] == 0xf4 ? 0x8f : high; /* U+10FFFF is the last */
	} else {
		return 0;
	}
	for (size_t i = 1; i < need; i++) {
		if (i == n || p[i] < low || p[i] > high)
			return 0;
		*code = *code << 6 | (p[i] & 0x3f);
		*bad = i + 1;
		low = 0x80;
		high = 0xbf;
	}
	return need;
}

/*
 * Return whether a character breaks lines, moves the cursor or changes the reading direction
 * (property Bidi_Control).
 */
static bool is_control(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0x061c ||
	       c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
	       (c >= 0x2066 && c <= 0x2069);
}

/* Return how many bytes at the start are printable ASCII. Checks 8 bytes at a time. */
static size_t plain_bytes(const unsigned char *p, size_t n)
{
	const uint64_t ones = UINT64_MAX / 255, tops = ones * 0x80;
	size_t done = 0;
	uint64_t v;

	for (; n - done >= 8; done += 8) {
		memcpy(&v, p + done, 8);
		/*
		 * The top bit of a byte is set in v if it is 0x80 or above, in v - 0x20… if it is
		 * below 0x20 (the subtraction borrows), and in v + 1… if it is 0x7f.
		 */
		if ((v | (v - ones * 0x20) | (v + ones)) & tops)
			break;
	}
	while (done < n && p[done] >= 0x20 && p[done] < 0x7f)
		done++;
	return done;
}

char *sym_sanitize(const char *bytes, size_t n, size_t limit)
{
	const unsigned char *p = (const unsigned char *)bytes;
	size_t room, done = 0;
	char *out;

	limit = limit ? limit : LIMIT;
	/* Each input byte gives at most three bytes, those of a U+FFFD. */
	room = n < limit / 3 ? n * 3 : limit;
	out = malloc(room + 1);
	if (!out)
		return NULL;
	/* Nearly all bytes are printable ASCII. */
	done = plain_bytes(p, n < room ? n : room);
	if (done)
		memcpy(out, p, done);
	p += done;
	n -= done;
	while (n) {
		const void *from = p;
		uint32_t code;
		size_t skip;
		size_t put = character(p, n, &code, &skip);

		if (put && !is_control(code)) {
			skip = put;
		} else {
			skip = put ? put : skip;
			from = "\xef\xbf\xbd";
			put = 3;
		}
		if (put > room - done)
			break;
		memcpy(out + done, from, put);
		done += put;
		p += skip;
		n -= skip;
	}
	out[done] = '\0';
	return out;
}

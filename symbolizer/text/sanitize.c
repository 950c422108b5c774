/* symbolizer/text/sanitize.c: copies untrusted bytes as valid UTF-8 without control characters. */
#include "symbolizer/symbolizer.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define LIMIT ((size_t)64 << 10)

char *sym_sanitize(const char *bytes, size_t n, size_t limit)
{
	size_t room, done, at;
	char *out;

	limit = limit ? limit : LIMIT;
	/* Each input byte gives at most three bytes, those of a U+FFFD. */
	room = n < limit / 3 ? n * 3 : limit;
	out = malloc(room + 1);
	if (!out)
		return NULL;
	/* Nearly all bytes are printable ASCII. */
	done = at = uw_text_plain_size(bytes, n < room ? n : room, ' ');
	if (done)
		memcpy(out, bytes, done);
	while (at < n) {
		uint32_t code;
		size_t taken = uw_text_decode(bytes + at, n - at, &code);
		bool shown = uw_text_is_shown(code);
		size_t put = shown ? taken : strlen(UW_TEXT_REPLACEMENT);

		if (put > room - done)
			break;
		memcpy(out + done, shown ? bytes + at : UW_TEXT_REPLACEMENT, put);
		done += put;
		at += taken;
	}
	out[done] = '\0';
	return out;
}

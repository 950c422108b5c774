/* agent/sanitize.c: replaces bytes that a terminal or a reader of lines would misinterpret. */
#include "agent/sanitize.h"

#include "base/text.h"

#include <string.h>

size_t sanitize_text(const char *text, const char *also, char instead, char *out, size_t size)
{
	size_t length, used;

	text = text ? text : "";
	length = strlen(text);
	/* Nearly all texts are printable ASCII: copy that quickly. */
	used = *also ? strcspn(text, also) : length;
	used = uw_text_plain_size(text, used < size ? used : size - 1, ' ');
	memcpy(out, text, used);
	for (size_t at = used; at < length;) {
		uint32_t code;
		size_t n = uw_text_decode(text + at, length - at, &code);
		const char *from = text + at;
		size_t from_size = n;

		at += n;
		if (code == UW_TEXT_BAD) {
			from = UW_TEXT_REPLACEMENT;
			from_size = strlen(UW_TEXT_REPLACEMENT);
		} else if (!uw_text_is_shown(code) || (n == 1 && strchr(also, from[0]))) {
			from = &instead;
			from_size = 1;
		}
		if (from_size >= size - used)
			break;
		memcpy(out + used, from, from_size);
		used += from_size;
	}
	out[used] = '\0';
	return used;
}

/* agent/clean.c: replaces bytes that a terminal or a reader of lines would misinterpret. */
#include "agent/clean.h"

#include "proto/utf8.h"

#include <stdbool.h>
#include <string.h>

/*
 * Return whether a character is a control character: C0, DEL, or C1 (two bytes in UTF-8), which
 * terminals obey as well.
 */
static bool is_control(const char *c, size_t n)
{
	unsigned char first = (unsigned char)c[0], second = n > 1 ? (unsigned char)c[1] : 0;

	return n == 1 ? first < 0x20 || first == 0x7f : n == 2 && first == 0xc2 && second < 0xa0;
}

/*
 * Return whether a character changes the layout: U+2028 and U+2029 end lines for some readers;
 * U+061C, U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069 reorder what a terminal shows.
 */
static bool is_layout(const char *c, size_t n)
{
	unsigned char third = n == 3 ? (unsigned char)c[2] : 0;

	if (n == 2)
		return (unsigned char)c[0] == 0xd8 && (unsigned char)c[1] == 0x9c;
	if (n != 3 || (unsigned char)c[0] != 0xe2)
		return false;
	return ((unsigned char)c[1] == 0x80 &&
		(third == 0x8e || third == 0x8f || (third >= 0xa8 && third <= 0xae))) ||
	       ((unsigned char)c[1] == 0x81 && third >= 0xa6 && third <= 0xa9);
}

size_t clean_text(const char *text, const char *also, char instead, char *out, size_t size)
{
	size_t length = text ? strlen(text) : 0, used = 0;

	/* Nearly all texts are printable ASCII: copy that quickly. */
	while (used < length && used + 1 < size && text[used] >= 0x20 && text[used] < 0x7f &&
	       (!*also || !strchr(also, text[used]))) {
		out[used] = text[used];
		used++;
	}
	for (size_t at = used; at < length;) {
		size_t n = utf8_length(text + at, length - at);
		const char *from = text + at;
		size_t from_size = n;

		at += n ? n : 1;
		if (!n) {
			from = "\xef\xbf\xbd";
			from_size = 3;
		} else if (is_control(from, n) || is_layout(from, n) ||
			   (n == 1 && strchr(also, from[0]))) {
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

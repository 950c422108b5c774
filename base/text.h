/*
 * base/text.h: decides which bytes are text, and which characters are shown.
 *
 * Names come from files and processes, and can hold any bytes. Whatever prints them or stores them
 * decides with these functions, so that all outputs agree. The functions are safe from any thread.
 */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* U+FFFD in UTF-8: replaces what is no character. */
#define UW_TEXT_REPLACEMENT "\xef\xbf\xbd"
/* The code of bytes that are no character. */
#define UW_TEXT_BAD UINT32_MAX

/*
 * Decode the character at the start of bytes (Unicode 15, table 3-7). size must be at least 1.
 * Return its length in bytes, 1 to 4. If the bytes are malformed, set *code to UW_TEXT_BAD and
 * return how many of them one U+FFFD replaces, 1 to 3 (the maximal subpart, §3.9).
 */
size_t uw_text_decode(const char *bytes, size_t size, uint32_t *code);

/*
 * Return whether a character is shown as it is. False: it is UW_TEXT_BAD or a control character
 * (C0, DEL, and C1, which terminals obey as well), ends a line (U+2028, U+2029), or changes the
 * reading direction (property Bidi_Control).
 */
bool uw_text_is_shown(uint32_t code);

/*
 * Return how many bytes at the start are printable ASCII or `also`. This is fast: nearly all names
 * are plain ASCII and need no cleaning. ' ' for `also` adds nothing.
 */
size_t uw_text_plain_size(const char *bytes, size_t size, char also);

static inline bool uw_text_is_plain(const char *bytes, size_t size)
{
	return uw_text_plain_size(bytes, size, ' ') == size;
}

/*
 * Return how many columns a NUL-terminated text of valid UTF-8 takes: each character counts as one.
 */
size_t uw_text_columns(const char *text);

/* Return the value of a lower-case hexadecimal digit; -1: it is none. */
static inline int uw_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

#endif

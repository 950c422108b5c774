/* agent/cli/short_name.c: finds the parameter lists in demangled names. */
#include "agent/cli/short_name.h"

#include <stdbool.h>
#include <string.h>

/*
 * Return the byte after the parenthesis that closes the one at open; the end of the name if none
 * does.
 */
static const char *after_list(const char *open)
{
	int depth = 0;

	for (const char *at = open; *at; at++) {
		depth += *at == '(';
		depth -= *at == ')';
		if (!depth)
			return at + 1;
	}
	return open + strlen(open);
}

static bool ends_with(const char *begin, const char *end, const char *word)
{
	size_t n = strlen(word);

	return (size_t)(end - begin) >= n && !memcmp(end - n, word, n);
}

static bool is_word(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

/*
 * Return true if the parenthesis at open begins the parameters of the function whose name begins
 * at name.
 */
static bool is_list(const char *name, const char *open)
{
	if (open == name || !strncmp(open, "(anonymous", 10))
		return false;
	/* operator() has parentheses of its own; other operators end in punctuation. */
	if (ends_with(name, open, "operator"))
		return false;
	for (const char *at = open; at > name && open - at < 4; at--)
		if (ends_with(name, at, "operator"))
			return true;
	return is_word(open[-1]) || open[-1] == '>' || open[-1] == ')' || open[-1] == ']' ||
	       open[-1] == '}';
}

void short_name(const char *name, char *out, size_t size)
{
	const char *at = name;
	size_t n = 0;
	int depth = 0; /* inside template arguments and {lambda()#1} */

	while (*at && n + 1 < size) {
		const char *after;

		/*
		 * The characters of operator<, operator<<, operator-> and operator() are no
		 * brackets: copy them.
		 */
		if (ends_with(name, at, "operator") && strchr("<>-(", *at)) {
			size_t length = strspn(at, *at == '(' ? "()" : "<>-=*");

			if (*at == '(')
				length = 2;
			while (length-- && *at && n + 1 < size)
				out[n++] = *at++;
			continue;
		}
		depth += *at == '<' || *at == '{';
		depth -= (*at == '>' || *at == '}') && depth && at[-1] != '-';
		if (*at != '(' || depth || !is_list(name, at)) {
			out[n++] = *at++;
			continue;
		}
		after = after_list(at);
		/* Go on if a name follows that is inside the function: f(int)::{lambda()#1}. */
		while (!strncmp(after, " const", 6) || !strncmp(after, " &", 2))
			after += *(after + 1) == '&' ? strspn(after, " &") : 6;
		if (strncmp(after, "::", 2) != 0)
			break;
		at = after;
	}
	out[n] = '\0';
}

/* agent/export/profile/guessed.c: reads and writes lists of locations. */
#include "agent/export/profile/guessed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct mark { /* one range of the list */
	const char *next;
	uint32_t first, last; /* UINT32_MAX: the list has ended */
};

/* Parse a decimal number below UINT32_MAX and advance *at. False: there is none. */
static bool take_number(const char **at, uint32_t *out)
{
	uint64_t number = 0;
	const char *c = *at;

	for (; *c >= '0' && *c <= '9' && number <= UINT32_MAX; c++)
		number = number * 10 + (uint64_t)(*c - '0');
	if (c == *at || number >= UINT32_MAX)
		return false;
	*at = c;
	*out = (uint32_t)number;
	return true;
}

/* Parse the next range of the list. */
static void next_mark(struct mark *m)
{
	const char *c = m->next;

	m->first = m->last = UINT32_MAX;
	if (!take_number(&c, &m->first))
		return;
	m->last = m->first;
	if (*c == '-') {
		c++;
		if (!take_number(&c, &m->last))
			m->last = m->first;
	}
	m->next = *c == ',' ? c + 1 : "";
}

void guessed_read(const char *label, uint32_t n, bool *guessed)
{
	struct mark m = { .next = label ? label : "" };
	uint32_t least = 0;

	memset(guessed, 0, n * sizeof(*guessed));
	/* The numbers must ascend, as guessed_write has them, so the work is bounded however long the label is. */
	for (next_mark(&m); m.first >= least && m.first < n; next_mark(&m)) {
		for (uint32_t i = m.first; i <= m.last && i < n; i++)
			guessed[i] = true;
		if (m.last == UINT32_MAX)
			break;
		least = m.last + 1;
	}
}

void guessed_write(const bool *guessed, uint32_t n, char out[GUESSED_SIZE])
{
	size_t used = 0;

	out[0] = '\0';
	for (uint32_t i = 0, end; i < n; i = end) {
		int more;

		end = i + 1;
		if (!guessed[i])
			continue;
		while (end < n && guessed[end])
			end++;
		more = end > i + 1 ? snprintf(out + used, GUESSED_SIZE - used,
					      "%s%" PRIu32 "-%" PRIu32, used ? "," : "", i, end - 1)
				   : snprintf(out + used, GUESSED_SIZE - used, "%s%" PRIu32,
					      used ? "," : "", i);
		if (more < 0 || (size_t)more >= GUESSED_SIZE - used) {
			out[used] = '\0';
			return;
		}
		used += (size_t)more;
	}
}

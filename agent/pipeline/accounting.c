/* agent/pipeline/accounting.c: adds and prints the counts of captured, unwound and lost samples. */
#include "agent/pipeline/profile.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Return the number of lost samples, for all reasons together. */
static uint64_t lost_sum(const struct accounting *a)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < EVENT_LOST_N; i++)
		sum += a->lost[i];
	return sum;
}

void accounting_add(struct accounting *to, const struct accounting *from)
{
	to->captured += from->captured;
	to->unwound += from->unwound;
	to->cut += from->cut;
	to->sideband_lost += from->sideband_lost;
	for (size_t i = 0; i < UW_STOP_N; i++)
		to->stop[i] += from->stop[i];
	for (size_t i = 0; i < EVENT_LOST_N; i++)
		to->lost[i] += from->lost[i];
}

struct text {
	char *at;
	size_t room;
};

/* Append text, cut to the room that is left. */
static void __attribute__((format(printf, 2, 3))) put(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->at, t->room, format, args);
	va_end(args);
	if (n < 0 || (size_t)n >= t->room)
		n = t->room ? (int)t->room - 1 : 0;
	t->at += n;
	t->room -= (size_t)n;
}

/* Append " + lost 3 (ring_full 2, damaged 1); …". */
static void put_lost(struct text *t, const struct accounting *a)
{
	const char *separator = " (";

	put(t, " + lost %" PRIu64, lost_sum(a));
	for (size_t i = 0; i < EVENT_LOST_N; i++) {
		if (!a->lost[i])
			continue;
		put(t, "%s%s %" PRIu64, separator, event_lost_name((enum event_lost_reason)i),
		    a->lost[i]);
		separator = ", ";
	}
	put(t, "%s", lost_sum(a) ? ")" : "");
	if (a->cut)
		put(t, "; stack cut %" PRIu64, a->cut);
	if (a->sideband_lost)
		put(t, "; side-band records lost %" PRIu64, a->sideband_lost);
}

void accounting_written_text(const struct accounting *a, char *out, size_t size)
{
	struct text t = { .at = out, .room = size };

	put(&t, "captured %" PRIu64 " = written %" PRIu64, a->captured, a->captured - lost_sum(a));
	put_lost(&t, a);
}

void accounting_text(const struct accounting *a, char *out, size_t size)
{
	struct text t = { .at = out, .room = size };
	const char *separator = " (";

	put(&t, "captured %" PRIu64 " = unwound %" PRIu64, a->captured, a->unwound);
	for (size_t i = 0; i < UW_STOP_N; i++) {
		if (!a->stop[i])
			continue;
		put(&t, "%s%s %" PRIu64, separator, uw_stop_name((enum uw_stop)i), a->stop[i]);
		separator = ", ";
	}
	put(&t, "%s", a->unwound ? ")" : "");
	put_lost(&t, a);
}

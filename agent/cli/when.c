/* agent/cli/when.c: parses points in time. */
#include "agent/cli/when.h"

#include "agent/clock.h"
#include "agent/log.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND_NS 1000000000.0
#define FAR_S	  1e10 /* no time is farther away, in the year 2286 */

static const struct {
	const char *name;
	double seconds;
} units[] = {
	{ "ms", 1e-3 }, { "s", 1 },	{ "min", 60 },	 { "m", 60 },
	{ "h", 3600 },	{ "d", 86400 }, { "w", 604800 },
};

/* Return the length of the unit that text begins with, and its seconds; 0: there is none. */
static size_t unit_of(const char *text, double *seconds)
{
	size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz");

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (strlen(units[i].name) == n && !strncmp(text, units[i].name, n)) {
			*seconds = units[i].seconds;
			return n;
		}
	return 0;
}

/* Parse "1h30m", in seconds. */
static bool take_span(const char *text, double *out)
{
	double sum = 0;

	if (!*text)
		return false;
	while (*text) {
		size_t digits = strspn(text, "0123456789."), n;
		double unit = 0, value;
		char *end;

		value = strtod(text, &end);
		if (!digits || end != text + digits)
			return false;
		n = unit_of(end, &unit);
		if (!n)
			return false;
		sum += value * unit;
		text = end + n;
	}
	*out = sum;
	return sum < FAR_S;
}

/* Parse seconds since 1970. */
static bool take_seconds(const char *text, double *out)
{
	char *end;
	size_t digits = strspn(text, "0123456789.");

	*out = strtod(text, &end);
	return digits && end == text + digits && !*end && *out < FAR_S;
}

/* Parse "1790000000500000000ns". Return 0 or -EINVAL. */
static int take_ns(const char *text, uint64_t *out)
{
	char *end;
	unsigned long long ns;

	errno = 0;
	ns = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || strcmp(end, "ns") != 0 || errno || ns > INT64_MAX)
		return -EINVAL;
	*out = ns;
	return 0;
}

/* Set the time of day to the beginning of the day. */
static void begin_day(struct tm *tm)
{
	tm->tm_hour = tm->tm_min = tm->tm_sec = 0;
	tm->tm_isdst = -1;
}

/* Parse a date, a time of day or both. */
static bool take_date(const char *text, const struct tm *today, double *out)
{
	struct tm tm = *today, date;
	const char *at;
	double fraction = 0;
	bool utc = false;
	time_t seconds;

	begin_day(&tm);
	date = tm; /* strptime writes also what it does not accept as a whole */
	at = strptime(text, "%Y-%m-%d", &date);
	if (at)
		tm = date;
	if (at && (*at == 'T' || *at == ' '))
		text = ++at;
	else if (at && *at)
		return false;
	if (!at || *at) {
		at = strptime(text, "%H:%M:%S", &tm);
		if (!at)
			at = strptime(text, "%H:%M", &tm);
		if (!at)
			return false;
	}
	if (*at == '.') {
		char *end;

		fraction = strtod(at, &end);
		if (strspn(at + 1, "0123456789") != (size_t)(end - at - 1))
			return false;
		at = end;
	}
	if (*at == 'Z') {
		utc = true;
		at++;
	}
	seconds = utc ? timegm(&tm) : mktime(&tm);
	*out = (double)seconds;
	if (*at || seconds < 0)
		return false;
	*out += fraction;
	return true;
}

int when_parse(const char *text, uint64_t now_ns, uint64_t *out)
{
	time_t now_s = (time_t)(now_ns / 1000000000);
	double now = (double)now_ns / SECOND_NS, value = 0;
	struct tm tm;
	bool good;

	if (!localtime_r(&now_s, &tm))
		return -EINVAL;
	if (!strcmp(text, "now")) {
		*out = now_ns;
		return 0;
	}
	if (!take_ns(text, out))
		return 0;
	if (!strcmp(text, "today") || !strcmp(text, "yesterday")) {
		begin_day(&tm);
		tm.tm_mday -= *text == 'y';
		value = (double)mktime(&tm);
		good = true;
	} else if (*text == '-' || *text == '+') {
		good = take_span(text + 1, &value);
		value = *text == '-' ? now - value : now + value;
	} else if (*text == '@') {
		good = take_seconds(text + 1, &value);
	} else {
		good = take_seconds(text, &value) || take_date(text, &tm, &value);
	}
	if (!good || !(value >= 0) || value > FAR_S)
		return -EINVAL;
	*out = (uint64_t)llround(value * 1e6) * 1000; /* a double has no more digits */
	return 0;
}

int when_option(void *to, const char *option, char *text)
{
	uint64_t ns = 0;
	int err = when_parse(text, clock_ns(CLOCK_REALTIME), &ns);

	if (!err)
		*(uint64_t *)to = ns ? ns : 1;
	else
		log_error("%s takes a time such as -10m, 23:59, \"2026-01-31 23:59:59\" or "
			  "@1790000000, not '%s'",
			  option, text);
	return err;
}

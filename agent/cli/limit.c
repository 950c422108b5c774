/* agent/cli/limit.c: reads and lists limits for the command line. */
#include "agent/cli/limit.h"

#include "agent/cli/input.h"
#include "agent/limits.h"
#include "agent/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void print_table(void)
{
	size_t n;
	const struct limits_row *rows = limits_rows(&n);

	(void)printf("%-14s %11s  %s\n", "LIMIT", "VALUE", "BEYOND IT");
	for (size_t i = 0; i < n; i++)
		(void)printf("%-14s %11" PRIu64 "  %s\n", rows[i].name, limits_value(&rows[i]),
			     rows[i].beyond);
}

int limit_take(void *to, const char *option, char *text)
{
	const char *equals = strchr(text, '=');
	const struct limits_row *row =
		limits_find(text, equals ? (size_t)(equals - text) : strlen(text));
	char named[64];
	uint64_t value;

	(void)to;
	if (!strcmp(text, "help")) {
		print_table();
		return 1;
	}
	if (!row || !equals) {
		log_error("%s takes NAME=N, not '%s'; --limit help lists the names", option, text);
		return -EINVAL;
	}
	(void)snprintf(named, sizeof(named), "%s %s", option, row->name);
	if (limits_are_bytes(row)
		    ? input_size(named, equals + 1, row->least, limits_most(row), &value)
		    : input_number(named, equals + 1, row->least, limits_most(row), &value))
		return -EINVAL;
	return limits_set(row, value);
}

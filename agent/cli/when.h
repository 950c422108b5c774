/* agent/cli/when.h: parses points in time, as journalctl(1) takes them. */
#ifndef AGENT_CLI_WHEN_H
#define AGENT_CLI_WHEN_H

#include <stdint.h>

/*
 * Parse a point in time into ns since 1970, CLOCK_REALTIME:
 *
 *   now, today, yesterday           the beginning of the day, local time
 *   -10m, -1h30m, +5s               before or after now: with ms, s, m, h, d, w
 *   @1790000000.5, 1790000000       seconds since 1970
 *   1790000000500000000ns           ns since 1970, exactly
 *   2026-01-31, 2026-01-31 23:59:59.5, 23:59, 2026-01-31T23:59:59Z
 *                                   local time, or UTC with Z
 *
 * Return 0 or -EINVAL.
 */
int when_parse(const char *text, uint64_t now_ns, uint64_t *out);

/*
 * The same for an option, which is named in the message about what is wrong. to is a uint64_t, in which 0 means that the
 * option was not given: the beginning of 1970 is 1.
 */
int when_option(void *to, const char *option, char *text);

#endif

/* agent/cli/limit.h: the option --limit of the commands that read what others made. */
#ifndef AGENT_CLI_LIMIT_H
#define AGENT_CLI_LIMIT_H

#include "agent/cli/option.h"

/* clang-format off */
#define LIMIT_OPTION                                                                              \
	{ "--limit", 0, "NAME=N",                                                                 \
	  "set a limit; can be repeated; bytes may end in K, M or G; --limit help\n"              \
	  "lists the names, the values and what happens beyond them",                             \
	  .set = limit_take }
/* clang-format on */

/* Take NAME=N, or print the table for "help". A function for struct option_row; to is not used. */
int limit_take(void *to, const char *option, char *text);

#endif

/*
 * agent/cli/option.h: getopt_long with messages of offwind's own. getopt's messages would print
 * the bytes of the command line unchanged on the terminal.
 */
#ifndef AGENT_CLI_OPTION_H
#define AGENT_CLI_OPTION_H

#include <getopt.h>

/* As getopt_long; '?' means that the option is wrong, which is already reported. */
int option_next(int argc, char *const *argv, const char *letters, const struct option *words);

#endif

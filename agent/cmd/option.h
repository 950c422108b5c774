/*
 * agent/cmd/option.h: the next option of a command line.  What is wrong with one is said here and
 * not by getopt, which would put a stranger's bytes on the terminal as they are.
 */
#ifndef AGENT_CMD_OPTION_H
#define AGENT_CMD_OPTION_H

#include <getopt.h>

/* As getopt_long; '?' after it has said what is wrong. */
int option_next(int argc, char *const *argv, const char *letters, const struct option *words);

#endif

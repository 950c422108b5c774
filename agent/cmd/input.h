/*
 * agent/cmd/input.h: finds out what a file is and opens it as a source.
 */
#ifndef AGENT_CMD_INPUT_H
#define AGENT_CMD_INPUT_H

#include "agent/source/source.h"

/* path "-": standard input, a pipe or a file.  Reports its own errors. */
int input_open(const char *path, struct source **out);

/* Number of a command line: all of text, within [min, max]; reports what is wrong with option. */
int input_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);

#endif

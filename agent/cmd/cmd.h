/*
 * agent/cmd/cmd.h: one file a subcommand.  Each takes what stands behind
 * `offwind` (argv[0] is the subcommand's name) and gives the exit code.
 */
#ifndef AGENT_CMD_CMD_H
#define AGENT_CMD_CMD_H

#include <stdio.h>

enum {
	CMD_DONE = 0,
	CMD_FAILED = 1,
	CMD_USAGE = 2,
	CMD_PARTLY = 3, /* done as far as the input went; says how far */
};

int cmd_record(int argc, char **argv);
int cmd_unwind(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_flamegraph(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_perf_to_profile(int argc, char **argv); /* installed under that name, for go tool pprof */

/*
 * The first `top` functions of a pprof file by their own share, as `offwind
 * report` prints them.  0, or a negative code after reporting what was wrong.
 */
int report_print(const char *path, int top, FILE *out);

#endif

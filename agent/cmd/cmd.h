/*
 * agent/cmd/cmd.h: the subcommands; each is in a file of its own name.
 *
 * Each function gets the arguments from the subcommand on (argv[0] is the subcommand's name). It
 * reports errors itself and returns the exit code of the program.
 */
#ifndef AGENT_CMD_CMD_H
#define AGENT_CMD_CMD_H

#include <stdio.h>

enum {
	CMD_DONE = 0,
	CMD_FAILED = 1,
	CMD_USAGE = 2,
	CMD_PARTLY = 3, /* part of the input could be processed; the messages say which */
};

int cmd_record(int argc, char **argv);
int cmd_daemon(int argc, char **argv);
int cmd_unwind(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_flamegraph(int argc, char **argv);
int cmd_query(int argc, char **argv);
int cmd_resymbolize(int argc, char **argv);
int cmd_symbolize(int argc, char **argv);
int cmd_fleet(int argc, char **argv);
int cmd_archive(int argc, char **argv);
int cmd_cache(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_perf_to_profile(int argc, char **argv); /* for go tool pprof; in unwind.c */

/*
 * Print the header and the first `top` functions of the pprof file at path, by their own share, as
 * `offwind report` does. Return 0, or a negative code after reporting what is wrong.
 */
int report_print(const char *path, int top, FILE *out);

#endif

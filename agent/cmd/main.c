/* agent/cmd/main.c: runs the subcommand that the command line names. */
#include "agent/cmd/cmd.h"
#include "agent/export/output.h"
#include "agent/hash.h"
#include "agent/limits.h"

#include "agent/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *sentence;
} commands[] = {
	{ "record", cmd_record, "sample the live system and write a profile" },
	{ "daemon", cmd_daemon, "record the machine all the time, and serve what ran" },
	{ "unwind", cmd_unwind, "turn recordings, core files and snapshots into profiles" },
	{ "explain", cmd_explain, "show how one sample was unwound, frame by frame" },
	{ "report", cmd_report, "show, compare, merge and convert profiles" },
	{ "top", cmd_top, "show in a terminal which functions run now" },
	{ "flamegraph", cmd_flamegraph,
	  "make a flame graph page of profiles or of their difference" },
	{ "query", cmd_query, "ask a running daemon, or a fleet, what ran" },
	{ "resymbolize", cmd_resymbolize, "look up the functions of a history again" },
	{ "symbolize", cmd_symbolize, "give names to what a fleet's hosts sent without" },
	{ "fleet", cmd_fleet, "make a fleet's tables in ClickHouse, serve a page over its hosts" },
	{ "archive", cmd_archive, "put capture files into S3, and get them back" },
	{ "cache", cmd_cache, "inspect and maintain the store of unwind tables" },
	{ "doctor", cmd_doctor, "check what works on this machine and how to repair the rest" },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *out)
{
	(void)fprintf(
		out,
		"usage: offwind COMMAND [OPTION]…\n"
		"Profiles Linux programs by unwinding captured stacks outside the kernel.\n\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		(void)fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].sentence);
	(void)fprintf(
		out,
		"\noffwind COMMAND --help and offwind help COMMAND print a command's options,\n"
		"offwind --version prints the version.\n"
		"Exit codes: 0 success, 1 failure, 2 wrong command line, 3 partial success.\n");
}

/* Run the command argv[0]. Return its exit code, or CMD_USAGE after reporting an unknown name. */
static int run_command(int argc, char **argv)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(argv[0], commands[i].name))
			return commands[i].run(argc, argv);
	log_error("there is no command '%s'; see offwind --help", argv[0]);
	return CMD_USAGE;
}

/*
 * Handle the options that come before a command, and run the command. If the program was started
 * under the name perf_to_profile, as go tool pprof does, run that. Return the exit code.
 */
static int run(int argc, char **argv)
{
	const char *slash = strrchr(argv[0] ? argv[0] : "", '/');
	const char *called = slash ? slash + 1 : argv[0];

	/*
	 * Ignore SIGPIPE: if the reader has gone away, the write fails with EPIPE, and the program
	 * goes on.
	 */
	(void)signal(SIGPIPE, SIG_IGN);
	if (called && !strcmp(called, "perf_to_profile"))
		return cmd_perf_to_profile(argc, argv);
	if (argc < 2) {
		usage(stderr);
		return CMD_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		(void)printf("offwind %s\n", OFFWIND_VERSION);
		return CMD_DONE;
	}
	if (!strcmp(argv[1], "help") && argc > 2) {
		static char help[] = "--help";
		char *words[] = { argv[2], help, NULL };

		return run_command(2, words);
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return CMD_DONE;
	}
	return run_command(argc - 1, argv + 1);
}

/*
 * Let no file that is opened later become a standard stream of a caller who closed that one: messages would be written
 * into it. What stands there instead fails as a closed descriptor does, with EBADF.
 */
static void fill_standard_streams(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
	static char buffer[64u << 10];
	int rc;

	fill_standard_streams();
	/*
	 * Buffer output that is not for a terminal: text that fits is written once, by the fflush
	 * below, where errno still holds the reason of a failure.
	 */
	if (!isatty(STDOUT_FILENO))
		(void)setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
	hash_randomize();
	rc = run(argc, argv);
	/* The command is successful only if its standard output could be written. */
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		log_unwritable(NULL, errno ? -errno : output_why(STDOUT_FILENO));
		if (rc == CMD_DONE)
			rc = CMD_FAILED;
	}
	/*
	 * The same exit code as of a program that SIGPIPE killed: `offwind report | head` is no
	 * failure.
	 */
	if (rc != CMD_DONE && log_reader_left())
		rc = 128 + SIGPIPE;
	limits_say();
	log_end();
	return rc;
}

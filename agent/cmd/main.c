/* agent/cmd/main.c: finds the subcommand. */
#include "agent/cmd/cmd.h"

#include "agent/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *sentence;
} commands[] = {
	{ "record", cmd_record, "sample the live system, write a profile" },
	{ "unwind", cmd_unwind, "turn recordings, cores, snapshots into profiles or frames" },
	{ "explain", cmd_explain, "tell one sample's walk frame by frame" },
	{ "report", cmd_report, "show, compare, merge and convert profiles" },
	{ "top", cmd_top, "show what runs right now, live in a terminal" },
	{ "flamegraph", cmd_flamegraph,
	  "make a page for browsers of profiles, or of their difference" },
	{ "cache", cmd_cache, "look into the store of unwind tables, and after it" },
	{ "doctor", cmd_doctor, "say what works on this machine and what to do about the rest" },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *out)
{
	(void)fprintf(
		out,
		"usage: offwind COMMAND [OPTION]…\n"
		"Profiles Linux programs by unwinding captured stacks outside the kernel.\n\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		(void)fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].sentence);
	(void)fprintf(out,
		      "\noffwind COMMAND --help tells its options; offwind --version the version.\n"
		      "Exit codes: 0 done, 1 failed, 2 usage, 3 done in part.\n");
}

static int run(int argc, char **argv)
{
	const char *slash = strrchr(argv[0] ? argv[0] : "", '/');
	const char *called = slash ? slash + 1 : argv[0];

	/* A reader that went away is an error of the write, not the end of the program. */
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
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return CMD_DONE;
	}
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	log_error("no command '%s'; see offwind --help", argv[1]);
	return CMD_USAGE;
}

int main(int argc, char **argv)
{
	int rc = run(argc, argv);

	/* What was said on standard output counts as done only when it is out. */
	errno = 0;
	if (fflush(stdout) || ferror(stdout)) {
		log_error("standard output: cannot be written%s%s", errno ? ": " : "",
			  errno ? strerror(errno) : "");
		if (rc == CMD_DONE)
			rc = CMD_FAILED;
	}
	log_end();
	return rc;
}

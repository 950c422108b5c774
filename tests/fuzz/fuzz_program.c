/*
 * tests/fuzz/fuzz_program.c: fuzzes whole commands. The first byte chooses the command, the rest is
 * the file that it reads: a recording of any kind, a profile or a store. A command must return one
 * of the program's exit codes, and say why if it fails.
 */
#include "agent/cmd/cmd.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS_MAX 12

/* FILE stands for the input's path. */
#define FILE_WORD "FILE"

static const struct {
	int (*run)(int argc, char **argv);
	const char *words[WORDS_MAX];
} commands[] = {
	{ cmd_unwind,
	  { "unwind", "-q", "--symfs", "/nonexistent/root", "-o", "/dev/null", FILE_WORD } },
	{ cmd_unwind,
	  { "unwind", "-q", "--symfs", "/nonexistent/root", "--format", "jsonl", "-o", "/dev/null",
	    FILE_WORD } },
	{ cmd_explain, { "explain", "--symfs", "/nonexistent/root", FILE_WORD } },
	{ cmd_report, { "report", FILE_WORD } },
	{ cmd_report, { "report", "--check", FILE_WORD } },
	{ cmd_flamegraph, { "flamegraph", "-o", "/dev/null", FILE_WORD } },
	{ cmd_cache, { "cache", "ls", "--db", FILE_WORD } },
	{ cmd_cache, { "cache", "verify", "--db", FILE_WORD } },
	{ cmd_cache,
	  { "cache", "query", "--db", FILE_WORD,
	    "select count(*), sum(length(rule)) from unwind_rows" } },
	{ cmd_cache, { "cache", "show", "--db", FILE_WORD, "plain" } },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static char path[64];
static FILE *messages;
static char *said;
static size_t n_said;

static void remove_input(void)
{
	static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };
	char name[sizeof(path) + 16];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		(void)unlink(name);
	}
}

/* What the commands print is looked at here; libFuzzer has its own way to standard error. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	(void)snprintf(path, sizeof(path), "/dev/shm/fuzz_program-%d", (int)getpid());
	(void)atexit(remove_input);
	(void)setenv("OFFWIND_DB", "", 1);
	messages = open_memstream(&said, &n_said);
	stdout = fopen("/dev/null", "we");
	if (!messages || !stdout)
		abort();
	stderr = messages;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *words[WORDS_MAX + 1];
	int n = 0, fd, code;
	size_t i;

	if (size < 1)
		return 0;
	i = data[0] % N_COMMANDS;
	remove_input();
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1) || close(fd))
		abort();
	for (; n < WORDS_MAX && commands[i].words[n]; n++)
		words[n] = strcmp(commands[i].words[n], FILE_WORD)
				   ? (char *)(uintptr_t)commands[i].words[n]
				   : path;
	words[n] = NULL;
	optind = 0;
	rewind(messages);
	code = commands[i].run(n, words);
	(void)fflush(messages);
	if (code < CMD_DONE || code > CMD_PARTLY || code == CMD_USAGE)
		abort();
	if (code == CMD_FAILED && !ftell(messages))
		abort();
	return 0;
}

/*
 * tests/fuzz/fuzz_program.c: fuzzes whole commands. The first byte chooses the command, the rest is
 * the file that it reads: a recording of any kind, a profile or a store. A command must return one
 * of the program's exit codes, and say why if it fails.
 */
#include "unwinder/unwinder.h"

#include <stdlib.h>

/* A worker has a megabyte, which the sanitizer would map, mark and unmap for each input: all get the same one. */
static int same_worker(struct uw_worker **out)
{
	static struct uw_worker *worker;

	if (!worker && uw_worker_new(&worker))
		abort();
	*out = worker;
	return 0;
}

#define uw_worker_new	     same_worker
#define uw_worker_free(same) (void)(same)
#include "agent/pipeline/pipeline.c"

#include "agent/cmd/cmd.h"
#include "agent/limits.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS_MAX 13
#define FRAMES	  100

/* FILE stands for the input's path, OTHER for that of another file, which does not exist yet. */
#define FILE_WORD  "FILE"
#define OTHER_WORD "OTHER"

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
	{ cmd_cache, { "cache", "import", "--db", OTHER_WORD, FILE_WORD } },
	{ cmd_cache, { "cache", "diff", "--strict", FILE_WORD, FILE_WORD } },
	{ cmd_report, { "report", "--by", "comm", "--diff", FILE_WORD, FILE_WORD } },
	{ cmd_unwind,
	  { "unwind", "-q", "--symfs", "/nonexistent/root", "--lines", "--scan", "--verify-reuse",
	    "--format", "folded", "-o", "/dev/null", FILE_WORD } },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static char path[64], other[64 + 2], kernel[32];
static FILE *messages;
static char *said;
static size_t n_said;

static void remove_input(void)
{
	static const char *const suffixes[] = { "",   "-wal",	"-shm",	  "-journal",
						".2", ".2-wal", ".2-shm", ".2-journal" };
	char name[sizeof(path) + 16];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		(void)unlink(name);
	}
}

/* The kernel's symbols are few and always the same: to read the machine's takes milliseconds. */
int open(const char *name, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	if (flags & (O_CREAT | O_TMPFILE)) {
		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
	}
	if (!strcmp(name, "/proc/kallsyms"))
		name = kernel;
	return openat(AT_FDCWD, name, flags, mode);
}

static void make_kernel(void)
{
	static const char text[] = "ffffffff81000000 T _text\nffffffff81000000 T startup_64\n"
				   "ffffffff81001000 T schedule\nffffffff82000000 T _etext\n"
				   "ffffffffc0000000 t ext4_open\t[ext4]\n";
	int fd = memfd_create("kallsyms", MFD_CLOEXEC);

	if (fd < 0 || write(fd, text, sizeof(text) - 1) != (ssize_t)sizeof(text) - 1)
		abort();
	(void)snprintf(kernel, sizeof(kernel), "/proc/self/fd/%d", fd);
}

/* What the commands print is looked at here; libFuzzer has its own way to standard error. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	(void)snprintf(path, sizeof(path), "/dev/shm/fuzz_program-%d", (int)getpid());
	(void)snprintf(other, sizeof(other), "%s.2", path);
	(void)atexit(remove_input);
	(void)setenv("OFFWIND_DB", "", 1);
	limits.frames = FRAMES; /* room is made for all of them, and marked by the sanitizer */
	make_kernel();
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
	static bool is_store; /* a store can have files beside it */
	int n = 0, fd, code;
	size_t i;

	if (size < 1)
		return 0;
	i = data[0] % N_COMMANDS;
	if (is_store)
		remove_input();
	else
		(void)unlink(path);
	is_store = commands[i].run == cmd_cache;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1) || close(fd))
		abort();
	for (; n < WORDS_MAX && commands[i].words[n]; n++)
		words[n] = !strcmp(commands[i].words[n], FILE_WORD) ? path
			   : !strcmp(commands[i].words[n], OTHER_WORD)
				   ? other
				   : (char *)(uintptr_t)commands[i].words[n];
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

/*
 * agent/cmd/walking.h: what the commands that walk stacks have in common: their options,
 * and the inputs they take.
 */
#ifndef AGENT_CMD_WALKING_H
#define AGENT_CMD_WALKING_H

#include "agent/pipeline/pipeline.h"
#include "agent/source/source.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

struct walking {
	struct pipeline_options pipeline; /* its store is the caller's to close */
	uint64_t frames_limit;		  /* the most that --max-frames may ask for */
	const char *db;
	bool no_cache, as_linked, no_lines, no_inline;
	uint32_t pid; /* a running process; 0: none */
};

/* Values for getopt_long, beyond those that a command gives its own options. */
enum {
	WALKING_MAX_FRAMES = 1024,
	WALKING_SCAN,
	WALKING_NO_DEMANGLE,
	WALKING_NO_LINES,
	WALKING_NO_INLINE,
	WALKING_DEBUG_DIR,
	WALKING_DB,
	WALKING_NO_CACHE,
	WALKING_SYMFS,
	WALKING_EXE,
	WALKING_PID,
	WALKING_VERIFY_REUSE,
};

/* Entries of a table for getopt_long. */
/* clang-format off */
#define WALKING_OPTIONS                                               \
	{ "max-frames", required_argument, NULL, WALKING_MAX_FRAMES },    \
	{ "scan", no_argument, NULL, WALKING_SCAN },                      \
	{ "no-demangle", no_argument, NULL, WALKING_NO_DEMANGLE },        \
	{ "no-lines", no_argument, NULL, WALKING_NO_LINES },              \
	{ "no-inline", no_argument, NULL, WALKING_NO_INLINE },            \
	{ "debug-dir", required_argument, NULL, WALKING_DEBUG_DIR },      \
	{ "db", required_argument, NULL, WALKING_DB },                    \
	{ "no-cache", no_argument, NULL, WALKING_NO_CACHE }
/* Of commands that fold. */
#define WALKING_FOLD_OPTIONS                                          \
	{ "verify-reuse", no_argument, NULL, WALKING_VERIFY_REUSE }
/* Of commands that read what was captured, or one process. */
#define WALKING_INPUT_OPTIONS                                         \
	{ "symfs", required_argument, NULL, WALKING_SYMFS },              \
	{ "sysroot", required_argument, NULL, WALKING_SYMFS },            \
	{ "exe", required_argument, NULL, WALKING_EXE }
/* clang-format on */

/* 1: option, from getopt_long, is one of them and taken; 0: it is not; -EINVAL: it was reported. */
int walking_option(struct walking *walking, int option, const char *text);

/* Opens the store that the options name, if any; what fails is reported and costs only time. */
void walking_open_store(struct walking *walking);

/* Says, where it was asked for, how --verify-reuse came out; negative: walks differed. */
int walking_verified(const struct walking *walking, const struct pipeline_reuse *reuse);

/*
 * Opens an input, path NULL: the process, and says in walking->pipeline what its files may be.
 * Reports its own errors.
 */
int walking_open(struct walking *walking, const char *path, struct source **out);

/* Each file that is mapped anywhere is kept open; there may be more than the usual 1,024. */
void walking_allow_many_files(void);

#endif

/* agent/cli/walking.h: options and inputs that are shared by the commands that walk stacks. */
#ifndef AGENT_CLI_WALKING_H
#define AGENT_CLI_WALKING_H

#include "agent/pipeline/pipeline.h"
#include "agent/source/source.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

struct walking {
	struct pipeline_options pipeline; /* the caller closes its store */
	uint64_t frames_limit;		  /* the largest value of --max-frames */
	const char *db;
	bool no_cache, as_linked, no_lines, no_inline;
	uint32_t pid; /* --pid, a running process; 0: none */
};

/* Values for getopt_long, above those of the commands' own options. */
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

/* Entries for a table of getopt_long. */
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
/* For commands that fold equal stacks. */
#define WALKING_FOLD_OPTIONS                                          \
	{ "verify-reuse", no_argument, NULL, WALKING_VERIFY_REUSE }
/* For commands that read recordings, cores and snapshots, or one process. */
#define WALKING_INPUT_OPTIONS                                         \
	{ "symfs", required_argument, NULL, WALKING_SYMFS },              \
	{ "sysroot", required_argument, NULL, WALKING_SYMFS },            \
	{ "exe", required_argument, NULL, WALKING_EXE }
/* clang-format on */

/*
 * Handle an option of the tables above. Return 1 if it was handled, 0 if it is another option, or
 * -EINVAL after reporting what is wrong. text is borrowed as long as walking is used.
 */
int walking_option(struct walking *walking, int option, const char *text);

/*
 * Open the store of --db, or the default one, unless --no-cache was given. A failure is reported
 * and only costs time; the pipeline's store is then NULL.
 */
void walking_open_store(struct walking *walking);

/* With --verify-reuse, report its result. Return 0, or -EBADMSG if stacks differ. */
int walking_verified(const struct walking *walking, const struct pipeline_reuse *reuse);

/*
 * Open the input at path, NULL: the running process walking->pid. Set the options of
 * walking->pipeline that depend on the input: where its files may be, and until when they were as
 * recorded. Return 0 and a source that the caller closes, or a negative code after reporting it.
 */
int walking_open(struct walking *walking, const char *path, struct source **out);

#endif

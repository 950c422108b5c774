/* agent/cli/walking.h: options and inputs that are shared by the commands that walk stacks. */
#ifndef AGENT_CLI_WALKING_H
#define AGENT_CLI_WALKING_H

#include "agent/cli/limit.h"
#include "agent/cli/option.h"
#include "agent/pipeline/pipeline.h"
#include "agent/source/source.h"

#include <stdbool.h>
#include <stdint.h>

struct walking {
	struct pipeline_options pipeline; /* the caller closes its store */
	uint64_t frames_limit;		  /* the largest value of --max-frames */
	const char *db;
	bool no_cache, as_linked, no_lines, no_inline;
	uint32_t pid; /* --pid, a running process; 0: none */
	/* Of walking_open_process, until walking_open takes it; NULL: there is none. */
	struct source *process;
};

/*
 * Rows for the table of a command whose options have a struct walking of that name. What a text
 * points to is borrowed as long as walking is used.
 */
/* clang-format off */
#define WALKING_AT(type, field) .at = offsetof(type, walking.field)
#define WALKING_MAX_FRAMES(type)                                                                  \
	{ "--max-frames", 0, "N", "walk at most N frames of a stack (default 1024)",              \
	  .set = walking_max_frames, .at = offsetof(type, walking) }
#define WALKING_SCAN(type)                                                                        \
	{ "--scan", 0, NULL,                                                                      \
	  "if there is no other way to the caller, take the next word on the\n"                   \
	  "stack that follows a call; such frames are marked as guesses",                         \
	  .set = option_true, WALKING_AT(type, pipeline.scan) }
#define WALKING_VERIFY_REUSE(type)                                                                \
	{ "--verify-reuse", 0, NULL,                                                              \
	  "also walk each stack in full where callers are taken over from the\n"                  \
	  "thread's previous sample, and fail if the results differ",                             \
	  .set = option_true, WALKING_AT(type, pipeline.verify_reuse) }
#define WALKING_NO_DEMANGLE(type)                                                                 \
	{ "--no-demangle", 0, NULL, "print symbol names as the linker has them",                  \
	  .set = option_true, WALKING_AT(type, as_linked) }
#define WALKING_NO_LINES(type)                                                                    \
	{ "--no-lines", 0, NULL, "leave out source lines and inlined calls",                      \
	  .set = option_true, WALKING_AT(type, no_lines) },                                       \
	{ "--no-inline", 0, NULL, "leave out inlined calls",                                      \
	  .set = option_true, WALKING_AT(type, no_inline) }
/* The same for commands that show no lines and only take these options. */
#define WALKING_NO_LINES_HIDDEN(type)                                                             \
	{ "--no-lines", .set = option_true, WALKING_AT(type, no_lines) },                         \
	{ "--no-inline", .set = option_true, WALKING_AT(type, no_inline) }
#define WALKING_STORE(type)                                                                       \
	{ "--debug-dir", 0, "DIR", "look for debug files in DIR, too, before /usr/lib/debug",     \
	  .set = option_text, WALKING_AT(type, pipeline.debug_dir) },                             \
	{ "--db", 0, "FILE",                                                                      \
	  "use FILE as the store of unwind tables (default: $OFFWIND_DB, or this\n"               \
	  "user's store)",                                                                        \
	  .set = option_text, WALKING_AT(type, db) },                                             \
	{ "--no-cache", 0, NULL, "use no store of unwind tables",                                 \
	  .set = option_true, WALKING_AT(type, no_cache) }
/* For commands that look up names of addresses that they have. */
#define WALKING_LOOKUP(type)                                                                      \
	{ "--symfs", 0, "DIR",                                                                    \
	  "look for the files below DIR first (by path, name or build-id), then on\n"             \
	  "this host",                                                                            \
	  .set = option_text, WALKING_AT(type, pipeline.symfs) }
/* The last rows of a command that names frames. */
#define WALKING_LAST_ROWS(type)                                                                   \
	WALKING_NO_DEMANGLE(type), WALKING_NO_LINES(type), LIMIT_OPTION, WALKING_STORE(type),     \
		OPTION_QUIET, OPTION_VERBOSE, OPTION_HELP
/* For commands that read recordings, cores and snapshots, or one process. */
#define WALKING_INPUT(type)                                                                       \
	{ "--symfs", 0, "DIR",                                                                    \
	  "look for the recorded files below DIR first (by path, name or\n"                       \
	  "build-id), then on this host; --sysroot means the same",                               \
	  .set = option_text, WALKING_AT(type, pipeline.symfs) },                                 \
	{ "--sysroot", 0, "DIR", .set = option_text, WALKING_AT(type, pipeline.symfs) },          \
	{ "--exe", 0, "FILE", "use FILE as the program of a core file",                           \
	  .set = option_text, WALKING_AT(type, pipeline.exe) }
/* clang-format on */

/* Take the number of frames, which is at most frames_limit. to is the struct walking. */
int walking_max_frames(void *to, const char *option, char *text);
/* Take the number of a running process. to is the struct walking. */
int walking_pid(void *to, const char *option, char *text);

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
/*
 * Capture the running process of --pid, if that was given, while this process still has its rights.
 * Return 0, or a negative code after reporting it.
 */
int walking_open_process(struct walking *walking);

#endif

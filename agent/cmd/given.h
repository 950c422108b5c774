/*
 * agent/cmd/given.h: loads profiles that the command line names: pprof files, or recordings, which
 * are unwound first.
 */
#ifndef AGENT_CMD_GIVEN_H
#define AGENT_CMD_GIVEN_H

#include "agent/cli/pick.h"
#include "agent/cli/when.h"
#include "agent/export/profile/stacks.h"

struct store;
struct supervision;

/* clang-format off */
#define GIVEN_RANGE_ROWS(type)                                                                    \
	{ "--from", 0, "TIME", OPTION_BESIDE, .set = when_option,                                 \
	  .at = offsetof(type, pick.from_ns) },                                                   \
	{ "--to", 0, "TIME",                                                                      \
	  "use this range of a history: -10m, now, 23:59, \"2026-01-31 23:59:59\",\n"            \
	  "@1790000000; without FILE the history of this machine's daemon",                       \
	  .set = when_option, .at = offsetof(type, pick.to_ns), .column = 28 }
/* clang-format on */

/*
 * Add the profile at path, "-" for standard input, as stacks_load does. Unwind the input first if
 * it is a perf.data file, a capture file, a core file or a snapshot's directory. pick selects
 * samples and works for recordings only. store is from given_begin. Return 0, or a negative code
 * after reporting what is wrong.
 */
int given_load(struct stacks *stacks, const char *path, bool base, struct pick *pick,
	       struct store *store);

/* Return the exit code: CMD_FAILED if err is not 0, CMD_PARTLY if a part of what was loaded is damaged, or CMD_DONE. */
int given_code(int err);

/*
 * Begin a command that loads these inputs: go into the sandbox, and before that open the store if an
 * input is a recording. The store is then for given_load, and the caller closes it; else it is NULL.
 * Return 0 or a negative code after reporting it.
 */
int given_begin(const struct supervision *supervision, struct store **store);

/*
 * Return what is read if the command line names no file: with a range of time the daemon's history, and
 * else the profile or recording in the current directory: offwind.pb.gz, else offwind.owc, else
 * perf.data. NULL after reporting, in the name of command, that there is none. The caller frees
 * *owned.
 */
char *given_last(const char *command, const struct pick *pick, char **owned);

/* Return the path of the daemon's history, which the caller frees; NULL after reporting that there is none. */
char *given_history(void);

#endif

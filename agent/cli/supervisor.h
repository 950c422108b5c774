/*
 * agent/cli/supervisor.h: splits a command into roles: a worker that reads what others wrote, an opener
 * that opens files for it, and a supervisor over both (docs/security.md, "Roles").
 *
 * The process that the user started becomes the supervisor. The command goes on in the worker, as if
 * nothing had happened: it reads inputs with agent/role/files.h, modules with agent/opener, and writes
 * its result with agent/export/output.h.
 */
#ifndef AGENT_CLI_SUPERVISOR_H
#define AGENT_CLI_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>

struct supervision {
	/* What the worker may read: these files, and what is below these directories. */
	char *const *inputs;
	size_t n_inputs;
	const char *const *bases; /* and these */
	size_t n_bases;
	const char *output; /* the result that it may write; NULL: none */
	const char *db;	    /* of the store, as store_open takes it, for the quarantine; */
	bool no_store;	    /* --no-cache */
};

/* Return input number i, or the base after the inputs; NULL: there are not so many. */
const char *supervision_input(const struct supervision *supervision, size_t i);

/*
 * Fork. Return 0 in the worker, which the caller is from now on; it still has all rights, until it
 * calls supervisor_confine. Never returns in the supervisor, which ends with the worker's exit code.
 * Also return 0, without any fork, if the environment says OFFWIND_SANDBOX=off or this program cannot
 * be confined. A negative code: the processes could not be made; it was reported.
 *
 * If a worker dies while it reads a file, and its output can be begun again, another worker begins
 * from here, and does not read that file.
 */
int supervisor_start(const struct supervision *supervision);

/* In the worker: give up all rights. What must be opened directly is open. Ends the process on failure. */
void supervisor_confine(void);

#endif

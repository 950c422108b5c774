/*
 * agent/cli/supervisor.h: splits a command into roles: a worker that reads what others wrote, an opener
 * that opens files for it, a capture process if the live system is recorded, and a supervisor over all
 * (docs/security.md, "Roles").
 *
 * The process that the user started becomes the supervisor. The command goes on in the worker, as if
 * nothing had happened: it reads inputs with agent/role/files.h, modules with agent/opener, and writes
 * its result with agent/export/output.h.
 */
#ifndef AGENT_CLI_SUPERVISOR_H
#define AGENT_CLI_SUPERVISOR_H

#include "agent/role/cost.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source_live_options;

/*
 * A process beside the worker that reads the results, and serves or sends them. It is begun again if it
 * dies, and ends with the supervisor.
 */
struct supervisor_beside {
	const char *title;   /* of the process */
	const char *what;    /* what it does, for messages: "serves HTTP" */
	enum cost_role cost; /* COST_SERVER or COST_SENDER */
	/* Gives up the process's rights, and does not return unless it fails. */
	int (*run)(void *ctx);
	const int *fds; /* which the other processes close */
	size_t n_fds;
	bool asks; /* it may ask the supervisor: see fork of supervisor_service */
};

enum { SUPERVISOR_BESIDE = 2 };

enum supervisor_state { SUPERVISOR_RECORDS, SUPERVISOR_RELOADS, SUPERVISOR_ENDS };

/* What a recording that is a service does in the supervisor. */
struct supervisor_service {
	/*
	 * Called about once a second, and when the state changed. beats grows as long as a worker
	 * records (agent/role/reading.h).
	 */
	void (*watch)(void *ctx, enum supervisor_state state, uint64_t beats);
	/*
	 * On SIGHUP, reload reads the settings. It calls supervisor_change, or returns whether everything
	 * is to begin again: then the worker ends as by SIGTERM, and so do all other processes, and again
	 * executes this program anew. That returns only if it fails, after reporting it.
	 */
	bool (*reload)(void *ctx);
	void (*again)(void *ctx);
	void *ctx;
	/*
	 * What a process beside the worker may ask the supervisor for, if its asks is set
	 * (agent/cmd/on_demand.h); fork NULL: nothing. fork is called before that process is forked and, with forked set, after that; leave in
	 * each other process that is forked; act when *poll is readable, and about once a second; end
	 * when everything ends. asked is their argument.
	 */
	void (*fork)(void *asked, bool forked);
	void (*leave)(void *asked);
	void (*act)(void *asked);
	void (*end)(void *asked);
	const int *poll;
	void *asked;
	/*
	 * The descriptor of a lock, which capture process and opener close: they may wait for a file server
	 * after SIGKILL, too, and who comes next would wait for them. -1: none.
	 */
	int lock;
};

struct supervision {
	/* What the worker may read: these files, and what is below these directories. */
	char *const *inputs;
	size_t n_inputs;
	const char *const *bases; /* and these */
	size_t n_bases;
	const char *output, *statistics; /* the results that it may write; NULL: none */
	/*
	 * A directory in which it may write windows (agent/export/windows.h), and how many of them
	 * are kept; NULL: none.
	 */
	const char *windows;
	uint32_t keep;
	const char *db; /* of the store, as store_open takes it, for the quarantine; */
	bool no_store;	/* --no-cache */
	const char
		*history; /* the database that windows are added to (agent/history); NULL: none */
	/*
	 * Record the live system with these options, in a process of its own; NULL: no. The worker
	 * opens the source with source_live_open.
	 */
	const struct source_live_options *live;
	bool streams; /* a recording's result goes to standard output: it cannot be begun again */
	int realtime; /* the priority of that process (sched(7)); 0: as this one */
	struct supervisor_beside beside[SUPERVISOR_BESIDE]; /* run NULL: there is no such process */
	const struct supervisor_service *service; /* NULL: this is no service, and SIGHUP ends it */
	struct cost *cost;   /* what a recording's processes use; NULL: it is not measured */
	uint32_t cpu_budget; /* with cost: of all these, in millionths of a CPU; 0: none */
	/*
	 * What the command itself does in the supervisor; NULL: nothing. ask serves the worker's
	 * files_command and returns a code; ended is called when the worker has ended.
	 */
	int (*ask)(void *ctx, uint64_t what, uint64_t *number);
	void (*ended)(void *ctx);
	void *ctx;
};

/*
 * In a service's supervisor, while it records: let the capture process have another rate and other filters
 * (capture_change), which those of supervision.live allow to change; and another budget.
 */
int supervisor_change(const struct source_live_options *options, uint32_t cpu_budget, char *error);

/* Return input number i, or the base after the inputs; NULL: there are not so many. */
const char *supervision_input(const struct supervision *supervision, size_t i);

/*
 * Return whether there is one process only: the environment says OFFWIND_SANDBOX=off, or this program
 * cannot be confined, because it was built with a sanitizer. Nothing is served then.
 */
bool supervisor_is_off(void);

/*
 * Fork. Return 0 in the worker, which the caller is from now on; it still has all rights, until it
 * calls supervisor_confine. Never returns in the supervisor, which ends with the worker's exit code.
 * Also return 0, without any fork, if supervisor_is_off. A negative code: the processes could not be made; it was reported.
 *
 * If a worker dies while it reads a file, and its output can be begun again, another worker begins
 * from here, and does not read that file.
 */
int supervisor_start(const struct supervision *supervision);

/*
 * Return whether this worker follows one that died. What the command line asks for has begun then: a
 * recording's command runs, and its time passes.
 */
bool supervisor_is_again(void);

/*
 * In the worker of a recording, once it has handlers for SIGINT and SIGTERM: let those come that were sent
 * since supervisor_start. Nothing elsewhere.
 */
void supervisor_hear_signals(void);

/* In the worker: give up all rights. What must be opened directly is open. Ends the process on failure. */
void supervisor_confine(void);

#endif

/*
 * agent/cli/supervisor_internal.h: what the parts of the supervisor share. supervisor.c is its life, supervisor_roles.c
 * its processes, supervisor_serve.c what the worker may ask for, supervisor_signals.c, supervisor_cost.c what recording
 * costs, and supervisor_deaths.c what becomes of the work of a worker that died.
 */
#ifndef AGENT_CLI_SUPERVISOR_INTERNAL_H
#define AGENT_CLI_SUPERVISOR_INTERNAL_H

#include "agent/cli/supervisor.h"
#include "agent/export/output.h"
#include "agent/opener/request.h"
#include "agent/role/cost.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct channels;
struct files_facts;

#define OUTPUTS_MAX 16

enum { SUPERVISOR_PASSED = 4 }; /* signals that are passed on */

/* A process that writes a database, and has no other rights. It is started when it is first asked. */
struct keeper {
	struct channels *channels; /* to it; NULL: it was started, or is not wanted */
	pid_t pid;		   /* 0: there is none */
};

enum { STORE, HISTORY, KEEPERS };

struct beside {
	pid_t pid; /* 0: there is none */
	uint64_t began_ns;
};

struct supervisor {
	const struct supervision *given;
	struct reading_notes *reading; /* shared with the workers */
	int socket;		       /* to the worker */
	pid_t worker, opener, capture; /* 0: there is none */
	struct beside beside[SUPERVISOR_BESIDE];
	struct cost_seen seen[COST_BPF]; /* what each role's process had used at measured_ns */
	uint64_t measured_ns;
	struct capture *live; /* to the capture process; NULL: there is none */
	struct keeper keepers[KEEPERS];
	/* To those that are the opener from their first request on, when one hangs; NULL: as of a keeper */
	struct channels *spares[REQUEST_SPARES];
	struct output outputs[OUTPUTS_MAX]; /* which the worker writes; fd -1: not in use */
	struct sigaction before
		[SUPERVISOR_PASSED]; /* what the signals that are passed on did at the start */
	sigset_t signals;	     /* blocked ones, for a new worker */
	int standard;		     /* standard output, for the next worker; -1: it is closed */
	off_t input_at;		     /* where standard input began; -1: it cannot be read again */
	bool done;		     /* the result is complete */
	bool reads_standard;	     /* standard input is an input */
};

/* ---- supervisor_signals.c ---- */

/* What signals asked for, and whom they are passed on to. */
struct supervisor_signals {
	volatile pid_t worker;		 /* the current one; 0: there is none */
	volatile sig_atomic_t end;	 /* the signal that asked for it, or 0 */
	volatile sig_atomic_t reload;	 /* asked for by SIGHUP, for a service */
	volatile sig_atomic_t reloading; /* the worker was asked to end for that */
};
extern struct supervisor_signals supervisor_signals;

/* Pass signals on to the worker from now on. What they did before is noted in s. */
void supervisor_take_signals(struct supervisor *s);
/* Block those signals; before gets the set that was blocked. */
void supervisor_block_signals(sigset_t *before);
/* In a new process that is not the worker: leave the signals to the supervisor. */
void supervisor_ignore_signals(void);
/*
 * In the worker: let signals do what they did when the command began. Those of a recording wait for
 * supervisor_hear_signals.
 */
void supervisor_restore_signals(const struct supervisor *s);

/* ---- supervisor_serve.c ---- */

/* Do what one request of the worker asks for. Return its error. */
int supervisor_serve(struct supervisor *s, uint64_t what, const char *path, uint64_t value,
		     int with, int *fd, uint64_t *number, struct files_facts *facts);
/* Let readers of a pipe see its end when the worker closes it. */
void supervisor_let_go_of_output(void);
/* Let standard output be what it was at the start. */
void supervisor_lend_output(const struct supervisor *s);
/* Remove unfinished results. */
void supervisor_abort_outputs(struct supervisor *s);

/* ---- supervisor_cost.c ---- */

/* Begin to measure, and to follow the budget. -ENOMEM. */
int supervisor_cost_init(const struct supervisor *s);
/* Change this capture process's rate from now on; NULL: none. It is borrowed. */
void supervisor_cost_of(struct capture *capture);
/* Measure all processes, about once a second, and keep to the budget. */
void supervisor_look_at_cost(struct supervisor *s);

/* ---- supervisor_deaths.c ---- */

/* Return whether a process that this signal ended may have been ended by what it read. */
bool supervisor_is_crash(int number);
const char *supervisor_signal_name(int number);
/*
 * Refuse what the dead worker was reading, or walking, to the next one, and report it. Return whether there is
 * anything.
 */
bool supervisor_refuse_what_it_read(struct supervisor *s, int number);
/* Return whether another worker can do the work from its beginning. */
bool supervisor_can_begin_again(const struct supervisor *s);
/* Bring standard input and output back to where they were. */
void supervisor_rewind_standard(struct supervisor *s, off_t output_at);

/* ---- supervisor_roles.c ---- */

/* Start the capture process, before there are others. Return 0 or a negative code. */
int supervisor_start_capture(struct supervisor *s);
/* Fork an opener and a worker. Return 1 in the worker, 0 in the supervisor, or a negative code. */
int supervisor_fork_roles(struct supervisor *s);
/* End the opener. */
void supervisor_end_opener(struct supervisor *s);
/* Start a keeper, which answers the worker from now on. */
void supervisor_start_keeper(struct supervisor *s, size_t which);
/* Start another opener, and end the one before. If that fails, that one stays, and the worker is told. */
void supervisor_start_spare(struct supervisor *s, size_t which);
/* Start the processes beside the worker, and those again that died. */
void supervisor_keep_beside(struct supervisor *s);
/* End them. */
void supervisor_end_beside(struct supervisor *s);
/* End what was begun for requests. */
void supervisor_end_asked_for(const struct supervisor *s);
/* End the capture process, and wait for it. */
void supervisor_end_capture(struct supervisor *s);
/* Wait for a process that is about to end, but not for ever. Return whether it ended. */
bool supervisor_wait_for(pid_t pid, int most_ms);

#endif

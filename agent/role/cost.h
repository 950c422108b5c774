/*
 * agent/role/cost.h: what the processes of one command use: CPU time and memory, in memory that they
 * share. The supervisor measures its children; the capture process says what the BPF programs take.
 */
#ifndef AGENT_ROLE_COST_H
#define AGENT_ROLE_COST_H

#include <stdint.h>
#include <sys/types.h>

enum cost_role {
	COST_SUPERVISOR,
	COST_CAPTURE,
	COST_OPENER,
	COST_WORKER,
	COST_STORE,
	COST_HISTORY,
	COST_SERVER,
	COST_SENDER,
	COST_BPF,	 /* CPU time in which stacks are copied, in the programs that are sampled */
	COST_RECORDINGS, /* all processes of recordings that requests asked for, when these ended */
	COST_ROLES
};

struct cost { /* all processes may read; each field has one writer */
	/* Since the command began, also of processes that ended; 0 bytes: there is no such process. */
	_Atomic uint64_t cpu_ns[COST_ROLES], resident[COST_ROLES];
	_Atomic uint64_t rate_hz, configured_hz; /* samples a second on each CPU; 0: not known */
	_Atomic uint64_t n_lowered; /* times that the rate was lowered to save CPU time */
};

/* What one process had used when it was last measured. */
struct cost_seen {
	pid_t pid;
	uint64_t cpu_ns;
};

/* Make the memory that is shared with the processes forked later. -ENOMEM. */
int cost_new(struct cost **out);
/* In a process that reads what others wrote: forget that memory. NULL is fine. */
void cost_free(struct cost *cost);

const char *cost_name(enum cost_role role);

/*
 * Measure the process that has a role now; pid 0: none. What it used since the last call is added. The
 * last moments of a process that ended are not known.
 */
void cost_measure(struct cost *cost, enum cost_role role, pid_t pid, struct cost_seen *seen);

/* Return the CPU time of all roles but recordings, whose rate was asked for. */
uint64_t cost_cpu_ns(struct cost *cost);

#endif

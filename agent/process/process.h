/*
 * agent/process/process.h: processes and threads as events tell of them: names
 * and mappings at the time of each sample.
 */
#ifndef AGENT_PROCESS_PROCESS_H
#define AGENT_PROCESS_PROCESS_H

#include "agent/process/modules.h"

struct processes;

struct thread {
	uint32_t tid, pid;
	const char *comm;	  /* kept for the life of struct processes; sanitised */
	const char *process_comm; /* the same of the thread group's leader */
	struct uw_space *space;	  /* borrowed until the next event */
	bool generates;		  /* it has executable memory without a file */
	uint64_t files;		  /* another number: another process, or other files are mapped */
};

/* modules is borrowed and must outlive it. */
int processes_new(uint16_t machine, struct modules *modules, struct processes **out);
/* Walks ask these; borrowed, to be set before the first event.  NULL: the built-in ones. */
void processes_use(struct processes *processes, const struct uw_steppers *steppers);
void processes_free(struct processes *processes); /* NULL is fine */

/* Takes in a mapping, exec, fork, exit, comm or generated event; others are ignored.  -ENOMEM. */
int processes_event(struct processes *processes, const struct event *event);

/* The state a sample needs; a thread never heard of gets an empty one.  -ENOMEM. */
int processes_thread(struct processes *processes, uint32_t pid, uint32_t tid, struct thread *out);

uint16_t processes_machine(const struct processes *processes);
size_t processes_count(const struct processes *processes);

#endif

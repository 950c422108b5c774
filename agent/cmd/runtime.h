/*
 * agent/cmd/runtime.h: recognizes sampled interpreters. A profile names the interpreter's own
 * functions, but not those of the program that it runs.
 */
#ifndef AGENT_CMD_RUNTIME_H
#define AGENT_CMD_RUNTIME_H

#include "agent/event.h"

#include <stdbool.h>
#include <stddef.h>

enum { RUNTIME_PROCESSES = 256, RUNTIME_KINDS = 8 };

struct runtime { /* all zero: no interpreter seen */
	struct runtime_process {
		uint32_t pid;
		unsigned int kind;	/* index of the kind plus 1; 0: free */
		bool named;		/* a sample had functions that it runs */
	} processes[RUNTIME_PROCESSES]; /* the latest processes, by pid modulo RUNTIME_PROCESSES */
	struct runtime_seen {
		uint32_t pid; /* the first sampled process of this kind; 0: none */
	} seen[RUNTIME_KINDS];
	uint64_t n_named; /* of the last event */
};

/*
 * Process an event: mappings show which processes are interpreters, and samples which of them were
 * sampled. n_named: for how many samples, with this one, all functions that an interpreter runs were found.
 */
void runtime_event(struct runtime *runtime, const struct event *event, uint64_t n_named);

/*
 * For each kind of interpreter that was sampled, report once what has no names and what would
 * help.
 */
void runtime_say(const struct runtime *runtime);

#endif

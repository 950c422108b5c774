/*
 * agent/cmd/runtime.h: interpreters among what was sampled, whose programs' functions have no names
 * in a profile.
 */
#ifndef AGENT_CMD_RUNTIME_H
#define AGENT_CMD_RUNTIME_H

#include "agent/event.h"

#include <stddef.h>

enum { RUNTIME_PROCESSES = 256, RUNTIME_KINDS = 8 };

struct runtime { /* all zero: none was seen */
	struct runtime_process {
		uint32_t pid;
		unsigned int kind;	/* counts from 1 */
	} processes[RUNTIME_PROCESSES]; /* the last ones; a hash of the pid is its place */
	struct runtime_seen {
		uint32_t pid; /* of the first that was sampled; 0: none */
	} seen[RUNTIME_KINDS];
};

/* Take in an event: mappings say which processes are interpreters, samples which of them count. */
void runtime_event(struct runtime *runtime, const struct event *event);

/* Say once for each kind of interpreter that was sampled what is not named, and what would help. */
void runtime_say(const struct runtime *runtime);

#endif

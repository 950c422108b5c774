/*
 * agent/process/contexts.h: lets the labels of processes follow what programs say of themselves
 * (agent/process/otel_context.h).
 */
#ifndef AGENT_PROCESS_CONTEXTS_H
#define AGENT_PROCESS_CONTEXTS_H

#include "agent/opener/opener.h"
#include "agent/process/process.h"

struct contexts {		     /* all but the first two zero */
	struct processes *processes; /* borrowed */
	struct opener *opener;	     /* likewise; live */
	uint64_t rest_ns;	     /* nothing is read before this time */
	size_t late; /* a process whose memory does not answer; for opener_is_late */
	bool is_late;
	struct opener_context read;
};

/*
 * Call this before a sample is processed. Look whether its process publishes a context, and read it if it
 * is new. A process that has just begun is not read: most end soon. One without a context is read again
 * after 1 s, 2 s and so on up to a minute, one with a context every 5 s; reading takes at most a tenth of
 * the time. Return whether it was read: contexts->read has it.
 */
bool contexts_look(struct contexts *contexts, const struct event *sample);

#endif

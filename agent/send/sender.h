/*
 * agent/send/sender.h: a process of its own that sends the windows of the history to other systems
 * (docs/fleet.md; docs/security.md, "Roles").
 *
 * Each target has a thread and a connection of its own, so that one which hangs holds no other. How far
 * each got is in a file beside the history (agent/send/sent.h). Windows wait in the history, nowhere else:
 * what records never waits for a receiver.
 */
#ifndef AGENT_SEND_SENDER_H
#define AGENT_SEND_SENDER_H

#include "agent/send/target.h"

struct sender {
	struct target targets[SENDING_TARGETS];
	size_t n_targets;
	const char *history;	 /* path of the database */
	struct sending *sending; /* what is counted; shared with other processes */
};

/* Make the memory in which is counted, with the names of the targets, before there are processes. -ENOMEM. */
int sender_prepare(struct sender *sender);
/*
 * In a process of its own: give up all rights but those to send, and do that until the process is ended.
 * Return a negative code after reporting why it cannot be done.
 */
int sender_run(struct sender *sender);
void sender_fini(struct sender *sender);

#endif

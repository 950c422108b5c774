/*
 * agent/live/choice.h: what of a recording can be changed while it goes on: the rate, and the filters by
 * process, name, user and cgroup. Copies of it, and messages with it.
 */
#ifndef AGENT_LIVE_CHOICE_H
#define AGENT_LIVE_CHOICE_H

#include "agent/role/message.h"
#include "agent/source/source.h"

struct live_choice { /* all zero: nothing */
	/* frequency_hz, pids, comms, uids, cgroups, containers, pods and units; the lists are owned. */
	struct source_live_options options;
};

/* Copy the choice of options, or take it from a message. live_choice_fini releases *out. */
int live_choice_copy(const struct source_live_options *options, struct live_choice *out);
int live_choice_take(struct message *m, struct live_choice *out); /* -EBADMSG, -ENOMEM */
void live_choice_fini(struct live_choice *choice);

/* Add the choice of options to a message, whose err tells if it is too large. */
void live_choice_put(struct message *m, const struct source_live_options *options);

#endif

/*
 * agent/send/debuginfo.h: sends files with symbols to Parca, if the settings say so: those that it wants, of the
 * programs that were sampled.
 *
 * The process that sends has the rights of nobody, so only files are sent that everybody may read.
 */
#ifndef AGENT_SEND_DEBUGINFO_H
#define AGENT_SEND_DEBUGINFO_H

#include "agent/send/post.h"

struct debuginfo;

/* Begin. Target and post are borrowed. -ENOMEM. */
int debuginfo_new(const struct target *target, struct post *post, struct debuginfo **out);
void debuginfo_free(struct debuginfo *debuginfo); /* NULL is fine */

/*
 * Ask the receiver about files of these stacks that it was not asked about, and send one that it
 * wants. What fails is reported once, and asked again after an hour.
 */
void debuginfo_send(struct debuginfo *debuginfo, const struct stacks *stacks);

#endif

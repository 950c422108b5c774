/*
 * agent/process/generated.h: what processes register of code that they generate, read
 * while it is there: out of a process that lives, or of a core's memory.
 */
#ifndef AGENT_PROCESS_GENERATED_H
#define AGENT_PROCESS_GENERATED_H

#include "agent/event.h"
#include "agent/process/process.h"

struct generated;

/* processes is borrowed; live: their numbers are those of running processes. */
int generated_new(struct processes *processes, bool live, struct generated **out);
void generated_free(struct generated *generated); /* NULL is fine */

/*
 * Before a sample is taken in: 1: its process has registered something new, which *out tells,
 * borrowed until the next call; 0: nothing.  Asks a process that generates no code nothing;
 * one that does for the heads of its lists, and once they changed for at most
 * DYNAMIC_SIZE_MAX bytes and 10 ms; however often it changes them, for a tenth of the time.
 */
int generated_look(struct generated *generated, const struct event *sample, struct event *out);

#endif

/*
 * agent/process/generated.h: what processes register of code that they generate, read
 * while it is there: out of a process that lives, or of a core's memory.
 */
#ifndef AGENT_PROCESS_GENERATED_H
#define AGENT_PROCESS_GENERATED_H

#include "agent/event.h"
#include "agent/process/process.h"

struct generated;

struct opener;

/* Both are borrowed; live: processes' numbers are those of running ones. */
int generated_new(struct processes *processes, struct opener *opener, bool live,
		  struct generated **out);
void generated_free(struct generated *generated); /* NULL is fine */

/*
 * Before a sample is taken in: 1: its process has registered something new, which *out tells,
 * borrowed until the next call; 0: nothing.  Asks a process that generates no code nothing;
 * one that does for the heads of its lists, and once they changed for at most
 * DYNAMIC_SIZE_MAX bytes and 10 ms; however often it changes them, for a tenth of the time.
 */
int generated_look(struct generated *generated, const struct event *sample, struct event *out);

/*
 * What a process wrote into its perf-PID.map since it was asked last: names alone.  1: *out tells,
 * as above; 0: nothing new.  To be asked when a process ends, and …
 */
int generated_names(struct generated *generated, uint32_t pid, struct event *out);
/* … of all, from *at = 0 on until 0, when names are about to be needed. */
int generated_all_names(struct generated *generated, size_t *at, struct event *out);

#endif

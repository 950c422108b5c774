/*
 * agent/process/generated.h: reads what processes register about the code that they generate, while
 * it exists: from the memory of a living process or of a core file.
 */
#ifndef AGENT_PROCESS_GENERATED_H
#define AGENT_PROCESS_GENERATED_H

#include "agent/event.h"
#include "agent/process/process.h"

struct generated;

struct opener;

/* Create the reader. Both are borrowed. live: pids are those of running processes. */
int generated_new(struct processes *processes, struct opener *opener, bool live,
		  struct generated **out);
/* From now on, take more time for reading: no other samples wait, and there is none later that could get it. */
void generated_wait(struct generated *generated);
void generated_free(struct generated *generated); /* NULL is fine */

/*
 * Call this before a sample is processed, until it returns 0, but not more than GENERATED_LOOKS times. Return 1
 * if the sample's process has registered new code, or if frames on the sample's stack execute what was not
 * known; *out describes it and is borrowed until the next call. Return 0 if there is nothing new. A
 * process that generates no code, and is not node, is not read at all. For a process that does, the heads of its
 * lists are read. When they have changed, at most DYNAMIC_SIZE_MAX bytes are read, for at most 10
 * ms. However often the process changes its lists, reading takes at most a tenth of the time.
 */
#define GENERATED_LOOKS 4
int generated_look(struct generated *generated, const struct event *sample, struct event *out);

/*
 * Read what the process wrote to its perf-PID.map since the last call: names only. Return 1 and
 * *out as above, or 0 if there is nothing new. Call this when a process ends.
 */
int generated_names(struct generated *generated, uint32_t pid, struct event *out);
/*
 * Do the same for all processes, before names are needed. Begin with *at = 0 and repeat until the
 * result is 0.
 */
int generated_all_names(struct generated *generated, size_t *at, struct event *out);
/* Free what is kept to read a process again. Call this when it has ended, after generated_names. */
void generated_ended(struct generated *generated, uint32_t pid);

#endif

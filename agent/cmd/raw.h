/*
 * agent/cmd/raw.h: a capture file written while recording.
 *
 * It is written in place from the first event on, so that a kill leaves all but
 * the last moment; an older file of that name is kept as NAME.old, as perf does.
 */
#ifndef AGENT_CMD_RAW_H
#define AGENT_CMD_RAW_H

#include "agent/source/source.h"

#include <stdbool.h>

struct raw;
struct opener;

/*
 * Reports.  opener: look for code that processes generate before each sample, and write what they
 * say of it; borrowed; NULL: somebody else does, and gives it as an event.
 */
int raw_open(const char *path, const struct source *source, struct opener *opener,
	     struct raw **out);
int raw_event(struct raw *raw, const struct event *event);
int raw_idle(struct raw *raw); /* no event came for a while: what waits goes out */

/*
 * Adds the names of the kernel addresses that were seen, since they cannot be
 * had anywhere else, and closes the file.  Reports; frees raw in any case.
 */
int raw_close(struct raw *raw, struct opener *opener);

#endif

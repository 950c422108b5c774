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
 * say of it; borrowed; NULL: somebody else does, and gives it as an event.  whole_files: keep all of each
 * sampled file, not only what naming and walking need of it.
 */
int raw_open(const char *path, const struct source *source, struct opener *opener, bool whole_files,
	     struct raw **out);
int raw_event(struct raw *raw, const struct event *event);
int raw_idle(struct raw *raw); /* no event came for a while: what waits goes out */

/*
 * Add the names of the kernel addresses that were seen, and what naming and walking need of the files
 * that were sampled, and close the file.  modules: those that a pipeline walked with, where
 * raw_open got no opener.  *n_samples: how many are in the file, also on failure.  Reports; frees
 * raw in any case.
 */
struct modules;
int raw_close(struct raw *raw, struct opener *opener, struct modules *modules, uint64_t *n_samples);

#endif

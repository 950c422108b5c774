/*
 * agent/live/remote.h: the source whose events come from the capture process. Each function does what
 * the one of the same name in agent/live/live.h or agent/source/source.h does.
 */
#ifndef AGENT_LIVE_REMOTE_H
#define AGENT_LIVE_REMOTE_H

#include "agent/live/live.h"

#include <stdbool.h>

bool live_remote_is_used(void); /* see capture_use */
int live_remote_open(struct source **out, char *error);
bool live_is_remote(const struct source *source);

int live_remote_counters(struct source *source, int cpu, struct live_counters *counters);
int live_remote_totals(struct source *source, struct live_totals *totals);
int live_remote_n_cpus(struct source *source);
int live_remote_counted(struct source *source, size_t event, uint64_t *counted);
int live_remote_alloc_cost(struct source *source, struct live_alloc_cost *cost);

#endif

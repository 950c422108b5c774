/*
 * agent/live/system/inventory.h: reads from /proc what already runs when recording begins:
 * processes, threads, names and executable mappings.
 */
#ifndef AGENT_LIVE_SYSTEM_INVENTORY_H
#define AGENT_LIVE_SYSTEM_INVENTORY_H

#include "agent/event.h"

#include <stdbool.h>
#include <stdint.h>

/* Receives an event, which is valid until the function returns. A result that is not 0 stops. */
typedef int (*live_event_fn)(void *ctx, const struct event *event);

/*
 * Pass what already runs to fn: each process as a fork without a parent (it inherits nothing), then
 * its threads, their names and its mappings. Each event has a time before it was read, so
 * everything that the side-band reports later is newer. wanted (NULL: all) selects the processes.
 * If a process ends meanwhile, fn gets what was read until then. If a process has thousands of
 * mappings, some may be left out, with a warning: reading them may take 0.2 seconds of CPU time
 * in all. So may those of a process that keeps its reader waiting (opener_errand). Return fn's first result that is not 0, -ENOMEM, or the error of listing /proc.
 */
int live_inventory(bool (*wanted)(const void *ctx, uint32_t pid), const void *wanted_ctx,
		   live_event_fn fn, void *ctx);

typedef int (*live_pid_fn)(void *ctx, uint32_t pid);
int live_processes(live_pid_fn fn, void *ctx); /* calls fn for each process, by number */

/*
 * Return whether the kernel supports PROCMAP_QUERY (6.11 and newer): mappings with their build-ids.
 */
bool live_procmap_query(void);

#endif

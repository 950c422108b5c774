/*
 * agent/source/live_inventory.h: what already ran when recording began: threads,
 * names and executable mappings, from /proc.
 */
#ifndef AGENT_SOURCE_LIVE_INVENTORY_H
#define AGENT_SOURCE_LIVE_INVENTORY_H

#include "agent/event.h"

#include <stdbool.h>
#include <stdint.h>

typedef int (*live_event_fn)(void *ctx, const struct event *event);

/*
 * Tells of each process as a fork without a parent (it inherits nothing), its
 * name, its threads and its mappings, all stamped with a time before they were
 * read: whatever the side-band told later is newer.  wanted (NULL: all) picks
 * processes.  A process that ends meanwhile is told as far as it was read.  Of
 * thousands of mappings of one process some may be left out, with a warning: they
 * may take half a second of CPU time in all.
 * Returns fn's first non-zero answer, -ENOMEM, or the failure to list /proc.
 */
int live_inventory(bool (*wanted)(const void *ctx, uint32_t pid), const void *wanted_ctx,
		   live_event_fn fn, void *ctx);

/* The parent of a process, its thread group; -ENOENT where it is gone. */
int live_process_parent(uint32_t pid, uint32_t *parent);
int live_process_group(uint32_t tid, uint32_t *pid);

bool live_process_ended(uint32_t pid); /* gone, or a zombie that nobody has waited for */

typedef int (*live_pid_fn)(void *ctx, uint32_t pid);
int live_processes(live_pid_fn fn, void *ctx); /* every process there is, by number */

/*
 * One line of /proc/PID/maps, which is changed: path gets its newlines back.
 * -EBADMSG where it is not such a line.
 */
int live_maps_line(char *line, struct event_mapping *mapping);

/* Whether the kernel answers PROCMAP_QUERY (6.11 and newer): mappings with their build-ids. */
bool live_procmap_query(void);

#endif

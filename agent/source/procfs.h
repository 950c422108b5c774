/* agent/source/procfs.h: what /proc says about single processes: their mappings and their state. */
#ifndef AGENT_SOURCE_PROCFS_H
#define AGENT_SOURCE_PROCFS_H

#include "agent/event.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Parse one line of /proc/PID/maps into *mapping. line is changed: escaped newlines in the path are
 * restored, and the mapping's path points into line. -EBADMSG if it is not such a line.
 */
int procfs_maps_line(char *line, struct event_mapping *mapping);

/*
 * Restore in place what is escaped in a path of mountinfo (proc(5)): spaces, tabs, newlines and backslashes, as \\ooo.
 * Return path.
 */
char *procfs_mount_path(char *path);

/*
 * Let mapping have this path, which is borrowed. If the path ends in " (deleted)", cut that off and
 * set mapping->deleted.
 */
void procfs_set_path(struct event_mapping *mapping, char *path);

/*
 * Find the mapping of this process that contains addr. -ENOENT if there is none. In any case the
 * caller frees *line, into which the path points.
 */
int procfs_own_mapping(uint64_t addr, struct event_mapping *out, char **line);

/* Read the parent of a process: its thread group. -ENOENT: the process does not exist. */
int procfs_parent(uint32_t pid, uint32_t *parent);
/* Read the thread group (process) of a thread. -ENOENT: the thread does not exist. */
int procfs_group(uint32_t tid, uint32_t *pid);
/* Return whether a process does not exist, or is a zombie that was not reaped yet. */
bool procfs_ended(uint32_t pid);

#endif

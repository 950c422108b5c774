/*
 * agent/live/system/file_id.h: reads build-ids of mapped files, if the kernel does not report them.
 *
 * A file is read when its mapping is reported. Its build-id is then cached by device, inode and
 * generation. A file that is changed in place keeps these three. So a cached file is held open for
 * some seconds (one of the root file system for a minute, unless it is deleted), and each time it is mapped again, its
 * change time is compared.
 */
#ifndef AGENT_LIVE_SYSTEM_FILE_ID_H
#define AGENT_LIVE_SYSTEM_FILE_ID_H

#include "agent/event.h"

#include <stdbool.h>
#include <stdint.h>

struct live_file_ids;
struct live_pins;

int live_file_ids_new(struct live_file_ids **out);  /* -ENOMEM */
void live_file_ids_free(struct live_file_ids *ids); /* NULL is fine */

/*
 * Set the build-id of a mapping in process pid. If it has one, as those have that are there when recording begins, only
 * note it: that process can lead to the file later. Do nothing if the mapping is not of a file, or if the file cannot be
 * opened without the risk of waiting. pins (NULL: none) may hold the file. now_ns: CLOCK_MONOTONIC.
 */
void live_file_ids_fill(struct live_file_ids *ids, struct live_pins *pins, uint32_t pid,
			struct event_mapping *mapping, uint64_t now_ns);

/*
 * Return whether the file of a mapping is held open: for some seconds, live_file_ids_fill does not need the process for
 * this file. now_ns: CLOCK_MONOTONIC.
 */
bool live_file_ids_hold(struct live_file_ids *ids, const struct event_mapping *mapping,
			uint64_t now_ns);

/*
 * Copy the descriptor of a file that is held open for its build-id. *fd is the caller's to close. -ENOENT: it is not held.
 */
int live_file_ids_open(const struct live_file_ids *ids, uint32_t major, uint32_t minor,
		       uint64_t inode, int *fd);

/* Close files that were not mapped recently. now_ns: CLOCK_MONOTONIC. */
void live_file_ids_sweep(struct live_file_ids *ids, uint64_t now_ns);

#endif

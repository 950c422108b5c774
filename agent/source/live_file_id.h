/*
 * agent/source/live_file_id.h: build-ids of mapped files, where the kernel tells none.
 *
 * The files are read when their mappings are told, and then known by device, inode and
 * generation.  A file that is changed in place keeps these, so that each known one is held
 * open for some seconds and asked for its change time whenever it is mapped again.
 */
#ifndef AGENT_SOURCE_LIVE_FILE_ID_H
#define AGENT_SOURCE_LIVE_FILE_ID_H

#include "agent/event.h"

#include <stdint.h>

struct live_file_ids;
struct live_pins;

int live_file_ids_new(struct live_file_ids **out);  /* -ENOMEM */
void live_file_ids_free(struct live_file_ids *ids); /* NULL is fine */

/*
 * Set the mapping's build-id, if it has none, it is of a file of process pid, and this file can be
 * opened without waiting for anybody.  pins (NULL: none) may hold the file.
 */
void live_file_ids_fill(struct live_file_ids *ids, struct live_pins *pins, uint32_t pid,
			struct event_mapping *mapping, uint64_t now_ns);

/* Let go of files that were not mapped lately; now_ns: CLOCK_MONOTONIC. */
void live_file_ids_sweep(struct live_file_ids *ids, uint64_t now_ns);

#endif

/*
 * agent/cmd/raw_files.h: keeps in a capture what naming and walking need of the files that were sampled,
 * since a file may be gone or replaced when the capture is unwound.
 */
#ifndef AGENT_CMD_RAW_FILES_H
#define AGENT_CMD_RAW_FILES_H

#include "agent/event.h"

#include <stdbool.h>

struct modules;
struct processes;
struct owc_writer;
struct raw_files;

/* processes and modules are borrowed.  -ENOMEM. */
int raw_files_new(struct processes *processes, struct modules *modules, struct raw_files **out);
void raw_files_free(struct raw_files *files); /* NULL is fine */

/* Note that a sample's process has files that may be needed.  -ENOMEM. */
int raw_files_sample(struct raw_files *files, const struct event *event);

/*
 * Write the files into the capture: those noted, or without files (NULL) those in which modules has found
 * frames.  whole: all of each file, not only what walks and names read.  Time and size are bounded;
 * what was left out is said.  A negative code: the capture cannot be written.
 */
int raw_files_write(const struct raw_files *files, struct modules *modules, bool whole,
		    struct owc_writer *writer);

#endif

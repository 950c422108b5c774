/*
 * agent/cmd/record/raw_files.h: stores in a capture what naming and walking need of the sampled files,
 * because a file may be gone or replaced when the capture is unwound.
 */
#ifndef AGENT_CMD_RECORD_RAW_FILES_H
#define AGENT_CMD_RECORD_RAW_FILES_H

#include "agent/event.h"

#include <stdbool.h>

struct modules;
struct processes;
struct owc_writer;
struct raw_files;

/* Return 0 or -ENOMEM. processes and modules are borrowed. */
int raw_files_new(struct processes *processes, struct modules *modules, struct raw_files **out);
void raw_files_free(struct raw_files *files); /* NULL is fine */

/*
 * Note the files that the sample's process has mapped, and the file in which its pc lies. Return 0
 * or -ENOMEM.
 */
int raw_files_sample(struct raw_files *files, const struct event *event);

/*
 * Write the noted files into the capture; files NULL: those in which modules found frames. whole:
 * all of each file, and not only what walking and naming read. Time and size are limited; what was
 * left out is reported. Return 0, or a negative code if the capture cannot be written.
 */
int raw_files_write(const struct raw_files *files, struct modules *modules, bool whole,
		    struct owc_writer *writer);

#endif

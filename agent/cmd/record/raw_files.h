/*
 * agent/cmd/record/raw_files.h: stores in a capture what naming and walking need of the sampled files,
 * because a file may be gone or replaced when the capture is unwound.
 */
#ifndef AGENT_CMD_RECORD_RAW_FILES_H
#define AGENT_CMD_RECORD_RAW_FILES_H

#include "agent/event.h"

#include <stdbool.h>

struct modules;
struct opener;
struct owc_writer;
struct processes;
struct store;
struct raw_files;

/*
 * Return 0 or -ENOMEM. processes and modules are borrowed. walked: a pipeline, whose they are, walks the samples, and so
 * it has opened the files that are to be stored; else these are the files that the samples' processes have mapped.
 */
int raw_files_new(struct processes *processes, struct modules *modules, bool walked,
		  struct raw_files **out);
void raw_files_free(struct raw_files *files); /* NULL is fine */

/*
 * Note the files that the sample's process has mapped, the file in which its pc lies, and the code that its walk may
 * read. Return 0 or -ENOMEM.
 */
int raw_files_sample(struct raw_files *files, const struct event *event);

struct raw_files_to { /* all borrowed */
	struct owc_writer *writer;
	bool whole;	       /* all of each file, and not only what walking and naming read */
	struct opener *opener; /* finds debug files */
	struct store *store;   /* has files that are not to be read; NULL: none */
};

/*
 * Write the noted files into the capture, and then the debug files that names are read from. Time and size are limited;
 * what was left out is reported. Return 0, or a negative code if the capture cannot be written.
 */
int raw_files_write(struct raw_files *files, const struct raw_files_to *to);

#endif

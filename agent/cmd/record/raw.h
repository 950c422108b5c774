/*
 * agent/cmd/record/raw.h: writes a capture file during a recording.
 *
 * The file is written in place from the first event on, so that a kill loses only the last moment.
 * An older file of that name is renamed to NAME.old, as perf does.
 */
#ifndef AGENT_CMD_RECORD_RAW_H
#define AGENT_CMD_RECORD_RAW_H

#include "agent/source/source.h"

#include <stdbool.h>

struct raw;
struct opener;
struct modules;
struct processes;
struct store;

/*
 * Begin a capture file at path ("-": standard output). source is borrowed. If opener is not NULL
 * (borrowed), look before each sample for code that its process generated, and write what is
 * found; if it is NULL, a pipeline does this, and passes it to raw_event. whole_files: store all
 * of each sampled file, and not only what naming and walking need of it. Return 0, or a negative
 * code after reporting it.
 */
int raw_open(const char *path, const struct source *source, struct opener *opener, bool whole_files,
	     struct raw **out);
/*
 * Say that a pipeline walks the samples before raw_event gets them, and finds generated code: processes and modules are
 * its own, borrowed. Return 0 or -ENOMEM.
 */
int raw_walked(struct raw *raw, struct processes *processes, struct modules *modules);
/*
 * Write an event. Return 0 or the first error, which is reported once; nothing is written after
 * it. An event that is too large is left out with a warning.
 */
int raw_event(struct raw *raw, const struct event *event);
/* Write what was buffered for a second, for when no event comes that would; the error is as raw_event's. */
int raw_idle(struct raw *raw);

/*
 * Complete the capture file: add the names of the sampled kernel functions, and what naming and
 * walking need of the sampled files and of their debug files. store has files that are not to be
 * read; NULL: none. *n_samples is set to the number of samples in the file, also on failure. Return
 * 0, or a negative code after reporting it. raw is freed in any case.
 */
int raw_close(struct raw *raw, struct opener *opener, struct store *store, uint64_t *n_samples);

#endif

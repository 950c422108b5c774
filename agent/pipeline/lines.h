/*
 * agent/pipeline/lines.h: reading the debug information of several files at once.
 *
 * Units of debug information have nothing to do with each other, so that each
 * processor can read some: of another file each, and of a large one together.
 */
#ifndef AGENT_PIPELINE_LINES_H
#define AGENT_PIPELINE_LINES_H

#include "symbolizer/symbolizer.h"

struct lines_task { /* one file's */
	struct sym_lines *lines;
	const uint64_t *vaddrs; /* to be found in lines afterwards */
	size_t n;
	struct sym_debug *debug; /* NULL: to be opened, by one of several threads */
	int (*open)(void *ctx, struct sym_lines *lines, struct sym_debug **out);
	void *ctx;
	bool keep; /* debug is the caller's afterwards; else it is closed as soon as it can be */
	int err;   /* of opening */
};

/* All of a task is borrowed.  What cannot be read is not found, or known as not known. */
void lines_read(struct lines_task *tasks, size_t n);

#endif

/*
 * agent/pipeline/line_threads.h: reads the debug information of several files at the same time.
 *
 * Units of debug information are independent of each other, so several CPUs can read them in
 * parallel: different files, or different units of one large file.
 */
#ifndef AGENT_PIPELINE_LINE_THREADS_H
#define AGENT_PIPELINE_LINE_THREADS_H

#include "symbolizer/symbolizer.h"

struct lines_task { /* one file to read */
	struct sym_lines *lines;
	const uint64_t *vaddrs; /* addresses to add to lines */
	size_t n;
	struct sym_debug *debug; /* NULL: one of the threads opens it */
	int (*open)(void *ctx, struct sym_lines *lines, struct sym_debug **out);
	int (*note)(void *ctx); /* note that the file is being read: see agent/role/reading.h */
	void *ctx;
	bool keep; /* keep debug open for the caller; otherwise it is closed early */
	int err;   /* error of open */
};

/*
 * Read the lines of all tasks. Everything in a task is borrowed. For an address that cannot be
 * read, lines has no entry afterwards, or an entry that says so.
 */
void lines_read(struct lines_task *tasks, size_t n);

#endif

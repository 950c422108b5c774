/*
 * agent/history/request.h: a process of its own that writes the history (docs/security.md, "Roles").
 *
 * A worker reads files that others made, so it cannot write the history. It sends a window as a profile
 * in an unnamed file, with a label HISTORY_TIME_LABEL on each sample.
 */
#ifndef AGENT_HISTORY_REQUEST_H
#define AGENT_HISTORY_REQUEST_H

#include "agent/history/history.h"

struct channels;

/*
 * In the worker: from now on the process at the other end of channels, which are borrowed, adds the
 * windows.
 */
void history_ask(struct channels *channels);

/*
 * Add a window whose samples are the pprof profile in the file fd. Without history_ask this process adds
 * it to the database at path. The process that adds windows also keeps the history within its limits
 * (history_keep). Errors are reported, here or in the other process.
 */
int history_put(const char *path, int fd, const struct history_window *window);

/*
 * Give the addresses that the pprof profile in the file fd has as locations the names that they have there
 * (history_rename). What came of it is added to *out.
 */
int history_put_names(const char *path, int fd, struct history_renamed *out);

/*
 * In that process: open the history, give up all other rights, and add windows and names until the
 * other end is closed.
 */
void history_serve(struct channels *channels, const char *path);

#endif

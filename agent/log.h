/*
 * agent/log.h: what the agent says to people, on standard error.
 *
 * One line a message, "offwind: …", from any thread.  Of warnings with one
 * format, ten a minute are printed and the rest is counted, so that an input or
 * a machine full of oddities cannot flood a terminal or a journal; with
 * --verbose all are.  Errors end what was being done, so they come once anyway.
 */
#ifndef AGENT_LOG_H
#define AGENT_LOG_H

#include <stdbool.h>

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));  /* unless --quiet */
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2))); /* with --verbose */

/*
 * Report that a result could not be written to path ("-" or NULL: standard output) because of the
 * negative code err.  A reader of standard output that went away, as head does, is no error worth
 * a message: the call is only remembered, and log_reader_left returns true from then on.
 */
void log_unwritable(const char *path, int err);
bool log_reader_left(void);

/* At the program's end: says how many warnings were left out. */
void log_end(void);

void log_quiet(bool quiet);
void log_verbose(bool verbose);
bool log_is_verbose(void);
bool log_is_quiet(void);

/* A progress line that replaces itself; nothing unless standard error is a terminal. */
void log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_progress_done(void);

#endif

/*
 * agent/log.h: the agent's messages for users, on standard error.
 *
 * Each message is one line, "offwind: …". All functions may be called from any thread. Warnings
 * are rate-limited: of those with the same format string, ten a minute are printed and the rest is
 * counted, so that strange input cannot flood a terminal or a journal. With --verbose all are
 * printed. Errors are not limited, because an error ends the work that it is about.
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
 * negative code err. If the reader of standard output has gone away (-EPIPE), as head does, print
 * nothing: log_reader_left then returns true.
 */
void log_unwritable(const char *path, int err);
bool log_reader_left(void);

/* Return whether an error was reported. */
bool log_has_error(void);

/* At the end of the program: print how many warnings were suppressed. */
void log_end(void);

/*
 * Begin each message with a place, such as "offwind.conf:3: "; borrowed until the next call. NULL: with
 * none. Only while this process has one thread.
 */
void log_place(const char *place);

void log_quiet(bool quiet);
void log_verbose(bool verbose);
bool log_is_verbose(void);
bool log_is_quiet(void);

/*
 * Print a progress line, which replaces the previous one. Does nothing with --quiet or if standard
 * error is no terminal. Any other message, and log_progress_done, erase the line.
 */
void log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_progress_done(void);

#endif

/*
 * agent/log.h: what the agent says to people, on standard error.
 *
 * One line a message, "offwind: …"; lines of one cause are limited in rate so
 * that a hostile input cannot flood a terminal or a journal.
 */
#ifndef AGENT_LOG_H
#define AGENT_LOG_H

#include <stdbool.h>

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));  /* unless --quiet */
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2))); /* with --verbose */

void log_quiet(bool quiet);
void log_verbose(bool verbose);

/* A progress line that replaces itself; nothing unless standard error is a terminal. */
void log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_progress_done(void);

#endif

/*
 * agent/ending.h: limits the time that a recording's end may take.
 *
 * Names, source lines and tables are read from files that other users control. Once the recording
 * has ended, such work continues for a limited CPU time only, which errand.c passes to ending_spend;
 * whatever is not done by then is left out, counted and reported. The work may take
 * ENDING_STRETCH times as long by the clock, so that a busy machine alone leaves nothing out, and
 * files that do not answer do not keep the end waiting for ever.
 *
 * All functions may be called from any thread; the state is global to the process.
 */
#ifndef AGENT_ENDING_H
#define AGENT_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#define ENDING_STRETCH 8

/*
 * Begin the end, or shorten it: from now on at most left_ns of CPU time remain. Never prolongs the
 * remaining time. Safe to call in a signal handler.
 */
void ending_begin(uint64_t left_ns);
/* Subtract used_ns of CPU time from the remaining time. Does nothing before ending_begin. */
void ending_spend(uint64_t used_ns);
/*
 * Return the remaining CPU time in nanoseconds, or the ENDING_STRETCHth part of what remains by the
 * clock if that is less; UINT64_MAX before ending_begin.
 */
uint64_t ending_left(void);
/* Return true if no time remains: callers then begin no more optional work. */
bool ending_over(void);

#endif

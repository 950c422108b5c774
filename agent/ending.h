/*
 * agent/ending.h: limits the time that a recording's end may take.
 *
 * Names, source lines and tables are read from files that other users control. Once the recording
 * has ended, such work continues for a limited time only; whatever is not done by then is left
 * out, counted and reported. The limit counts the time that is passed to ending_spend. errand.c
 * does not pass the time that a thread was ready to run but had no CPU, so that a busy machine
 * alone leaves nothing out.
 *
 * All functions may be called from any thread; the state is global to the process.
 */
#ifndef AGENT_ENDING_H
#define AGENT_ENDING_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Begin the end, or shorten it: from now on at most left_ns remain. Never prolongs the remaining
 * time. Safe to call in a signal handler.
 */
void ending_begin(uint64_t left_ns);
/* Subtract used_ns from the remaining time. Does nothing before ending_begin. */
void ending_spend(uint64_t used_ns);
/* Return the remaining time in nanoseconds; UINT64_MAX before ending_begin. */
uint64_t ending_left(void);
/* Return true if no time remains: callers then begin no more optional work. */
bool ending_over(void);

#endif

/* agent/history/history_sweep.h: deletes stacks, names and labels that no window refers to any more. */
#ifndef AGENT_HISTORY_HISTORY_SWEEP_H
#define AGENT_HISTORY_HISTORY_SWEEP_H

#include <stdint.h>

struct history;
struct history_sweep;

/*
 * Begin or continue a sweep, for some milliseconds. Return 1 if there is more to do, 0 if it is done,
 * or a negative code; after one, the next call begins again.
 */
int history_sweep(struct history *h, uint64_t now_ns);
void history_sweep_free(struct history_sweep *sweep); /* NULL is fine */

#endif

/* agent/store/alive.h: identifies processes, although process ids are reused. */
#ifndef AGENT_STORE_ALIVE_H
#define AGENT_STORE_ALIVE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Return when process pid began, in clock ticks since boot; 0: there is none, or it cannot be read.
 */
uint64_t alive_since(int64_t pid);
/* Return whether the process with that pid and start time is known to have ended. */
bool alive_ended(int64_t pid, uint64_t begun);

#endif

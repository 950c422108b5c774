/* agent/store/alive.h: processes told apart from later ones with their numbers. */
#ifndef AGENT_STORE_ALIVE_H
#define AGENT_STORE_ALIVE_H

#include <stdbool.h>
#include <stdint.h>

/* When process pid began, in ticks since the machine did; 0: it is not there, or cannot be told. */
uint64_t alive_since(int64_t pid);
/* Whether the one that began then is known to have ended. */
bool alive_ended(int64_t pid, uint64_t begun);

#endif

/*
 * agent/ending.h: how long a recording's end may take.
 *
 * Names, lines and tables are read out of files that strangers write.  Once the recording has
 * ended, such work goes on for a while only; what is not done then is left out, counted, and
 * told.  The time that this process spends ready to run, without a CPU, is not counted: a busy
 * machine leaves nothing out.
 *
 * Any thread may call; the state is the process's.
 */
#ifndef AGENT_ENDING_H
#define AGENT_ENDING_H

#include <stdbool.h>
#include <stdint.h>

/* From now on so much time is left, if there is not less already.  Safe in a signal handler. */
void ending_begin(uint64_t left_ns);
/* Take what was used from what is left. */
void ending_spend(uint64_t used_ns);
/* What is left; UINT64_MAX before the end has begun. */
uint64_t ending_left(void);
/* Whether nothing is left: what is optional is not to be begun any more. */
bool ending_over(void);

#endif

/* agent/cli/priority.h: raises the program's scheduling priority while it records. */
#ifndef AGENT_CLI_PRIORITY_H
#define AGENT_CLI_PRIORITY_H

/*
 * Give the calling thread, and threads that it creates later, the best nice value, so that many
 * runnable threads elsewhere do not starve the reader of the ring. A process that was started with
 * a nice value other than 0 is left as it is. Without the right to do so nothing changes.
 */
void priority_raise(void);

/*
 * Give the calling thread alone SCHED_FIFO with this priority; 0 returns to normal scheduling.
 * Return 0, or a negative code after reporting why not.
 */
int priority_realtime(int priority);

#endif

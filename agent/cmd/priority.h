/*
 * agent/cmd/priority.h: how the program stands against others that want the CPU while it records.
 */
#ifndef AGENT_CMD_PRIORITY_H
#define AGENT_CMD_PRIORITY_H

/*
 * Raise the calling thread, and threads made by it from here on, to the best nice value, so that
 * many runnable threads elsewhere do not starve the reader of the ring.  Leave a process alone that
 * was started with a nice value of its own.  Without the right to do so nothing changes.
 */
void priority_raise(void);

/*
 * Give the calling thread, and no other, SCHED_FIFO with this priority; 0: the usual scheduling
 * again.  Return 0, or a negative code after reporting why not.
 */
int priority_realtime(int priority);

#endif

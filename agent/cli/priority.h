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
 * In a process whose nice value was raised, make a session of its own, with a nice value: where the kernel
 * shares CPUs between sessions (sched(7), "The autogroup feature"), nice values count only within each, and
 * any user can make hundreds. Without the right to lower it (CAP_SYS_NICE or RLIMIT_NICE) the session weighs
 * as much as any other. The kernel limits how often such values change, so this can take half a second.
 * On a terminal nothing changes: its keys are for all processes of a session.
 */
void priority_apart(void);

/*
 * Give the calling thread alone SCHED_FIFO with this priority; 0 returns to normal scheduling.
 * Return 0, or a negative code after reporting why not.
 */
int priority_realtime(int priority);

#endif

/* agent/thread.h: starts threads that leave signals to the others, but not their own faults; tells what threads do. */
#ifndef AGENT_THREAD_H
#define AGENT_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <sys/types.h>

/* The signals that an instruction of a thread causes in this thread, as members of an array. */
#define THREAD_FAULTS SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP

/*
 * Start a thread that blocks all signals except THREAD_FAULTS. The kernel ends the process without a
 * call of the handler if a thread blocks the signal of its own fault: then no handler notes which file was
 * being read (agent/role/reading.h) or replaces a truncated page (agent/source/mapped.h).
 * attr: as for pthread_create. Return 0 or a negative code.
 */
int thread_begin(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *ctx);

/*
 * Return the state of a thread of process pid, a letter of proc(5): 'R' runs or waits for a CPU, 'Z' has ended, …. 'X': there
 * is no such thread (any more), or /proc cannot be opened. '\0': its state cannot be read.
 */
char thread_state(pid_t pid, pid_t tid);

#endif

/* agent/thread.h: starts threads that leave signals to the others, but not their own faults. */
#ifndef AGENT_THREAD_H
#define AGENT_THREAD_H

#include <pthread.h>
#include <signal.h>

/* The signals that an instruction of a thread causes in this thread, as members of an array. */
#define THREAD_FAULTS SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP

/*
 * Start a thread that blocks all signals except THREAD_FAULTS. The kernel ends the process without a
 * call of the handler if a thread blocks the signal of its own fault: then no handler notes which file was
 * being read (agent/role/reading.h) or replaces a truncated page (agent/source/mapped.h).
 * attr: as for pthread_create. Return 0 or a negative code.
 */
int thread_begin(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *ctx);

#endif

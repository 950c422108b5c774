/* agent/thread.c: the signal mask of new threads, which they inherit from their creator. */
#include "agent/thread.h"

#include <stddef.h>

int thread_begin(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *ctx)
{
	static const int faults[] = { THREAD_FAULTS };
	sigset_t blocked, before;
	int err;

	(void)sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		(void)sigdelset(&blocked, faults[i]);
	(void)pthread_sigmask(SIG_SETMASK, &blocked, &before);
	err = -pthread_create(thread, attr, run, ctx);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

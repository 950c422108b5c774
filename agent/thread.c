/* agent/thread.c: the signal mask of new threads, which they inherit from their creator, and the state of threads. */
#include "agent/thread.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

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

char thread_state(pid_t pid, pid_t tid)
{
	char path[64], line[512] = "", *end;
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	file = fopen(path, "re");
	if (!file)
		return 'X';
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	(void)fclose(file);
	end = strrchr(line, ')'); /* end of the name, which may contain any character */
	return end && end[1] ? end[2] : '\0';
}

/*
 * tests/diff/libunwind/target.c: is a process to unwind: it sleeps in a signal handler that
 * interrupted a call-back of qsort.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void handler(int sig)
{
	(void)sig;
	for (;;)
		pause();
}

static volatile int depth;

__attribute__((noinline)) static int deep(int n, const int *a)
{
	volatile char room[64] = { 0 };
	int got = n ? deep(n - 1, a) + 1 : *a;

	if (n == 0 && depth++ == 0)
		raise(SIGUSR1);
	return got + room[3];
}

static int compare(const void *a, const void *b)
{
	return deep(5, a) - deep(5, b);
}

int main(void)
{
	int values[] = { 3, 1, 2 };

	signal(SIGUSR1, handler);
	signal(SIGALRM, SIG_DFL);
	alarm(900); /* even if the test fails */
	qsort(values, 3, sizeof(values[0]), compare);
	return values[0];
}

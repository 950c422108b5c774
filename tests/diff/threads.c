/*
 * tests/diff/threads.c: makes threads in many states, for programs that look at them from outside:
 * deep in calls, spinning, with large frames, in a signal handler on the stack, in a handler on a
 * stack of its own, and on a stack without unwind information. It prints "ready" and stays as it
 * is; with "leave", its first thread ends.
 */
#include <alloca.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static sem_t ready;
static volatile int sink, done; /* never done */

static void stay(void)
{
	(void)sem_post(&ready);
	while (!done)
		(void)pause();
}

__attribute__((noinline)) static void deep(intptr_t n)
{
	if (n)
		deep(n - 1);
	else
		stay();
	sink++;
}

__attribute__((noinline)) static void wide(size_t size)
{
	char *bytes = alloca(size);

	memset(bytes, 1, size);
	sink += bytes[size / 2];
	stay();
	sink += bytes[size / 3];
}

static void handler(int number)
{
	(void)number;
	stay();
}

static void *deep_thread(void *n)
{
	deep((intptr_t)n);
	return NULL;
}

static void *wide_thread(void *n)
{
	wide((size_t)(intptr_t)n);
	return NULL;
}

static void *spinning_thread(void *n)
{
	(void)sem_post(&ready);
	while (!done)
		sink++;
	return n;
}

static void *signalled_thread(void *own_stack)
{
	stack_t stack = { .ss_size = 65536 };
	struct sigaction action = { .sa_handler = handler };

	if (own_stack) {
		stack.ss_sp = malloc(stack.ss_size);
		(void)sigaltstack(&stack, NULL);
		action.sa_flags = SA_ONSTACK;
	}
	(void)sigaction(own_stack ? SIGUSR1 : SIGUSR2, &action, NULL);
	(void)raise(own_stack ? SIGUSR1 : SIGUSR2);
	return NULL;
}

/* A thread that the C library does not know; if that is not possible, one that it knows. */
static int interrupted(void *n)
{
	stack_t stack = { .ss_size = 65536, .ss_sp = malloc(65536) };
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };

	(void)sigaltstack(&stack, NULL);
	(void)sigaction(SIGURG, &action, NULL);
	(void)syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGURG);
	return n != NULL;
}

static void *bare_thread(void *size)
{
	char *stack = malloc((size_t)(intptr_t)size);

	if (clone(interrupted, stack + (intptr_t)size - 64,
		  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
		  NULL) < 0)
		(void)interrupted(NULL);
	return NULL;
}

static int compare(const void *a, const void *b)
{
	stay();
	return memcmp(a, b, 1);
}

static void *calling_back_thread(void *n)
{
	char bytes[8] = "abcdefg";

	qsort(bytes, sizeof(bytes), 1, compare);
	return n;
}

int main(int argc, char **argv)
{
	static const struct {
		void *(*run)(void *);
		intptr_t arg;
	} kinds[] = {
		{ deep_thread, 0 },	  { deep_thread, 7 },	   { deep_thread, 200 },
		{ wide_thread, 100000 },  { wide_thread, 7 },	   { spinning_thread, 0 },
		{ signalled_thread, 0 },  { signalled_thread, 1 }, { calling_back_thread, 0 },
		{ bare_thread, 1 << 20 },
	};
	size_t n = sizeof(kinds) / sizeof(kinds[0]);
	pthread_t thread;

	(void)sem_init(&ready, 0, 0);
	for (size_t i = 0; i < n; i++)
		if (pthread_create(&thread, NULL, kinds[i].run, (void *)kinds[i].arg))
			return 1;
	while (n--)
		(void)sem_wait(&ready);
	(void)usleep(50000); /* the last threads are about to call pause */
	(void)puts("ready");
	(void)fflush(stdout);
	if (argc > 1 && !strcmp(argv[1], "leave")) /* a first thread that is a zombie */
		pthread_exit(NULL);
	for (;;)
		(void)pause();
}

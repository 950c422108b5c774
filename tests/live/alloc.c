/*
 * tests/live/alloc.c: makes allocations whose number, sizes and lifetimes are known.
 *
 *   alloc [N [wait]]: calls each of the functions below, churn with N (default 5000); with
 *                     "wait", it starts when a byte arrives on standard input
 *
 * The expected counts, by "man 3 malloc" and arithmetic:
 *
 *   function  allocations                          of these not freed
 *   leak      1000 × 100        =   100,000        all
 *   churn     N × 64                               none
 *   grow      1000 + 2000 + … + 100,000 = 5,050,000 (100)   the last, 100,000
 *   zeroed    10 × 3 × 100,000  = 3,000,000        all
 *   aligned   20 × 1000 + 7 × 128 = 20,896 (27)    20 × 1000
 *   mapped    4 × 40,960        =   163,840        3 of 4; of one of these, 8,192 less
 *   none      1 × 0, and calls that fail           the one of 0 bytes
 *   handed    50 × 500, freed by another thread    10 × 500
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 50

static void *volatile sink;
static void *handed_over[MANY];

__attribute__((noinline)) static void leak(void)
{
	for (int i = 0; i < 1000; i++)
		sink = malloc(100);
}

__attribute__((noinline)) static void churn(long n)
{
	for (long i = 0; i < n; i++) {
		sink = malloc(64);
		free(sink);
	}
}

__attribute__((noinline)) static void grow(void)
{
	void *p = NULL;

	for (size_t i = 1; i <= 100; i++)
		sink = p = realloc(p, i * 1000);
}

__attribute__((noinline)) static void zeroed(void)
{
	for (int i = 0; i < 10; i++)
		sink = calloc(3, 100000);
}

__attribute__((noinline)) static void aligned(void)
{
	for (int i = 0; i < 20; i++) {
		void *p;

		if (posix_memalign(&p, 256, 1000))
			abort();
		sink = p;
	}
	for (int i = 0; i < 7; i++) {
		sink = aligned_alloc(64, 128);
		free(sink);
	}
}

__attribute__((noinline)) static void mapped(void)
{
	for (int i = 0; i < 4; i++) {
		char *p = mmap(NULL, 40960, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			       0);

		sink = p;
		if (i == 0)
			(void)munmap(p, 40960);
		if (i == 1)
			(void)munmap(p, 8192);
	}
	/* Address space and a file: neither is allocated memory. */
	sink = mmap(NULL, 1 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

__attribute__((noinline)) static void none(void)
{
	volatile size_t much = (size_t)1 << 60;

	sink = malloc(0);
	sink = malloc(much);
	sink = calloc(much, much);
}

static void *take(void *arg)
{
	for (int i = 0; i < MANY - 10; i++)
		free(handed_over[i]);
	return arg;
}

__attribute__((noinline)) static void handed(void)
{
	for (int i = 0; i < MANY; i++)
		handed_over[i] = malloc(500);
}

/* The C library allocates here, which does not count. */
__attribute__((noinline)) static void take_elsewhere(void)
{
	pthread_t thread;
	pid_t child;

	/* A child has a copy: the memory that it frees is its own. */
	child = fork();
	if (!child) {
		(void)take(NULL);
		_exit(0);
	}
	(void)waitpid(child, NULL, 0);
	if (!pthread_create(&thread, NULL, take, NULL))
		(void)pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	char byte;

	if (argc > 2)
		(void)!read(STDIN_FILENO, &byte, 1);
	leak();
	churn(argc > 1 ? atol(argv[1]) : 5000);
	grow();
	zeroed();
	aligned();
	mapped();
	none();
	handed();
	take_elsewhere();
	return 0;
}

/* tests/faults/hostile/attack.h: what the hostile programs share: the way they are called, and code to run. */
#ifndef TESTS_FAULTS_HOSTILE_ATTACK_H
#define TESTS_FAULTS_HOSTILE_ATTACK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* One way to be hostile; run gets what follows the name, and goes on until it is killed. */
struct attack {
	const char *name;
	int n_args;
	void (*run)(char **args);
};

static inline _Noreturn void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* Say that the attack has begun. */
static inline void ready(void)
{
	(void)puts("ready");
	(void)fflush(stdout);
}

/* Compute for about a millisecond. */
static inline void work(void)
{
	for (volatile int i = 0; i < 500000; i++)
		;
}

static inline void pause_ms(long ms)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = ms * 1000000 }, NULL);
}

/* Run the code at page. */
static inline void run_code(void *page)
{
	void (*code)(void);

	memcpy(&code, &page, sizeof(code));
	code();
}

/* Put a loop into new memory, and return the memory. The loop ends after some milliseconds if brief is set. */
static inline uint8_t *new_code(size_t size, int brief)
{
	/* inc rax; jmp back.  mov ecx,8000000; dec ecx; jnz back; ret */
	static const uint8_t spin[] = { 0x48, 0xff, 0xc0, 0xeb, 0xfb },
			     count[] = { 0xb9, 0, 0x12, 0x7a, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
	uint8_t *page = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		fail("mmap");
	memcpy(page, brief ? count : spin, brief ? sizeof(count) : sizeof(spin));
	return page;
}

/* Do what the command line names. */
static inline int attack_main(int argc, char **argv, const struct attack *attacks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (argc == 2 + attacks[i].n_args && !strcmp(argv[1], attacks[i].name))
			attacks[i].run(argv + 2);
	return 2;
}

#endif

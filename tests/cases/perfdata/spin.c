/*
 * tests/cases/perfdata/spin.c: is the recorded program of this directory: a fork, an exec, a
 * thread, each some frames deep.
 */
#include <pthread.h>
#include <stddef.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sum;

__attribute__((noinline)) static void leaf(long ms)
{
	clock_t end = clock() + ms * (CLOCKS_PER_SEC / 1000);

	while (clock() < end)
		for (int i = 0; i < 1000; i++)
			sum += (unsigned long)i;
}

__attribute__((noinline)) static void nest(int depth, long ms)
{
	volatile char room[64];

	room[depth] = 1;
	if (depth)
		nest(depth - 1, ms);
	else
		leaf(ms);
	sum += (unsigned long)room[depth];
}

static void *thread(void *arg)
{
	(void)arg;
	nest(8, 4);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t one;
	pid_t child;

	if (argc > 1) {
		nest(4, 4);
		return 0;
	}
	child = fork();
	if (!child) {
		execl(argv[0], "spun", "again", (char *)NULL);
		_exit(1);
	}
	(void)waitpid(child, NULL, 0);
	if (!pthread_create(&one, NULL, thread, NULL))
		(void)pthread_join(one, NULL);
	nest(16, 4);
	return 0;
}

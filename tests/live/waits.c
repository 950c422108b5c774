/*
 * tests/live/waits.c: starts 20 long-lived and 500 short-lived processes that wait, and reports how
 * long they waited by their own clocks and by the scheduler's statistics.
 *   usage: waits MIN_NS
 * For each of the two names it prints: ns off the CPU; how many of these at most the process was
 * ready to run; ns in naps of MIN_NS or more, at least and at most. Only a child that lost its CPU
 * to another process is ready to run without having waited.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
struct truth { /* ns */
	long long off, delayed, least, most;
};
static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}
static void schedstat(long long *ran, long long *delay)
{
	char text[128] = "";
	int fd = open("/proc/self/schedstat", O_RDONLY);

	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
	    sscanf(text, "%lld %lld", ran, delay) != 2)
		abort();
	close(fd);
}
static void nap(long us)
{
	const struct timespec t = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&t, NULL);
}
/*
 * The time between the two changes of the name is recorded; a nap before each change updates the
 * statistics.
 */
static void child(const char *name, int naps, long us, long long min, struct truth *t)
{
	const long long near = 500000;
	struct rusage before, after;
	long long ran, delay, ran_then, delay_then, began;

	nap(1);
	getrusage(RUSAGE_SELF, &before);
	schedstat(&ran_then, &delay_then);
	prctl(PR_SET_NAME, name);
	began = now();
	for (int i = 0; i < naps; i++) {
		long long start = now(), took;

		nap(i % 2 ? us / 20 : us);
		took = now() - start;
		t->least += took >= min + near ? took : 0;
		t->most += took >= min - near ? took : 0;
	}
	schedstat(&ran, &delay);
	t->off = now() - began - (ran - ran_then);
	prctl(PR_SET_NAME, "other");
	getrusage(RUSAGE_SELF, &after);
	/* It lost the CPU to another process, which is no wait. */
	if (after.ru_nivcsw != before.ru_nivcsw)
		t->delayed = delay - delay_then;
	_exit(0);
}
static void wait_one(int *running)
{
	int status;

	if (wait(&status) < 0 || status)
		exit(1);
	--*running;
}
int main(int argc, char **argv)
{
	enum { LONG = 20, SHORT = 500, AT_ONCE = 25 };
	const long long min = argc > 1 ? atoll(argv[1]) : 0;
	struct truth *all = mmap(NULL, (LONG + SHORT) * sizeof(*all), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int running = 0;

	for (int i = 0; i < LONG + SHORT; i++) {
		if (running == LONG + AT_ONCE)
			wait_one(&running);
		if (!fork())
			child(i < LONG ? "w_long" : "w_short", i < LONG ? 80 : 6,
			      i < LONG ? 40000 : 8000, min, &all[i]);
		running++;
	}
	while (running)
		wait_one(&running);
	for (int i = 0; i < 2; i++) {
		struct truth sum = { 0 };

		for (int j = i ? LONG : 0; j < (i ? LONG + SHORT : LONG); j++) {
			sum.off += all[j].off;
			sum.delayed += all[j].delayed;
			sum.least += all[j].least;
			sum.most += all[j].most;
		}
		printf("%s %lld %lld %lld %lld\n", i ? "w_short" : "w_long", sum.off, sum.delayed,
		       sum.least, sum.most);
	}
	return 0;
}

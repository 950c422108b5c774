/*
 * tests/live/daemon_page.c: computes in phase_one until SIGUSR1 comes, then in phase_two; its child computes
 * all the time, under a name that is markup, on the same CPU: so each has half of it. For daemon_page.sh.
 */
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile sig_atomic_t second;
static volatile unsigned long sum;

static void on_signal(int number)
{
	second = number;
}

__attribute__((noinline)) static void phase_one(void)
{
	for (unsigned long i = 0; i < 100000; i++)
		sum += i;
}

__attribute__((noinline)) static void phase_two(void)
{
	for (unsigned long i = 0; i < 100000; i++)
		sum ^= i;
}

__attribute__((noinline)) static void child_work(void)
{
	for (unsigned long i = 0; i < 100000; i++)
		sum -= i;
}

/* Stay on the first CPU. */
static void stay(void)
{
	cpu_set_t all, one;

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	for (size_t cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	(void)sched_setaffinity(0, sizeof(one), &one);
}

int main(void)
{
	pid_t child;

	(void)alarm(900);
	(void)signal(SIGUSR1, on_signal);
	stay();
	child = fork();
	if (!child) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)prctl(PR_SET_NAME, "<b id=pwned>");
		for (;;)
			child_work();
	}
	for (;;) {
		if (second)
			phase_two();
		else
			phase_one();
		sum++; /* no tail calls */
	}
}

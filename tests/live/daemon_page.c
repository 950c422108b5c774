/*
 * tests/live/daemon_page.c: computes in phase_one until SIGUSR1 comes, then in phase_two; its child computes
 * all the time, under a name that is markup. For daemon_page.sh.
 */
#include <signal.h>
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

int main(void)
{
	pid_t child;

	(void)alarm(900);
	(void)signal(SIGUSR1, on_signal);
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

/*
 * tests/live/waits.c: starts 20 long-lived and 500 short-lived processes that wait, and reports how
 * long they waited by their own clocks and by the scheduler's statistics.
 *   usage: waits MIN_NS | waits busy SECONDS | waits late | waits wake
 * busy: eight processes wake one another in pairs, as often as they can (w_pair), beside some that
 * nap for 3 ms (w_nap) and for 150 ms (w_rest).
 * late: a process naps on a CPU where another one computes (w_late). Its line has the time that
 * it was ready to run after naps, and nothing else.
 * wake: processes wait in functions b_*, and others wake them in functions a_*: by a pipe, a futex, a
 * condition variable; one that ends at once, before the woken one runs; one with a deep stack.
 * For each of the two names it prints: ns off the CPU; how many of these at most the process was
 * ready to run; ns in naps of MIN_NS or more, at least and at most. Only a child that lost its CPU
 * to another process is ready to run without having waited.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
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
static void read_schedstat(int fd, long long *ran, long long *delay)
{
	char text[128] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0 || sscanf(text, "%lld %lld", ran, delay) != 2)
		abort();
}
static void schedstat(long long *ran, long long *delay)
{
	int fd = open("/proc/self/schedstat", O_RDONLY);

	read_schedstat(fd, ran, delay);
	close(fd);
}
static void begin(const char *name, struct truth *t, long long *ran)
{
	long long delay;

	schedstat(ran, &delay);
	t->delayed = -delay;
	prctl(PR_SET_NAME, name);
	t->off = -now();
}
static void end(struct truth *t, long long ran_then)
{
	long long ran, delay;

	schedstat(&ran, &delay);
	t->off += now() - (ran - ran_then);
	prctl(PR_SET_NAME, "other");
	t->delayed += delay;
	_exit(0);
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
/* One of two that read what the other one writes; the first ends at the time. */
static void pair(int from, int to, bool first, long long until, struct truth *t)
{
	long long ran;
	char byte = 0;

	nap(1);
	begin("w_pair", t, &ran);
	while (!first || now() < until)
		if ((first && write(to, &byte, 1) != 1) || read(from, &byte, 1) != 1 ||
		    (!first && write(to, &byte, 1) != 1))
			break;
	end(t, ran);
}
static void napper(const char *name, long us, long long until, struct truth *t)
{
	long long ran;

	nap(1);
	begin(name, t, &ran);
	while (now() < until)
		nap(us);
	end(t, ran);
}
/*
 * Nap, and count the delay of each nap only: a process that waits for its turn may also lose the CPU to another one, for most
 * of a second, and that is no wait. The file is open all the time, so that this is rare between a nap and its count.
 */
__attribute__((noinline)) static void late_napper(const char *name, long us, long long until,
						  struct truth *t)
{
	const int fd = open("/proc/self/schedstat", O_RDONLY);
	long long ran, before, after;

	nap(1);
	prctl(PR_SET_NAME, name);
	while (now() < until) {
		read_schedstat(fd, &ran, &before);
		nap(us);
		read_schedstat(fd, &ran, &after);
		t->delayed += after - before;
	}
	prctl(PR_SET_NAME, "other");
	_exit(0);
}
/* Start these processes, and print the sums of those with the same name. */
static int busy(struct truth *all, long seconds)
{
	enum { PAIRS = 4, NAPS = 6, RESTS = 3, N = 2 * PAIRS + NAPS + RESTS };
	static const char *const names[] = { "w_pair", "w_nap", "w_rest" };
	const int ends[] = { 0, 2 * PAIRS, 2 * PAIRS + NAPS, N };
	const long long until = now() + seconds * 1000000000ll;
	int forth[PAIRS][2], back[PAIRS][2], status;

	for (int i = 0; i < PAIRS; i++)
		if (pipe2(forth[i], O_CLOEXEC) || pipe2(back[i], O_CLOEXEC))
			return 1;
	for (int i = 0; i < N; i++) {
		if (fork())
			continue;
		/* The other ends, so that a pair's second one sees that the first one has gone. */
		for (int j = 0; j < PAIRS; j++) {
			bool first = j == i / 2 && i % 2 == 0, second = j == i / 2 && i % 2;

			close(second ? -1 : forth[j][0]);
			close(first ? -1 : forth[j][1]);
			close(first ? -1 : back[j][0]);
			close(second ? -1 : back[j][1]);
		}
		if (i < 2 * PAIRS)
			pair(i % 2 ? forth[i / 2][0] : back[i / 2][0],
			     i % 2 ? back[i / 2][1] : forth[i / 2][1], i % 2 == 0, until, &all[i]);
		napper(i < ends[2] ? "w_nap" : "w_rest", i < ends[2] ? 3000 : 150000, until,
		       &all[i]);
	}
	for (int i = 0; i < PAIRS; i++) {
		close(forth[i][0]), close(forth[i][1]);
		close(back[i][0]), close(back[i][1]);
	}
	while (wait(&status) > 0)
		if (status)
			return 1;
	for (int k = 0; k < 3; k++) {
		struct truth sum = { 0 };

		for (int i = ends[k]; i < ends[k + 1]; i++) {
			sum.off += all[i].off;
			sum.delayed += all[i].delayed;
		}
		printf("%s %lld %lld\n", names[k], sum.off, sum.delayed);
	}
	return 0;
}
static int late(struct truth *t)
{
	const long long until = now() + 2000000000;
	cpu_set_t cpus;
	pid_t computes;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return 1;
	computes = fork();
	while (!computes)
		;
	if (!fork()) {
		/* A process of this policy waits for its turn when it wakes up, and does not take the CPU from another one. */
		if (sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }))
			_exit(1);
		late_napper("w_late", 5000, until, t);
	}
	wait(NULL);
	kill(computes, SIGKILL);
	wait(NULL);
	printf("w_late %lld\n", t->delayed);
	return 0;
}
/* ---- pairs of threads: a wakes b, 40 times ----------------------------------------------------------- */

enum { WAKES = 40 };
#define KEEP_FRAME __asm__ volatile("" : : : "memory") /* the call before this is no jump */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int cond_value;
static _Atomic pid_t cond_thread;

/*
 * Sleep until a thread of a process sleeps, too: one that is woken before it waits does not wait, and on a busy machine
 * that could be most of them.
 */
static void until_sleeps(pid_t process, pid_t thread)
{
	char path[64], state[512], *end;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)process, (int)thread);
	do {
		ssize_t size;
		int fd;

		nap(4000);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		size = fd < 0 ? 0 : read(fd, state, sizeof(state) - 1);
		close(fd);
		if (size <= 0)
			_exit(1); /* it has ended */
		state[size] = '\0';
		end = strrchr(state, ')');
	} while (!end || strncmp(end, ") S", 3) != 0);
}
static __attribute__((noinline)) void a_pipe_gives(int fd)
{
	if (write(fd, "x", 1) != 1)
		_exit(1);
	KEEP_FRAME;
}
static __attribute__((noinline)) void b_pipe_takes(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		_exit(1);
	KEEP_FRAME;
}
static __attribute__((noinline)) void a_futex_gives(atomic_int *word)
{
	atomic_fetch_add(word, 1);
	(void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
	KEEP_FRAME;
}
static __attribute__((noinline)) void b_futex_takes(atomic_int *word, int value)
{
	while (atomic_load(word) == value)
		(void)syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
	KEEP_FRAME;
}
static __attribute__((noinline)) void a_cond_gives(void)
{
	pthread_mutex_lock(&lock);
	cond_value++;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	KEEP_FRAME;
}
static __attribute__((noinline)) void b_cond_takes(int value)
{
	pthread_mutex_lock(&lock);
	while (cond_value == value)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	KEEP_FRAME;
}
static __attribute__((noinline)) void a_deep_gives(int fd)
{
	volatile char deep[256 << 10];

	/* Each page is there, so that the copy is cut and has no holes. */
	for (size_t i = 0; i < sizeof(deep); i += 1024)
		deep[i] = 1;
	a_pipe_gives(fd);
	KEEP_FRAME;
}
static void *cond_waits(void *unused)
{
	prctl(PR_SET_NAME, "wk_cond");
	cond_thread = gettid();
	for (int i = 0; i < WAKES; i++)
		b_cond_takes(i);
	return unused;
}
static void wake_by_condition(void)
{
	pthread_t b;

	prctl(PR_SET_NAME, "wk_a");
	if (pthread_create(&b, NULL, cond_waits, NULL))
		_exit(1);
	while (!cond_thread)
		nap(1000);
	for (int i = 0; i < WAKES; i++) {
		until_sleeps(getpid(), cond_thread);
		a_cond_gives();
	}
	pthread_join(b, NULL);
	_exit(0);
}
/* b in a process of its own; a in this one. */
static void wake_by_futex(void)
{
	atomic_int *word =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t b = fork();

	if (!b) {
		prctl(PR_SET_NAME, "wk_futex");
		for (int i = 0; i < WAKES; i++)
			b_futex_takes(word, i);
		_exit(0);
	}
	prctl(PR_SET_NAME, "wk_a");
	for (int i = 0; i < WAKES; i++) {
		until_sleeps(b, b);
		a_futex_gives(word);
	}
	_exit(wait(NULL) < 0);
}
static void wake_by_pipe(const char *name, void (*gives)(int fd))
{
	int ends[2];
	pid_t b;

	if (pipe(ends))
		_exit(1);
	b = fork();
	if (!b) {
		prctl(PR_SET_NAME, name);
		for (int i = 0; i < WAKES; i++)
			b_pipe_takes(ends[0]);
		_exit(0);
	}
	prctl(PR_SET_NAME, "wk_a");
	for (int i = 0; i < WAKES; i++) {
		until_sleeps(b, b);
		gives(ends[1]);
	}
	_exit(wait(NULL) < 0);
}
/* b runs when no other process of its CPU wants to, which is when a has ended. */
static void wake_and_end(void)
{
	int ends[2];
	cpu_set_t cpus;
	pid_t computes, a, b;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	if (pipe(ends))
		_exit(1);
	computes = fork();
	if (!computes) {
		if (sched_setaffinity(0, sizeof(cpus), &cpus))
			_exit(1);
		for (;;)
			;
	}
	b = fork();
	if (!b) {
		if (sched_setaffinity(0, sizeof(cpus), &cpus) ||
		    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }))
			_exit(1);
		prctl(PR_SET_NAME, "wk_gone");
		for (int i = 0; i < WAKES; i++)
			b_pipe_takes(ends[0]);
		_exit(0);
	}
	for (int i = 0; i < WAKES; i++) {
		until_sleeps(b, b);
		a = fork();
		if (!a) {
			prctl(PR_SET_NAME, "wk_a");
			a_pipe_gives(ends[1]);
			_exit(0);
		}
		if (waitpid(a, NULL, 0) != a)
			_exit(1);
	}
	if (waitpid(b, NULL, 0) != b)
		_exit(1);
	kill(computes, SIGKILL);
	_exit(wait(NULL) < 0);
}
static int wake(void)
{
	int status;

	if (!fork())
		wake_by_pipe("wk_pipe", a_pipe_gives);
	if (!fork())
		wake_by_pipe("wk_deep", a_deep_gives);
	if (!fork())
		wake_by_futex();
	if (!fork())
		wake_by_condition();
	if (!fork())
		wake_and_end();
	while (wait(&status) > 0)
		if (status)
			return 1;
	return 0;
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

	if (argc > 2 && !strcmp(argv[1], "busy"))
		return busy(all, atol(argv[2]));
	if (argc > 1 && !strcmp(argv[1], "late"))
		return late(all);
	if (argc > 1 && !strcmp(argv[1], "wake"))
		return wake();
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

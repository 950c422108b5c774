/*
 * tests/unit/test_errand.c: tests what an errand may take: CPU time, and by the clock some times as
 * much; and that only CPU time is charged to the end of a recording.
 */
#include "agent/errand.h"

#include "agent/clock.h"
#include "agent/ending.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/check.h"

#define MS   UINT64_C(1000000)
#define HOUR (UINT64_C(3600000) * MS)

static atomic_bool over;
static atomic_int n_dropped;
static int gate[2]; /* a pipe into which nobody writes until the end */

static void sleep_a_while(void *ctx)
{
	const struct timespec pause = { .tv_nsec = 80 * (long)MS };

	(void)ctx;
	(void)nanosleep(&pause, NULL);
}

static void compute(void *ctx)
{
	(void)ctx;
	while (!atomic_load(&over))
		;
}

static void block(void *ctx)
{
	char byte;

	(void)ctx;
	(void)!read(gate[0], &byte, 1);
}

static void drop(void *ctx)
{
	(void)ctx;
	atomic_fetch_add(&n_dropped, 1);
}

static int run(void (*work)(void *ctx), uint64_t limit_ns)
{
	const struct errand errand = { .run = work, .drop = drop };

	return errand_run(&errand, limit_ns);
}

static void wait_for_all(void)
{
	while (errands_left())
		(void)sched_yield();
}

static void test_computing_is_bounded(void)
{
	CHECK(run(compute, 20 * MS) == -ETIMEDOUT, "it is left behind");
	CHECK(errands_left() == 1 && !n_dropped, "and goes on");
	atomic_store(&over, true);
	wait_for_all();
	CHECK(n_dropped == 1, "it frees what it has");
	CHECK(!run(compute, HOUR) && n_dropped == 1,
	      "one that ends in time leaves that to its caller");
}

static void test_waiting_is_bounded_by_the_clock(void)
{
	uint64_t began = now_ns();

	CHECK(run(block, 5 * MS) == -ETIMEDOUT, "it is left behind");
	CHECK(now_ns() - began >= 5 * MS * ENDING_STRETCH, "after a longer time");
	CHECK(write(gate[1], "x", 1) == 1, "write");
	wait_for_all();
}

/* What waits for a CPU, or for another process that waits for one, has used nothing. */
static void test_waiting_is_not_charged(void)
{
	uint64_t began = now_ns(), left;

	CHECK(ending_left() == UINT64_MAX, "not at the end");
	ending_begin(HOUR);
	CHECK(!run(sleep_a_while, HOUR), "done");
	left = ending_left();
	CHECK(left + (now_ns() - began) / ENDING_STRETCH + 20 * MS > HOUR, "next to no CPU time");
	CHECK(left < HOUR - 9 * MS, "but the clock goes on");
}

static void note_thread(void *ctx)
{
	*(pid_t *)ctx = gettid();
}

static pid_t thread_of_next(void)
{
	pid_t tid = 0;
	const struct errand errand = { .run = note_thread, .drop = drop, .ctx = &tid };

	CHECK(!errand_run(&errand, HOUR) && tid && tid != gettid(), "it runs on another thread");
	return tid;
}

/* A child has no other thread than the one that forked, and its first errand must not wait for one of its parent's. */
static void test_one_thread_serves_many(void)
{
	pid_t tid = thread_of_next(), child;
	int status = -1;

	CHECK(thread_of_next() == tid, "the same thread again");
	child = fork();
	if (!child)
		_exit(thread_of_next() == tid);
	CHECK(child > 0 && waitpid(child, &status, 0) == child && !status,
	      "a child begins its own");
	CHECK(thread_of_next() == tid, "and takes nothing from its parent");
}

static void test_one_left_behind_serves_nobody(void)
{
	pid_t tid = thread_of_next();

	CHECK(run(block, MS) == -ETIMEDOUT, "it is left behind");
	CHECK(thread_of_next() != tid, "another one takes its place");
	CHECK(write(gate[1], "x", 1) == 1, "write");
	wait_for_all();
	CHECK(thread_of_next() != tid, "and keeps it");
}

static void test_nothing_begins_after_the_end(void)
{
	ending_begin(0);
	CHECK(ending_over() && run(sleep_a_while, HOUR) == -EAGAIN, "over");
}

int main(void)
{
	CHECK(!pipe(gate), "pipe");
	test_computing_is_bounded();
	test_waiting_is_bounded_by_the_clock();
	test_one_thread_serves_many();
	test_one_left_behind_serves_nobody();
	test_waiting_is_not_charged();
	test_nothing_begins_after_the_end();
	return check_done();
}

/* agent/errand.c: runs errands on other threads, which are abandoned when the time limit has passed. */
#include "agent/errand.h"

#include "agent/clock.h"
#include "agent/ending.h"
#include "agent/thread.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS	   UINT64_C(1000000)
#define LOOK_NS	   (20 * MS) /* between two checks of the time used */
#define LEFT_MAX   16	     /* abandoned threads; each holds a stack and what it reads */
#define STACK_SIZE ((size_t)1 << 20)
#define IDLE_MAX   4 /* threads that wait for the next errand */

/*
 * A thread that runs errands, one after another: to begin one takes longer than most errands do, above all where the CPUs are
 * busy, as a new thread waits for its turn while one that slept is let run at once. It is used by one caller at a time, or
 * idle, or left behind; then it ends after its errand.
 */
struct runner {
	struct runner *next; /* of those that are idle */
	pthread_t thread;
	int nice; /* that of the caller for whom it was begun */
	pthread_mutex_t lock;
	pthread_cond_t given_cond, done_cond;
	struct errand errand;
	/* set and cleared under the lock */
	bool given; /* errand is to be run */
	bool done;  /* run has returned */
	bool ends;  /* it is not needed any more */
	/* the caller has given up */
	atomic_bool left;
	/* the thread's id; 0: it has not started yet */
	_Atomic int tid;
};

/* abandoned threads that still run */
static atomic_uint n_left;

/* The idle ones, of the process that began them: a child has none of its parent's threads. */
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static struct runner *idle;
static unsigned int n_idle;
static pid_t idle_pid;

static void free_runner(struct runner *r)
{
	(void)pthread_cond_destroy(&r->given_cond);
	(void)pthread_cond_destroy(&r->done_cond);
	(void)pthread_mutex_destroy(&r->lock);
	free(r);
}

/* uw_unpack_unless's callback: stop unpacking once the caller has given up. */
static bool is_left(void *ctx)
{
	struct runner *r = ctx;

	return atomic_load(&r->left);
}

/* Wait for an errand. Return false if there will be none. r->lock is held. */
static bool wait_for_errand(struct runner *r)
{
	while (!r->given && !r->ends)
		(void)pthread_cond_wait(&r->given_cond, &r->lock);
	r->given = false;
	return !r->ends;
}

/*
 * The thread: run errands, and report each that is done. left is read under the lock, which errand_run holds when it decides:
 * so exactly one side frees the errand.
 */
static void *run(void *ctx)
{
	struct runner *r = ctx;
	bool left = false;

	atomic_store(&r->tid, (int)syscall(SYS_gettid));
	(void)pthread_mutex_lock(&r->lock);
	while (!left && wait_for_errand(r)) {
		(void)pthread_mutex_unlock(&r->lock);
		uw_unpack_unless(is_left, r);
		r->errand.run(r->errand.ctx);
		(void)pthread_mutex_lock(&r->lock);
		r->done = true;
		left = atomic_load(&r->left);
		if (!left)
			uw_unpack_unless(NULL, NULL); /* what it read is the caller's */
		(void)pthread_cond_signal(&r->done_cond);
	}
	(void)pthread_mutex_unlock(&r->lock);
	if (left) {
		r->errand.drop(r->errand.ctx);
		uw_unpack_unless(NULL, NULL);
		atomic_fetch_sub(&n_left, 1);
	}
	free_runner(r);
	return NULL;
}

/* Charge the thread's CPU time to the recording's end; charged: so much of it was charged before. */
static void charge(uint64_t used_ns, uint64_t *charged)
{
	if (used_ns <= *charged)
		return;
	ending_spend(used_ns - *charged);
	*charged = used_ns;
}

/*
 * Return whether the thread runs, or waits for nothing but a CPU. Where /proc cannot be read (in the sandbox), it is taken as
 * one that waits for something else.
 */
static bool is_runnable(int tid)
{
	return !tid /* it has had no CPU yet */ || thread_state(getpid(), tid) == 'R';
}

/* Return the CPU time that the thread has used. */
static uint64_t used_by(const struct runner *r)
{
	clockid_t cpu;

	return pthread_getcpuclockid(r->thread, &cpu) ? 0 : clock_ns(cpu);
}

/*
 * Wait until the errand is done or its time is up, and charge its CPU time to the recording's end. r->lock is held.
 * before: the CPU time that the thread had used before.
 */
static void wait_for(struct runner *r, uint64_t before, uint64_t limit_ns)
{
	uint64_t began = now_ns(), charged = before;

	while (!r->done) {
		uint64_t now = now_ns();
		struct timespec until;

		charge(used_by(r), &charged);
		if (charged - before >= limit_ns || ending_over())
			break;
		if ((now - began) / ENDING_STRETCH >= limit_ns &&
		    !is_runnable(atomic_load(&r->tid)))
			break;
		now += LOOK_NS;
		until = (struct timespec){ .tv_sec = (time_t)(now / (1000 * MS)),
					   .tv_nsec = (long)(now % (1000 * MS)) };
		(void)pthread_cond_timedwait(&r->done_cond, &r->lock, &until);
	}
	charge(used_by(r), &charged);
}

/* Begin a thread, with a small stack. NULL: it cannot be begun. */
static struct runner *new_runner(int nice)
{
	struct runner *r = calloc(1, sizeof(*r));
	pthread_condattr_t clock;
	pthread_attr_t attr;
	int err;

	if (!r)
		return NULL;
	r->nice = nice;
	(void)pthread_mutex_init(&r->lock, NULL);
	(void)pthread_cond_init(&r->given_cond, NULL);
	(void)pthread_condattr_init(&clock);
	(void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&r->done_cond, &clock);
	(void)pthread_condattr_destroy(&clock);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, STACK_SIZE);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	/* Do not inherit the caller's real-time priority, if it has one. */
	(void)pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	err = thread_begin(&r->thread, &attr, run, r);
	(void)pthread_attr_destroy(&attr);
	if (!err)
		return r;
	free_runner(r);
	return NULL;
}

/* Drop what a child has of its parent's idle threads. Nobody waits on their conditions here, so they cannot be destroyed. */
static void forget_parents(void)
{
	while (idle) {
		struct runner *r = idle;

		idle = r->next;
		free(r);
	}
	n_idle = 0;
	idle_pid = getpid();
}

/* Return an idle runner with the caller's nice value, or a new one. NULL: none can be begun. */
static struct runner *take_runner(void)
{
	const int nice = getpriority(PRIO_PROCESS, 0);
	struct runner **at = &idle, *r;

	(void)pthread_mutex_lock(&idle_lock);
	if (idle_pid != getpid())
		forget_parents();
	while (*at && (*at)->nice != nice)
		at = &(*at)->next;
	r = *at;
	if (r) {
		*at = r->next;
		n_idle--;
	}
	(void)pthread_mutex_unlock(&idle_lock);
	return r ? r : new_runner(nice);
}

/* Keep a runner whose errand is done for the next one, unless there are enough. */
static void put_runner(struct runner *r)
{
	bool keep;

	(void)pthread_mutex_lock(&idle_lock);
	keep = n_idle < IDLE_MAX;
	if (keep) {
		r->next = idle;
		idle = r;
		n_idle++;
	}
	(void)pthread_mutex_unlock(&idle_lock);
	if (keep)
		return;
	(void)pthread_mutex_lock(&r->lock);
	r->ends = true;
	(void)pthread_cond_signal(&r->given_cond);
	(void)pthread_mutex_unlock(&r->lock);
}

/*
 * Reset an abandoned thread's nice value, which it inherited from its caller (priority_raise), to
 * 0. The value does not become positive: the thread takes locks of malloc and of the kernel
 * (mmap_lock), and on a busy machine a starved holder of these locks would stall the whole
 * process.
 */
static void step_back(int tid)
{
	if (tid && getpriority(PRIO_PROCESS, (id_t)tid) < 0)
		(void)setpriority(PRIO_PROCESS, (id_t)tid, 0);
}

/*
 * A runner is freed in one place only: by its thread. Both read and set r->left under the lock. At most LEFT_MAX threads are
 * left behind.
 */
int errand_run(const struct errand *errand, uint64_t limit_ns)
{
	struct runner *r;
	uint64_t before;
	bool done;

	if (ending_over() || atomic_load(&n_left) >= LEFT_MAX)
		return -EAGAIN;
	r = take_runner();
	if (!r)
		return -EAGAIN;
	(void)pthread_mutex_lock(&r->lock);
	before = used_by(r);
	r->errand = *errand;
	r->done = false;
	r->given = true;
	(void)pthread_cond_signal(&r->given_cond);
	wait_for(r, before, limit_ns);
	done = r->done;
	atomic_store(&r->left, !done);
	if (!done) {
		atomic_fetch_add(&n_left, 1);
		step_back(atomic_load(&r->tid));
	}
	(void)pthread_mutex_unlock(&r->lock);
	if (!done)
		return -ETIMEDOUT;
	put_runner(r);
	return 0;
}

unsigned int errands_left(void)
{
	return atomic_load(&n_left);
}

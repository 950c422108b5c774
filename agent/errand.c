/* agent/errand.c: threads with a time limit, which are abandoned when the limit has passed. */
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

/*
 * Shared by the thread and its caller; whichever ends last frees it. done is set, under the lock,
 * when run has returned.
 */
struct shared {
	pthread_mutex_t lock;
	pthread_cond_t done_cond;
	struct errand errand;
	bool done;
	uint64_t used_ns; /* CPU time of the thread, once it is done */
	/* the caller has given up; set once, under the lock */
	atomic_bool left;
	/* the thread's id; 0: it has not started yet */
	_Atomic int tid;
};

/* abandoned threads that still run */
static atomic_uint n_left;

static void free_shared(struct shared *s)
{
	(void)pthread_cond_destroy(&s->done_cond);
	(void)pthread_mutex_destroy(&s->lock);
	free(s);
}

/* uw_unpack_unless's callback: stop unpacking once the caller has given up. */
static bool is_left(void *ctx)
{
	struct shared *s = ctx;

	return atomic_load(&s->left);
}

/*
 * The thread: run the errand, then report that it is done. left is read under the lock, which
 * errand_run holds when it decides: so exactly one side frees the errand.
 */
static void *run(void *ctx)
{
	struct shared *s = ctx;
	bool left;

	atomic_store(&s->tid, (int)syscall(SYS_gettid));
	uw_unpack_unless(is_left, s);
	s->errand.run(s->errand.ctx);
	(void)pthread_mutex_lock(&s->lock);
	s->done = true;
	s->used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	left = atomic_load(&s->left);
	(void)pthread_cond_signal(&s->done_cond);
	(void)pthread_mutex_unlock(&s->lock);
	if (left) {
		s->errand.drop(s->errand.ctx);
		free_shared(s);
		atomic_fetch_sub(&n_left, 1);
	}
	uw_unpack_unless(NULL, NULL); /* what it read has been freed, or is the caller's */
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

/*
 * Wait until the thread is done or its time is up, and charge its CPU time to the recording's end.
 * s->lock is held. The clock of a thread that ends just now cannot be read; it is done then.
 */
static void wait_for(struct shared *s, pthread_t thread, uint64_t limit_ns)
{
	uint64_t began = now_ns(), charged = 0;
	clockid_t cpu;

	if (pthread_getcpuclockid(thread, &cpu))
		cpu = CLOCK_THREAD_CPUTIME_ID;
	while (!s->done) {
		uint64_t now = now_ns();
		struct timespec until, used = { 0 };

		(void)clock_gettime(cpu, &used);
		charge((uint64_t)used.tv_sec * (1000 * MS) + (uint64_t)used.tv_nsec, &charged);
		if (charged >= limit_ns || ending_over())
			break;
		if ((now - began) / ENDING_STRETCH >= limit_ns &&
		    !is_runnable(atomic_load(&s->tid)))
			break;
		now += LOOK_NS;
		until = (struct timespec){ .tv_sec = (time_t)(now / (1000 * MS)),
					   .tv_nsec = (long)(now % (1000 * MS)) };
		(void)pthread_cond_timedwait(&s->done_cond, &s->lock, &until);
	}
	charge(s->used_ns, &charged);
}

/* Start the thread, with a small stack. Return 0 or a negative code. */
static int begin(struct shared *s, pthread_t *thread)
{
	pthread_attr_t attr;
	int err;

	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setstacksize(&attr, STACK_SIZE);
	/* Do not inherit the caller's real-time priority, if it has one. */
	(void)pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	err = thread_begin(thread, &attr, run, s);
	(void)pthread_attr_destroy(&attr);
	return err;
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
 * Free s in one place only: here if run returned in time, else in the thread that is left behind.
 * Both read and set s->left under the lock. At most LEFT_MAX threads are left behind.
 */
int errand_run(const struct errand *errand, uint64_t limit_ns)
{
	pthread_condattr_t attr;
	pthread_t thread;
	struct shared *s;
	bool done;
	int err;

	if (ending_over() || atomic_load(&n_left) >= LEFT_MAX)
		return -EAGAIN;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -EAGAIN;
	s->errand = *errand;
	(void)pthread_mutex_init(&s->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&s->done_cond, &attr);
	(void)pthread_condattr_destroy(&attr);
	err = begin(s, &thread);
	if (err) {
		free_shared(s);
		return -EAGAIN;
	}
	(void)pthread_mutex_lock(&s->lock);
	wait_for(s, thread, limit_ns);
	done = s->done;
	atomic_store(&s->left, !done);
	if (!done) {
		atomic_fetch_add(&n_left, 1);
		(void)pthread_detach(thread);
		step_back(atomic_load(&s->tid));
	}
	(void)pthread_mutex_unlock(&s->lock);
	if (!done)
		return -ETIMEDOUT;
	(void)pthread_join(thread, NULL);
	free_shared(s);
	return 0;
}

unsigned int errands_left(void)
{
	return atomic_load(&n_left);
}

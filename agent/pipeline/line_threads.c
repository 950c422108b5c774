/* agent/pipeline/line_threads.c: distributes the reading of debug information to a few threads. */
#include "agent/pipeline/line_threads.h"

#include "agent/role/reading.h"
#include "agent/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum {
	THREADS_MAX = 4,
	ADDRESSES_PER_THREAD = 48, /* addresses that justify one more thread */
};

struct reader { /* an additional reader of the same file, for another thread */
	struct sym_debug *debug;
	struct sym_lines *lines;
};

enum state { WAITING, OPENING, READY, DONE };

struct shared { /* a task and its threads */
	struct lines_task *task;
	enum state state;
	struct reader readers[THREADS_MAX - 1];
	size_t n_readers, n_given; /* n_given: how many readers have a thread */
	size_t n_users;
	struct sym_turns turns;
};

struct work {
	pthread_mutex_t lock; /* protects all below, except a reader in use */
	pthread_cond_t changed;
	struct shared *tasks;
	size_t n, n_threads;
};

/* Make readers for the additional threads of a file, as many as its addresses justify. */
static void make_readers(struct shared *s, size_t most)
{
	size_t useful = s->task->n / ADDRESSES_PER_THREAD;

	most = most < useful ? most : useful;
	while (s->n_readers < most && s->n_readers < THREADS_MAX - 1) {
		struct reader *t = &s->readers[s->n_readers];

		if (sym_lines_new(&t->lines))
			return;
		if (sym_debug_new_reader(s->task->debug, t->lines, &t->debug)) {
			sym_lines_free(t->lines);
			t->lines = NULL;
			return;
		}
		s->n_readers++;
	}
}

/* End one thread's use of a task. The last one closes what is not needed any more. */
static void leave(struct work *w, struct shared *s)
{
	if (--s->n_users)
		return;
	s->state = DONE;
	for (size_t i = 0; i < s->n_readers; i++) {
		sym_debug_free(s->readers[i].debug);
		s->readers[i].debug = NULL;
	}
	if (!s->task->keep) {
		sym_debug_free(s->task->debug);
		s->task->debug = NULL;
	}
	(void)pthread_cond_broadcast(&w->changed);
}

/* Read the task's lines with one reader. */
static void prepare(struct shared *s, struct sym_debug *debug)
{
	int number = s->task->note(s->task->ctx);

	(void)sym_debug_prepare(debug, s->task->vaddrs, s->task->n, &s->turns);
	reading_noted(number);
}

/* Open the task's debug information and read it. The caller holds the lock; released meanwhile. */
static void read_own(struct work *w, struct shared *s)
{
	struct lines_task *t = s->task;

	s->state = OPENING;
	s->n_users = 1;
	(void)pthread_mutex_unlock(&w->lock);
	if (!t->debug)
		t->err = t->open(t->ctx, t->lines, &t->debug);
	if (t->debug)
		make_readers(s, w->n_threads - 1);
	(void)pthread_mutex_lock(&w->lock);
	s->state = READY;
	(void)pthread_cond_broadcast(&w->changed);
	(void)pthread_mutex_unlock(&w->lock);
	/* Ignore errors: missing lines are looked up again later, and errors are reported then. */
	if (t->debug)
		prepare(s, t->debug);
	(void)pthread_mutex_lock(&w->lock);
	leave(w, s);
}

/* Read a part of a task with a reader of its own. The caller holds the lock; released meanwhile. */
static void help(struct work *w, struct shared *s)
{
	struct reader *reader = &s->readers[s->n_given++];

	s->n_users++;
	(void)pthread_mutex_unlock(&w->lock);
	prepare(s, reader->debug);
	(void)pthread_mutex_lock(&w->lock);
	leave(w, s);
}

/*
 * Return the task in this state with the most addresses; NULL: none. READY: only tasks with a free
 * reader.
 */
static struct shared *find_task(struct work *w, enum state state)
{
	struct shared *found = NULL;

	for (size_t i = 0; i < w->n; i++) {
		struct shared *s = &w->tasks[i];

		if (s->state == state && (state != READY || s->n_given < s->n_readers) &&
		    (!found || s->task->n > found->task->n))
			found = s;
	}
	return found;
}

/* A thread: start waiting tasks, then help with running ones, until nothing is left to do. */
static void *run(void *ctx)
{
	struct work *w = ctx;
	struct shared *s;

	(void)pthread_mutex_lock(&w->lock);
	for (;;) {
		if ((s = find_task(w, WAITING)))
			read_own(w, s);
		else if ((s = find_task(w, READY)))
			help(w, s);
		else if (find_task(w, OPENING))
			(void)pthread_cond_wait(&w->changed, &w->lock);
		else
			break;
	}
	(void)pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Return how many threads the addresses justify, limited by the CPUs that this thread may use. */
static size_t count_threads(const struct lines_task *tasks, size_t n)
{
	size_t addresses = 0, threads;
	cpu_set_t set;

	for (size_t i = 0; i < n; i++)
		addresses += tasks[i].n;
	threads = sched_getaffinity(0, sizeof(set), &set) ? 1 : (size_t)CPU_COUNT(&set);
	threads = threads < THREADS_MAX ? threads : THREADS_MAX;
	return threads < 1 + addresses / ADDRESSES_PER_THREAD
		       ? threads
		       : 1 + addresses / ADDRESSES_PER_THREAD;
}

/*
 * Run all tasks, on this thread and n_threads - 1 others. If a thread cannot be made, fewer do the
 * work.
 */
static void run_all(struct work *w)
{
	pthread_t threads[THREADS_MAX];
	size_t n = 0;

	while (n + 1 < w->n_threads && !thread_begin(&threads[n], NULL, run, w))
		n++;
	(void)run(w);
	while (n)
		(void)pthread_join(threads[--n], NULL);
}

void lines_read(struct lines_task *tasks, size_t n)
{
	struct work w = { .lock = PTHREAD_MUTEX_INITIALIZER,
			  .changed = PTHREAD_COND_INITIALIZER,
			  .tasks = calloc(n + 1, sizeof(*w.tasks)),
			  .n = n,
			  .n_threads = count_threads(tasks, n) };

	if (!w.tasks)
		return;
	for (size_t i = 0; i < n; i++)
		w.tasks[i].task = &tasks[i];
	run_all(&w);
	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < w.tasks[i].n_readers; j++) {
			(void)sym_lines_join(tasks[i].lines, w.tasks[i].readers[j].lines);
			sym_lines_free(w.tasks[i].readers[j].lines);
		}
	}
	free(w.tasks);
	(void)pthread_mutex_destroy(&w.lock);
	(void)pthread_cond_destroy(&w.changed);
}

/*
 * agent/history/history_count.c: counts samples in a thread of its own, while others are read. To count them takes as long
 * as to read them, as each sum lies somewhere else in memory.
 */
#include "agent/history/history_reading.h"

#include "agent/thread.h"

#include <pthread.h>
#include <stdlib.h>

/* Samples are given in batches, so large that waking a thread for each costs little. */
enum { BATCH = 4096, BATCHES = 3 };

struct counting {
	struct reading *r;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock: how many batches were given, and counted; and the first error. */
	uint64_t given, counted;
	size_t sizes[BATCHES];
	bool ends;
	int err;
	/* Each is the reader's until it is given, and then the thread's until it is counted. */
	struct pending batches[BATCHES][BATCH];
};

/* Count batches until the reader says that there are no more. After an error they are not counted. */
static void *run(void *ctx)
{
	struct counting *c = ctx;

	(void)pthread_mutex_lock(&c->lock);
	for (;;) {
		size_t at = c->counted % BATCHES, n = c->sizes[at];
		int err = c->err;

		if (c->counted == c->given && c->ends)
			break;
		if (c->counted == c->given) {
			(void)pthread_cond_wait(&c->changed, &c->lock);
			continue;
		}
		(void)pthread_mutex_unlock(&c->lock);
		if (!err)
			err = history_sum_these(c->r, c->batches[at], n);
		(void)pthread_mutex_lock(&c->lock);
		c->err = err;
		c->counted++;
		(void)pthread_cond_signal(&c->changed);
	}
	(void)pthread_mutex_unlock(&c->lock);
	return NULL;
}

static void use_batch(struct reading *r)
{
	r->pending = r->counting->batches[r->counting->given % BATCHES];
	r->most_pending = BATCH;
	r->n_pending = 0;
}

void history_count_begin(struct reading *r)
{
	struct counting *c = malloc(sizeof(*c));

	if (!c)
		return;
	c->r = r;
	c->given = c->counted = 0;
	c->ends = false;
	c->err = 0;
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_cond_init(&c->changed, NULL);
	if (thread_begin(&c->thread, NULL, run, c)) {
		free(c);
		return;
	}
	r->counting = c;
	use_batch(r);
}

int history_count_give(struct reading *r)
{
	struct counting *c = r->counting;
	int err;

	(void)pthread_mutex_lock(&c->lock);
	c->sizes[c->given++ % BATCHES] = r->n_pending;
	(void)pthread_cond_signal(&c->changed);
	while (c->given - c->counted == BATCHES)
		(void)pthread_cond_wait(&c->changed, &c->lock);
	err = c->err;
	(void)pthread_mutex_unlock(&c->lock);
	use_batch(r);
	return err;
}

int history_count_end(struct reading *r)
{
	struct counting *c = r->counting;
	int err;

	if (!c)
		return 0;
	(void)pthread_mutex_lock(&c->lock);
	c->ends = true;
	(void)pthread_cond_signal(&c->changed);
	(void)pthread_mutex_unlock(&c->lock);
	(void)pthread_join(c->thread, NULL);
	err = c->err;
	(void)pthread_mutex_destroy(&c->lock);
	(void)pthread_cond_destroy(&c->changed);
	free(c);
	r->counting = NULL;
	r->pending = r->few;
	r->most_pending = PENDING;
	return err;
}

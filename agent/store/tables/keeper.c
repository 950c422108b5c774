/* agent/store/tables/keeper.c: the thread that finds or compiles unwind tables beside the walks. */
#include "agent/store/tables/keeper.h"

#include "agent/array.h"
#include "agent/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/*
 * Seconds to wait for the thread. A compilation checks every few milliseconds whether it is to
 * stop, but a file that does not answer can hold the thread for ever.
 */
#define JOIN_S 2

struct job {
	struct uw_object *object; /* a reference */
	struct store_file file;
	char *path; /* owned; same as file.path */
};

/* The queue is served in the order of arrival. */
struct keeper {
	struct store *store;
	pthread_mutex_t lock;
	pthread_cond_t more;
	pthread_t thread;
	struct job *line;
	size_t first, n, room; /* line[first … n) are waiting */
	atomic_bool ending;    /* the rest of the queue is dropped */
};

/*
 * Give one object its table: find it in the store, or compile and insert it. That reads all unwind information of the
 * file, by an object of its own, with which it is freed: the table is enough for walks.
 */
static void do_job(struct keeper *keeper, const struct job *job)
{
	struct uw_object *again = NULL, *object = job->object;

	if (!uw_object_open_copy(job->object, &again))
		object = again;
	/* If there can be no table, walks go on with the file's own rules. */
	if (store_find_parts(keeper->store, object, &job->file))
		(void)store_keep_unless(keeper->store, object, &job->file, &keeper->ending);
	if (again)
		uw_object_take_from(job->object, again);
	uw_object_put(again);
	uw_object_put(job->object);
	free(job->path);
}

/* The thread: take objects from the queue until the keeper ends. */
static void *run(void *ctx)
{
	struct keeper *keeper = ctx;

	/*
	 * A recorder may have raised its own priority (a negative nice value); this work is less
	 * urgent.
	 */
	errno = 0;
	if (getpriority(PRIO_PROCESS, 0) < 0 && !errno)
		(void)setpriority(PRIO_PROCESS, 0, 0);
	pthread_mutex_lock(&keeper->lock);
	while (!keeper->ending) {
		struct job job;

		if (keeper->first == keeper->n) {
			keeper->first = keeper->n = 0;
			pthread_cond_wait(&keeper->more, &keeper->lock);
			continue;
		}
		job = keeper->line[keeper->first++];
		pthread_mutex_unlock(&keeper->lock);
		do_job(keeper, &job);
		pthread_mutex_lock(&keeper->lock);
	}
	pthread_mutex_unlock(&keeper->lock);
	return NULL;
}

int keeper_new(struct store *store, struct keeper **out)
{
	struct keeper *keeper = calloc(1, sizeof(*keeper));
	int err;

	if (!keeper)
		return -ENOMEM;
	keeper->store = store;
	store_read_beside(store);
	pthread_mutex_init(&keeper->lock, NULL);
	pthread_cond_init(&keeper->more, NULL);
	err = thread_begin(&keeper->thread, NULL, run, keeper);
	if (err) {
		pthread_cond_destroy(&keeper->more);
		pthread_mutex_destroy(&keeper->lock);
		free(keeper);
		return err;
	}
	*out = keeper;
	return 0;
}

void keeper_stop(struct keeper *keeper)
{
	if (!keeper)
		return;
	pthread_mutex_lock(&keeper->lock);
	keeper->ending = true;
	pthread_cond_signal(&keeper->more);
	pthread_mutex_unlock(&keeper->lock);
}

bool keeper_free(struct keeper *keeper)
{
	struct timespec until;

	if (!keeper)
		return true;
	keeper_stop(keeper);
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += JOIN_S;
	if (pthread_clockjoin_np(keeper->thread, NULL, CLOCK_MONOTONIC, &until))
		return false;
	for (; keeper->first < keeper->n; keeper->first++) {
		uw_object_put(keeper->line[keeper->first].object);
		free(keeper->line[keeper->first].path);
	}
	pthread_cond_destroy(&keeper->more);
	pthread_mutex_destroy(&keeper->lock);
	free(keeper->line);
	free(keeper);
	return true;
}

int keeper_add(struct keeper *keeper, struct uw_object *object, const struct store_file *file)
{
	struct job job = { .file = *file, .path = strdup(file->path ? file->path : "") };
	int err = -ENOMEM;

	if (!job.path)
		return err;
	job.file.path = job.path;
	pthread_mutex_lock(&keeper->lock);
	err = array_grow(keeper->line, keeper->n, keeper->room);
	if (!err) {
		job.object = uw_object_get(object);
		keeper->line[keeper->n++] = job;
		pthread_cond_signal(&keeper->more);
	}
	pthread_mutex_unlock(&keeper->lock);
	if (err)
		free(job.path);
	return err;
}

/* unwinder/rule/builder.c: compiles objects in a thread of its own, so that walks do not wait for it. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "unwinder/unwinder.h"

/* The objects in the queue are counted references, in the order in which they were added. */
struct uw_builder {
	pthread_mutex_t lock;
	pthread_cond_t more, idle;
	pthread_t thread;
	struct uw_object **line;
	size_t first, n, room; /* line[first … n) are waiting */
	bool busy;
	atomic_bool ending;
};

/* Return whether the builder is being freed; compiling stops then. */
static bool is_ending(void *ctx)
{
	const struct uw_builder *builder = ctx;

	return atomic_load_explicit(&builder->ending, memory_order_relaxed);
}

/* The thread: compile the queued objects, one at a time, without the lock. */
static void *run(void *ctx)
{
	struct uw_builder *builder = ctx;

	pthread_mutex_lock(&builder->lock);
	while (!builder->ending) {
		struct uw_object *object;

		if (builder->first == builder->n) {
			builder->first = builder->n = 0;
			builder->busy = false;
			pthread_cond_broadcast(&builder->idle);
			pthread_cond_wait(&builder->more, &builder->lock);
			continue;
		}
		object = builder->line[builder->first++];
		builder->busy = true;
		pthread_mutex_unlock(&builder->lock);
		/* If compiling fails, walks continue to use the file's own rules. */
		(void)uw_object_compile_unless(object, is_ending, builder);
		uw_object_put(object);
		pthread_mutex_lock(&builder->lock);
	}
	builder->busy = false;
	pthread_cond_broadcast(&builder->idle);
	pthread_mutex_unlock(&builder->lock);
	return NULL;
}

int uw_builder_new(struct uw_builder **out)
{
	struct uw_builder *builder = calloc(1, sizeof(*builder));
	sigset_t all, old;
	int err;

	if (!builder)
		return -ENOMEM;
	pthread_mutex_init(&builder->lock, NULL);
	pthread_cond_init(&builder->more, NULL);
	pthread_cond_init(&builder->idle, NULL);
	/* Block all signals in the new thread: they belong to the caller's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&builder->thread, NULL, run, builder);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err) {
		pthread_cond_destroy(&builder->idle);
		pthread_cond_destroy(&builder->more);
		pthread_mutex_destroy(&builder->lock);
		free(builder);
		return -err;
	}
	*out = builder;
	return 0;
}

void uw_builder_free(struct uw_builder *builder)
{
	if (!builder)
		return;
	pthread_mutex_lock(&builder->lock);
	builder->ending = true;
	pthread_cond_signal(&builder->more);
	pthread_mutex_unlock(&builder->lock);
	pthread_join(builder->thread, NULL);
	for (size_t i = builder->first; i < builder->n; i++)
		uw_object_put(builder->line[i]);
	pthread_cond_destroy(&builder->idle);
	pthread_cond_destroy(&builder->more);
	pthread_mutex_destroy(&builder->lock);
	free(builder->line);
	free(builder);
}

/*
 * Append a reference to the queue. It is dropped when the object has been compiled or the
 * builder is freed.
 */
int uw_builder_add(struct uw_builder *builder, struct uw_object *object)
{
	int err = 0;

	pthread_mutex_lock(&builder->lock);
	if (builder->n == builder->room) {
		size_t room = builder->room ? builder->room * 2 : 16;
		struct uw_object **more = realloc(builder->line, room * sizeof(struct uw_object *));

		if (more) {
			builder->line = more;
			builder->room = room;
		} else {
			err = -ENOMEM;
		}
	}
	if (!err) {
		builder->line[builder->n++] = uw_object_get(object);
		builder->busy = true;
		pthread_cond_signal(&builder->more);
	}
	pthread_mutex_unlock(&builder->lock);
	return err;
}

void uw_builder_wait(struct uw_builder *builder)
{
	pthread_mutex_lock(&builder->lock);
	while (builder->busy)
		pthread_cond_wait(&builder->idle, &builder->lock);
	pthread_mutex_unlock(&builder->lock);
}

/* agent/opener/mapped_link.c: opens links in /proc/PID/map_files, which waits for a lock of the process, for a short time. */
#include "agent/opener/places.h"

#include "agent/clock.h"
#include "agent/ending.h"
#include "agent/errand.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAIT_NS	  (UINT64_C(1000000) * OPENER_MEMORY_MS)
#define USERS_MAX 4 /* that may keep a thread waiting at a time */

/* One that is under way. */
struct opening {
	struct opening *next;
	char path[96];
	uid_t uid; /* of the process */
	uint64_t began_ns;
	int fd, err;
};

static struct opening *under_way;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Add it to those that are under way. -EBUSY: one of this user, or of too many users, has been waiting for too long. */
static int begin(struct opening *o)
{
	unsigned int n = 0;
	bool busy = false;

	o->began_ns = now_ns();
	(void)pthread_mutex_lock(&lock);
	for (const struct opening *w = under_way; w; w = w->next) {
		if (o->began_ns - w->began_ns <= WAIT_NS)
			continue;
		busy |= w->uid == o->uid || ++n == USERS_MAX;
	}
	if (!busy) {
		o->next = under_way;
		under_way = o;
	}
	(void)pthread_mutex_unlock(&lock);
	return busy ? -EBUSY : 0;
}

/* errand.drop */
static void end(void *ctx)
{
	struct opening *o = ctx, **at = &under_way;

	(void)pthread_mutex_lock(&lock);
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	(void)pthread_mutex_unlock(&lock);
	if (o->fd >= 0)
		(void)close(o->fd);
	free(o);
}

/* errand.run */
static void run(void *ctx)
{
	struct opening *o = ctx;

	o->fd = open(o->path, O_PATH | O_CLOEXEC);
	o->err = o->fd < 0 ? -errno : 0;
}

int places_mapped_link(const struct opener_file *file, int *fd)
{
	struct opening *o = calloc(1, sizeof(*o));
	const struct errand errand = { .run = run, .drop = end, .ctx = o };
	struct stat st;
	int err;

	if (!o)
		return -ENOMEM;
	o->fd = -1;
	(void)snprintf(o->path, sizeof(o->path), "/proc/%" PRIu32, file->pid);
	if (stat(o->path, &st)) {
		err = -errno;
		free(o);
		return err;
	}
	o->uid = st.st_uid;
	(void)snprintf(o->path, sizeof(o->path), "/proc/%" PRIu32 "/map_files/%" PRIx64 "-%" PRIx64,
		       file->pid, file->start, file->end);
	err = begin(o);
	if (err) {
		free(o);
		return err;
	}
	err = errand_run(&errand, WAIT_NS / ENDING_STRETCH);
	if (err == -ETIMEDOUT) /* o is the thread's */
		return -EBUSY;
	if (err) {
		err = -EBUSY; /* no thread could be begun */
	} else {
		err = o->err;
		*fd = err ? *fd : o->fd;
		o->fd = -1;
	}
	end(o);
	return err;
}

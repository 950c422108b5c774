/* agent/opener/process_errand.c: does what waits for a lock of another process, for a short time. */
#include "agent/opener/places.h"

#include "agent/ending.h"
#include "agent/errand.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define USERS_MAX 4 /* of a kind, that may keep a thread waiting at a time */

/*
 * The ids from here on are mostly those of user namespaces (SUB_UID_MIN of login.defs(5)): an ordinary user may have 65,536 of
 * them, and be as many users.
 */
#define SUBORDINATE_UIDS 100000

/* Hostile users can use up what users of their own kind share: root's processes are looked at beside any number of them. */
enum kind { KIND_ROOT, KIND_ORDINARY, KIND_SUBORDINATE };

/* One that is under way. */
struct waiting {
	struct waiting *next;
	struct errand errand;
	uid_t uid; /* of the process */
	uint64_t number;
	bool is_left; /* its thread was left behind */
};

static struct waiting *under_way;
static uint64_t n_begun;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static enum kind kind_of(uid_t uid)
{
	if (!uid)
		return KIND_ROOT;
	return uid < SUBORDINATE_UIDS ? KIND_ORDINARY : KIND_SUBORDINATE;
}

/*
 * Add it to those that are under way. -EBUSY: a thread was left behind for one of this user, or for too many users of the same
 * kind.
 */
static int begin(struct waiting *w)
{
	unsigned int n = 0;
	bool busy = false;

	(void)pthread_mutex_lock(&lock);
	for (const struct waiting *other = under_way; other; other = other->next)
		if (other->is_left && kind_of(other->uid) == kind_of(w->uid))
			busy |= other->uid == w->uid || ++n == USERS_MAX;
	if (!busy) {
		w->number = ++n_begun;
		w->next = under_way;
		under_way = w;
	}
	(void)pthread_mutex_unlock(&lock);
	return busy ? -EBUSY : 0;
}

static void end(struct waiting *w)
{
	struct waiting **at = &under_way;

	(void)pthread_mutex_lock(&lock);
	while (*at != w)
		at = &(*at)->next;
	*at = w->next;
	(void)pthread_mutex_unlock(&lock);
	free(w);
}

/* Note that its thread was left behind, unless that has ended meanwhile. */
static void leave(uint64_t number)
{
	(void)pthread_mutex_lock(&lock);
	for (struct waiting *w = under_way; w; w = w->next)
		w->is_left |= w->number == number;
	(void)pthread_mutex_unlock(&lock);
}

/* errand.run */
static void run(void *ctx)
{
	const struct waiting *w = ctx;

	w->errand.run(w->errand.ctx);
}

/* errand.drop */
static void drop(void *ctx)
{
	struct waiting *w = ctx;

	w->errand.drop(w->errand.ctx);
	end(w);
}

int opener_errand(int process, const struct errand *errand, uint64_t wait_ns)
{
	struct waiting *w = calloc(1, sizeof(*w));
	uint64_t number;
	struct stat st;
	int err;

	if (!w)
		return -ENOMEM;
	if (fstat(process, &st)) {
		err = -errno;
		free(w);
		return err;
	}
	*w = (struct waiting){ .errand = *errand, .uid = st.st_uid };
	err = begin(w);
	if (err) {
		free(w);
		return err;
	}
	number = w->number;
	err = errand_run(&(struct errand){ .run = run, .drop = drop, .ctx = w },
			 wait_ns / ENDING_STRETCH);
	if (err == -ETIMEDOUT) { /* w is the thread's */
		leave(number);
		return err;
	}
	end(w);
	return err ? -EBUSY : 0; /* no thread could be begun */
}

int places_process_directory(uint32_t pid, int *fd)
{
	char path[32];
	int opened;

	(void)snprintf(path, sizeof(path), "/proc/%" PRIu32, pid);
	opened = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (opened < 0)
		return -errno;
	*fd = opened;
	return 0;
}

/* A file in the directory of a process, while it is opened. */
struct opening {
	int (*open)(int process, const char *name, int flags);
	int process, flags;
	char name[64];
	int fd, err;
};

/* errand.drop */
static void end_opening(void *ctx)
{
	struct opening *o = ctx;

	if (o->fd >= 0)
		(void)close(o->fd);
	if (o->process >= 0)
		(void)close(o->process);
	free(o);
}

/* errand.run */
static void open_it(void *ctx)
{
	struct opening *o = ctx;

	o->fd = o->open(o->process, o->name, o->flags);
	o->err = o->fd < 0 ? o->fd : 0;
}

int places_process_by(int (*open)(int process, const char *name, int flags), int process,
		      const char *name, int flags, int *fd)
{
	struct opening *o = calloc(1, sizeof(*o));
	const struct errand errand = { .run = open_it, .drop = end_opening, .ctx = o };
	int err = 0;

	if (!o)
		return -ENOMEM;
	*o = (struct opening){ .open = open, .flags = flags | O_CLOEXEC, .fd = -1 };
	(void)snprintf(o->name, sizeof(o->name), "%s", name);
	/* The thread may be left behind, so it has a descriptor of its own. */
	o->process = fcntl(process, F_DUPFD_CLOEXEC, 0);
	if (o->process < 0)
		err = -errno;
	if (!err)
		err = opener_errand(process, &errand, OPENER_MEMORY_NS);
	if (err == -ETIMEDOUT) /* o is the thread's */
		return -EBUSY;
	if (!err) {
		err = o->err;
		*fd = err ? *fd : o->fd;
		o->fd = -1;
	}
	end_opening(o);
	return err;
}

static int open_name(int process, const char *name, int flags)
{
	int fd = openat(process, name, flags);

	return fd < 0 ? -errno : fd;
}

int places_process_open(int process, const char *name, int flags, int *fd)
{
	return places_process_by(open_name, process, name, flags, fd);
}

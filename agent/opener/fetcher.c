/*
 * agent/opener/fetcher.c: asks debuginfod servers through libdebuginfod, which is loaded at run
 * time.
 */
#include "agent/opener/fetcher.h"

#include "agent/array.h"
#include "agent/log.h"
#include "agent/opener/places.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A server that has not answered after this time is considered dead. */
#define DEADLINE_S 10
#define LATE_MAX   2 /* late answers in a row, after which no server is asked any more */
#define WANTED_MAX 4096

enum state { WAITING, ASKED, THERE, NOT_THERE, FAILED }; /* NOT_THERE: a server said so */

struct wanted {
	struct uw_build_id id;
	enum state state;
	char *path; /* THERE; owned */
};

/* The functions of libdebuginfod, from elfutils/debuginfod.h. */
typedef struct debuginfod_client client;
typedef client *(*begin_fn)(void);
typedef void (*end_fn)(client *client);
typedef int (*find_fn)(client *client, const unsigned char *id, int size, char **path);
typedef int (*progress_fn)(client *client, long a, long b);
typedef void (*set_progress_fn)(client *client, progress_fn progress);
typedef void (*set_data_fn)(client *client, void *data);
typedef void *(*data_fn)(client *client);

struct fetcher {
	void *library;
	begin_fn begin;
	end_fn end;
	find_fn find;
	set_progress_fn set_progress;
	set_data_fn set_data;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct wanted *wanted; /* in the order of the requests */
	size_t n, room, next;
	unsigned int late; /* late answers in a row */
	bool said;	   /* warned that no server can be reached; used by the thread only */
	bool stopping;
	time_t seconds;		  /* time limit of a request */
	struct timespec deadline; /* CLOCK_MONOTONIC, of the current request */
	data_fn data;
};

/* Return the time that many seconds from now, CLOCK_MONOTONIC. */
static struct timespec in_seconds(time_t seconds)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_sec += seconds;
	return ts;
}

static bool is_past(const struct timespec *deadline)
{
	struct timespec now = in_seconds(0);

	return now.tv_sec > deadline->tv_sec ||
	       (now.tv_sec == deadline->tv_sec && now.tv_nsec >= deadline->tv_nsec);
}

static data_fn data_of; /* debuginfod_get_user_data, the same function for every fetcher */

/*
 * Return nonzero to end the current request. libdebuginfod calls this regularly during a request.
 */
static int go_on(client *c, long a, long b)
{
	struct fetcher *f = data_of(c);
	bool stop;

	(void)a;
	(void)b;
	(void)pthread_mutex_lock(&f->lock);
	stop = f->stopping || is_past(&f->deadline);
	(void)pthread_mutex_unlock(&f->lock);
	return stop;
}

/* Make one request. No lock is held. */
static enum state ask(struct fetcher *f, client *c, const struct uw_build_id *id, char **path)
{
	int fd;

	fd = f->find(c, id->bytes, id->size, path);
	if (fd >= 0) {
		(void)close(fd);
		return THERE;
	}
	if (fd == -ENOENT)
		return NOT_THERE;
	if (!f->said && !go_on(c, 0, 0)) { /* the request was not ended by go_on */
		log_warning("debuginfod: cannot ask the servers in DEBUGINFOD_URLS: %s; names that "
			    "only they have are missing",
			    strerror(-fd));
		f->said = true;
	}
	return FAILED;
}

/* The fetcher's thread: makes the requests one after the other. */
static void *run(void *ctx)
{
	struct fetcher *f = ctx;
	client *c = f->begin();

	if (c) {
		f->set_data(c, f);
		f->set_progress(c, go_on);
	}
	(void)pthread_mutex_lock(&f->lock);
	while (!f->stopping) {
		struct uw_build_id id;
		enum state state = FAILED;
		char *path = NULL;
		size_t at;

		if (f->next == f->n) {
			(void)pthread_cond_wait(&f->changed, &f->lock);
			continue;
		}
		at = f->next++;
		id = f->wanted[at].id;
		f->wanted[at].state = ASKED;
		f->deadline = in_seconds(f->seconds);
		if (c && f->late < LATE_MAX) {
			(void)pthread_mutex_unlock(&f->lock);
			state = ask(f, c, &id, &path);
			(void)pthread_mutex_lock(&f->lock);
			f->late = state != THERE && is_past(&f->deadline) ? f->late + 1 : 0;
			if (f->late == LATE_MAX)
				log_warning("debuginfod: no answer in %d s; not asked again",
					    (int)f->seconds);
		}
		f->wanted[at].state = state;
		f->wanted[at].path = path;
		(void)pthread_cond_broadcast(&f->changed);
	}
	(void)pthread_mutex_unlock(&f->lock);
	if (c)
		f->end(c);
	return NULL;
}

/*
 * Look up a function of the library. The bytes are copied because dlsym returns a data pointer;
 * POSIX allows to use it as a function pointer.
 */
static bool load(struct fetcher *f, const char *name, void *function)
{
	void *symbol = dlsym(f->library, name);

	memcpy(function, &symbol, sizeof(symbol));
	return symbol;
}

bool fetcher_is_configured(void)
{
	const char *urls = getenv("DEBUGINFOD_URLS");

	return urls && urls[strspn(urls, " ")];
}

/*
 * Load the library at run time and only if a server is configured: few users need it, and it brings
 * libcurl.
 */
int fetcher_new(struct fetcher **out)
{
	const char *timeout = getenv("DEBUGINFOD_TIMEOUT");
	pthread_condattr_t monotonic;
	struct fetcher *f;
	int err;

	if (!fetcher_is_configured())
		return -ENOENT;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->library = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!f->library || !load(f, "debuginfod_begin", &f->begin) ||
	    !load(f, "debuginfod_end", &f->end) ||
	    !load(f, "debuginfod_find_debuginfo", &f->find) ||
	    !load(f, "debuginfod_set_progressfn", &f->set_progress) ||
	    !load(f, "debuginfod_set_user_data", &f->set_data) ||
	    !load(f, "debuginfod_get_user_data", &f->data)) {
		log_warning("DEBUGINFOD_URLS is set, but libdebuginfod is not installed");
		if (f->library)
			(void)dlclose(f->library);
		free(f);
		return -ENOENT;
	}
	data_of = f->data;
	f->seconds = timeout && atoi(timeout) > 0 && atoi(timeout) < DEADLINE_S ? atoi(timeout)
										: DEADLINE_S;
	(void)pthread_mutex_init(&f->lock, NULL);
	(void)pthread_condattr_init(&monotonic);
	(void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&f->changed, &monotonic);
	(void)pthread_condattr_destroy(&monotonic);
	err = -pthread_create(&f->thread, NULL, run, f);
	if (err) {
		(void)dlclose(f->library);
		free(f);
		return err;
	}
	*out = f;
	return 0;
}

void fetcher_free(struct fetcher *f)
{
	if (!f)
		return;
	(void)pthread_mutex_lock(&f->lock);
	f->stopping = true;
	(void)pthread_cond_broadcast(&f->changed);
	(void)pthread_mutex_unlock(&f->lock);
	(void)pthread_join(f->thread, NULL);
	for (size_t i = 0; i < f->n; i++)
		free(f->wanted[i].path);
	free(f->wanted);
	(void)pthread_cond_destroy(&f->changed);
	(void)pthread_mutex_destroy(&f->lock);
	/*
	 * The library stays loaded: libcurl, which it uses, does not work well when loaded twice.
	 */
	free(f);
}

/* Return the entry of a build-id, or NULL. The caller holds the lock. */
static struct wanted *find(struct fetcher *f, const struct uw_build_id *id)
{
	for (size_t i = 0; i < f->n; i++)
		if (uw_build_id_equal(&f->wanted[i].id, id))
			return &f->wanted[i];
	return NULL;
}

void fetcher_want(struct fetcher *f, const struct uw_build_id *id)
{
	if (!f || !id->size)
		return;
	(void)pthread_mutex_lock(&f->lock);
	if (!find(f, id) && f->n < WANTED_MAX && !array_grow(f->wanted, f->n, f->room)) {
		f->wanted[f->n++] = (struct wanted){ .id = *id };
		(void)pthread_cond_broadcast(&f->changed);
	}
	(void)pthread_mutex_unlock(&f->lock);
}

int fetcher_take(struct fetcher *f, const struct uw_build_id *id, int *fd)
{
	struct timespec deadline;
	struct wanted *w;
	int err = -ENOENT;
	char *path = NULL;

	if (!f || !id->size)
		return -ENOENT;
	fetcher_want(f, id);
	/*
	 * Wait one second longer than the request: libdebuginfod checks its limits about once a
	 * second.
	 */
	deadline = in_seconds(f->seconds + 1);
	(void)pthread_mutex_lock(&f->lock);
	while ((w = find(f, id)) && (w->state == WAITING || w->state == ASKED)) {
		if (pthread_cond_timedwait(&f->changed, &f->lock, &deadline)) {
			err = -ETIMEDOUT;
			break;
		}
	}
	w = find(f, id);
	if (w && w->state == THERE && w->path)
		path = strdup(w->path);
	else if (w && w->state == NOT_THERE)
		err = -ENODATA;
	(void)pthread_mutex_unlock(&f->lock);
	if (path)
		err = places_open(path, NULL, fd);
	free(path);
	return err;
}

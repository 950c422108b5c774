/*
 * agent/export/writer.c: the thread that names and writes profiles, and the files of its windows.
 */
#include "agent/export/writer.h"

#include "agent/clock.h"
#include "agent/errand.h"
#include "agent/export/output.h"
#include "agent/export/result.h"
#include "agent/export/windows.h"
#include "agent/log.h"
#include "agent/pipeline/fold.h"
#include "agent/pipeline/names.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define QUEUE 12

struct writer {
	struct writer_options options;
	struct names *names; /* used by the thread alone while it runs */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct profile *queue[QUEUE];
	size_t first, n;
	bool finishing;
	uint64_t n_written, n_failed;
};

/* Name a profile and write it in the format asked for. out NULL: no memory. */
static int write_format(struct writer *w, const struct profile *profile, FILE *out)
{
	struct result *r = NULL;
	int err = result_new(w->options.format, &r);

	if (!err)
		err = result_add(r, profile, w->names, w->options.info);
	if (!err)
		err = out ? result_write(r, w->options.type, out) : -ENOMEM;
	result_free(r);
	if (!err && w->options.unnamed)
		unnamed_add(w->options.unnamed, profile, w->names, w->options.info);
	return err;
}

/* Write a profile to an unnamed file, and let the caller of this module have it. */
static int give_profile(struct writer *w, const struct profile *profile)
{
	int fd = memfd_create("window", MFD_CLOEXEC), err;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w");

	if (!file) {
		err = -errno;
		if (fd >= 0)
			(void)close(fd);
	} else {
		err = write_format(w, profile, file);
		if (!err && fflush(file))
			err = -errno;
	}
	if (err)
		log_error("a window cannot be made: %s", strerror(-err));
	else
		err = w->options.take(w->options.take_ctx, profile, fd);
	if (file)
		(void)fclose(file);
	return err;
}

/* Write a profile to its file, and delete old windows. Failures are reported. */
static int write_profile(struct writer *w, const struct profile *profile)
{
	char path[4096];
	const char *name = w->options.path;
	struct output out;
	int err;

	if (w->options.take)
		return give_profile(w, profile);
	if (w->options.directory) {
		const struct source_info *info = w->options.info;

		window_path(w->options.directory,
			    info->wall_start_ns + profile->start_ns - info->wall_first_ns,
			    w->options.format, path, sizeof(path));
		name = path;
	}
	err = output_open(&out, name);
	if (err)
		return err;
	err = write_format(w, profile, output_file(&out) ? out.file : NULL);
	if (err) {
		log_unwritable(name, err);
		output_abort(&out);
		return err;
	}
	err = output_commit(&out);
	if (!err && w->options.directory && w->options.keep)
		windows_keep(w->options.directory, w->options.keep);
	return err;
}

/* Make the object that names locations, with the writer's options. */
static int make_names(struct writer *w, struct names **out)
{
	int err = names_new(w->options.opener, w->options.info, w->options.demangle, out);

	if (err)
		return err;
	names_store(*out, w->options.store);
	names_bounded(*out);
	if (w->options.lines)
		names_lines(*out, w->options.inlined);
	return 0;
}

/* The thread: write queued profiles until the writer finishes. */
static void *run(void *ctx)
{
	struct writer *w = ctx;

	(void)pthread_mutex_lock(&w->lock);
	for (;;) {
		struct profile *profile;
		int err;

		while (!w->n && !w->finishing)
			(void)pthread_cond_wait(&w->changed, &w->lock);
		if (!w->n)
			break;
		profile = w->queue[w->first];
		(void)pthread_mutex_unlock(&w->lock);
		err = write_profile(w, profile);
		/* Its modules are not closed while there is a profile. */
		names_bound(&w->names, now_ns());
		profile_free(profile);
		(void)malloc_trim(0); /* return memory to the system until the next window ends */
		(void)pthread_mutex_lock(&w->lock);
		w->first = (w->first + 1) % QUEUE;
		w->n--;
		if (err)
			w->n_failed++;
		else
			w->n_written++;
		(void)pthread_cond_broadcast(&w->changed);
	}
	(void)pthread_mutex_unlock(&w->lock);
	return NULL;
}

int writer_new(const struct writer_options *options, struct writer **out)
{
	struct writer *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	w->options = *options;
	err = make_names(w, &w->names);
	if (err) {
		free(w);
		return err;
	}
	(void)pthread_mutex_init(&w->lock, NULL);
	(void)pthread_cond_init(&w->changed, NULL);
	err = -pthread_create(&w->thread, NULL, run, w);
	if (err) {
		names_free(w->names);
		free(w);
		return err;
	}
	*out = w;
	return 0;
}

void writer_put(struct writer *w, struct profile *profile)
{
	(void)pthread_mutex_lock(&w->lock);
	while (w->n == QUEUE)
		(void)pthread_cond_wait(&w->changed, &w->lock);
	w->queue[(w->first + w->n++) % QUEUE] = profile;
	(void)pthread_cond_broadcast(&w->changed);
	(void)pthread_mutex_unlock(&w->lock);
}

void writer_finish(struct writer *w, uint64_t *n_written, uint64_t *n_failed)
{
	(void)pthread_mutex_lock(&w->lock);
	w->finishing = true;
	(void)pthread_cond_broadcast(&w->changed);
	(void)pthread_mutex_unlock(&w->lock);
	(void)pthread_join(w->thread, NULL);
	if (n_written)
		*n_written = w->n_written;
	if (n_failed)
		*n_failed = w->n_failed;
	(void)pthread_mutex_destroy(&w->lock);
	(void)pthread_cond_destroy(&w->changed);
	if (names_left_out(w->names))
		log_warning("names or source lines of %" PRIu64
			    " files are left out, because reading them takes too long (-v lists "
			    "them); offwind unwind of a --raw recording has no limit",
			    names_left_out(w->names));
	if (!errands_left())
		names_free(w->names);
	free(w);
}

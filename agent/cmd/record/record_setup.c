/*
 * agent/cmd/record/record_setup.c: prepares a recording: the command, the source, the capture file, the
 * pipeline and the writer.
 */
#include "agent/cmd/record/recorder.h"

#include "agent/cli/priority.h"
#include "agent/cli/supervisor.h"
#include "agent/export/output.h"
#include "agent/export/profile/types.h"
#include "agent/history/history.h"
#include "agent/http/server.h"
#include "agent/live/live.h"
#include "agent/log.h"
#include "agent/role/reading.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Return whether only a capture file is wanted. */
static bool is_raw_only(const struct record_options *o)
{
	return o->raw && o->raw_path == o->path;
}

/* Create or upgrade the history before recording begins, or fail. Errors are reported. */
static int try_history(const char *path)
{
	struct history *h;
	int err = history_open(path, true, &h);

	if (!err)
		history_close(h);
	return err;
}

/*
 * Check before recording that the result can be written, so that a wrong file name does not lose
 * an hour of samples. With --rotate, make the directory. Return 0 or a negative code after
 * reporting it.
 */
static int try_output(const struct record_options *o)
{
	char *window;
	int err;

	if (is_raw_only(o))
		return 0; /* raw_open creates it before recording begins */
	if (o->history)
		return try_history(o->history);
	if (!o->rotate_ns)
		return output_try(o->path);
	if (mkdir(o->path, 0700) && errno != EEXIST) {
		err = -errno;
		log_error("%s: cannot be created: %s", o->path, strerror(-err));
		return err;
	}
	if (asprintf(&window, "%s/offwind%s", o->path, format_suffix(o->format)) < 0)
		return -ENOMEM;
	err = output_try(window);
	free(window);
	return err;
}

/*
 * The pipeline's callback: store in the capture file what the pipeline found out
 * (EVENT_GENERATED).
 */
static int on_found(void *ctx, const struct event *event)
{
	struct recorder *r = ctx;

	/* Writing may take as long as a reader wants. */
	reading_busy(false);
	if (r->raw)
		(void)raw_event(r->raw, event);
	reading_busy(true);
	return 0;
}

/* The pipeline's callback: count how each sample's walk ended. */
static void on_stop(void *ctx, const struct event *event, enum uw_stop stop)
{
	struct recorder *r = ctx;

	stats_walked(r->stats, event, stop);
}

/*
 * Report how much recording slows down malloc and free, if it is more than a microsecond a call.
 */
static void say_alloc_cost(struct source *source)
{
	struct live_alloc_cost cost;

	if (source_live_alloc_cost(source, &cost) ||
	    (cost.malloc_ns <= 1000 && cost.free_ns <= 1000))
		return;
	log_info("each malloc takes about %.1f µs longer and each free %.1f µs, in %s",
		 (double)cost.malloc_ns / 1e3, (double)cost.free_ns / 1e3,
		 cost.everywhere ? "all processes (with -p or COMMAND only in those)"
				 : "the selected processes");
}

/* Open the source of live samples. Return 0, or a negative code after reporting it. */
static int open_source(struct recorder *r)
{
	char error[512] = "";
	int err = source_live_open(&r->live, &r->source, error);

	if (err)
		log_error("%s", error);
	else if (r->live.alloc_interval && !supervisor_is_again())
		say_alloc_cost(r->source);
	return err;
}

/* Check that the source has the values of --sample-type. Return 0, or a negative code if not. */
static int check_sample_type(const struct recorder *r)
{
	struct types types;
	int err;

	if (!r->options->sample_type)
		return 0;
	err = types_of(&r->source->info, &types);
	if (!err)
		err = types_choose(&types, r->options->sample_type);
	types_fini(&types);
	return err;
}

/* Begin the capture file, if one is wanted. Return 0, or a negative code after reporting it. */
static int open_raw(struct recorder *r)
{
	const struct record_options *o = r->options;
	struct opener_options opening = { .live = true };
	int err;

	if (!o->raw)
		return 0;
	err = opener_new(&opening, &r->opener);
	/* If a profile is wanted too, its pipeline reports generated code, and raw needs no opener. */
	if (!err)
		err = raw_open(o->raw_path, r->source, is_raw_only(o) ? r->opener : NULL,
			       o->with_files, &r->raw);
	return err;
}

/*
 * Make the pipeline and the writer, if a profile is wanted. Return 0, or a negative code after
 * reporting it.
 */
static int open_pipeline(struct recorder *r)
{
	const struct record_options *o = r->options;
	struct walking walking = r->walking;
	struct writer_options writing = { .demangle = !walking.as_linked,
					  .lines = !walking.no_lines,
					  .inlined = !walking.no_inline,
					  .keep = o->keep,
					  .info = &r->source->info,
					  .format = o->format,
					  .type = o->sample_type,
					  .unnamed = &r->unnamed };
	int err;

	if (is_raw_only(o))
		return 0;
	r->store = walking.pipeline.store;
	walking.pipeline.keep_files = o->raw;
	walking.pipeline.on_stop = on_stop;
	walking.pipeline.on_found = on_found;
	walking.pipeline.ctx = r;
	err = pipeline_new(&walking.pipeline, &r->source->info, &r->pipeline);
	if (!err && r->raw)
		err = raw_walked(r->raw, pipeline_processes(r->pipeline),
				 pipeline_modules(r->pipeline));
	if (!err) {
		writing.opener = pipeline_opener(r->pipeline);
		writing.store = r->store;
		if (o->history) {
			writing.take = record_history_take;
			writing.take_ctx = &r->history;
		} else if (o->rotate_ns)
			writing.directory = o->path;
		else
			writing.path = o->path;
		err = writer_new(&writing, &r->writer);
	}
	if (err)
		log_error("cannot start: %s", strerror(-err));
	return err;
}

/*
 * Start the command's child, if there is one, and choose what the source samples. The child comes
 * first: then its pid is known, and it keeps the priority that offwind was started with.
 */
int record_prepare(struct recorder *r)
{
	const struct record_options *o = r->options;
	int err = try_output(o);

	if (!err && o->history)
		err = record_history_new(
			o->history, o->server ? &o->server->shared->written_ns : NULL, &r->history);
	if (err)
		return err;
	r->live = o->live;
	if (o->command) {
		err = command_start(&r->command);
		if (err) {
			log_error("fork: %s", strerror(-err));
			return err;
		}
		r->live.pids = &r->command.pid;
		r->live.n_pids = 1;
		if (o->live.alloc_interval)
			r->live.program = r->program = command_find(o->command[0]);
	}
	priority_raise();
	return 0;
}

int record_set_up(struct recorder *r)
{
	const struct record_options *o = r->options;
	int err = open_source(r);

	if (!err)
		err = check_sample_type(r);
	if (err)
		return err;
	err = stats_new(r->source, &r->stats);
	if (err) {
		log_error("cannot start: %s", strerror(-err));
		return err;
	}
	err = open_raw(r);
	if (!err && o->realtime)
		err = priority_realtime(o->realtime);
	if (err)
		return err;
	r->walking = o->walking;
	if (!is_raw_only(o))
		walking_open_store(&r->walking);
	/* What needs rights is open, and nothing that others wrote was read. */
	supervisor_confine();
	return open_pipeline(r);
}

/*
 * agent/cmd/record/record.c: the record command: samples the live system and writes profiles, a capture
 * file or both.
 */
#include "agent/cmd/record/recorder.h"

#include "agent/cli/advice.h"
#include "agent/cli/priority.h"
#include "agent/cli/rights.h"
#include "agent/cli/supervisor.h"
#include "agent/clock.h"
#include "agent/cmd/cmd.h"
#include "agent/ending.h"
#include "agent/errand.h"
#include "agent/http/server.h"
#include "agent/io.h"
#include "agent/live/live.h"
#include "agent/log.h"
#include "agent/role/reading.h"
#include "agent/send/sender.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The CPU time for names, source lines and the store after a recording has ended. For the 4,000
 * samples of a compiler they take 130 ms, and the store takes 50 ms. If the user named the program
 * (COMMAND, --pid, --tid), the limit is longer: the program may have hundreds of megabytes of
 * debug information, and only files that this program uses are in the profile. A signal ends this
 * work at once.
 */
#define END_NS	     UINT64_C(800000000)
#define NAMED_END_NS UINT64_C(10000000000)
/*
 * timeout(1) sends its signal twice, to its child and to the process group that the child is in: a
 * second signal within this time is the same one.
 */
#define SAME_SIGNAL_NS UINT64_C(300000000)
#define SECOND_NS      UINT64_C(1000000000)
#define MS_NS	       UINT64_C(1000000)
#define WAIT_MS	       250
/* No request makes a window shorter than this. */
#define FLUSH_LEAST_NS UINT64_C(100000000)

static volatile sig_atomic_t interrupted;
static volatile sig_atomic_t end_began; /* recording has ended; its results are being completed */
static _Atomic uint64_t interrupted_ns;

/*
 * Handle SIGINT, SIGTERM and SIGHUP. The first signal ends the recording or, if it has already
 * ended, the optional work after it. The next signal ends the program, whatever it is doing.
 */
static void on_signal(int number)
{
	(void)number;
	if (!interrupted)
		interrupted_ns = now_ns();
	else if (now_ns() - interrupted_ns > SAME_SIGNAL_NS)
		_exit(CMD_FAILED);
	interrupted = 1;
	ending_begin(end_began ? 0 : END_NS);
}

/* ---- recording ---------------------------------------------------------------- */

/*
 * Take the samples folded so far from the pipeline and queue them for the writer, which then owns
 * the profile. The window reaches from the end of the last window to end_ns.
 */
static int close_window(struct recorder *r, uint64_t end_ns)
{
	struct profile *profile;
	int err = pipeline_take(r->pipeline, &profile);

	if (err)
		return err;
	/*
	 * Without --rotate the first and the last sample bound the profile, as when a capture file
	 * is unwound.
	 */
	if (r->options->rotate_ns) {
		profile->start_ns = r->window_start_ns;
		profile->end_ns = end_ns;
	}
	if (r->options->history)
		record_history_count(&r->history, r->source, profile);
	r->window_start_ns = end_ns;
	writer_put(r->writer, profile);
	return 0;
}

/* Return when the window that was begun ends: sooner if a request waits for its samples. */
static uint64_t window_end(const struct recorder *r)
{
	const struct server *server = r->options->server;
	uint64_t end_ns = r->window_start_ns + r->options->rotate_ns;
	uint64_t flush_ns = server ? atomic_load(&server->shared->flush_ns) : 0;

	if (flush_ns <= r->window_start_ns)
		return end_ns;
	if (flush_ns < r->window_start_ns + FLUSH_LEAST_NS)
		flush_ns = r->window_start_ns + FLUSH_LEAST_NS;
	return flush_ns < end_ns ? flush_ns : end_ns;
}

/*
 * Close every window that has ended by time_ns. time_ns is on the clock of the events, so that
 * each sample falls into its own window.
 */
static int rotate(struct recorder *r, uint64_t time_ns)
{
	uint64_t every = r->options->rotate_ns, duration = r->options->duration_ns;
	int err = 0;

	while (every && !err) {
		uint64_t end_ns = window_end(r);

		/*
		 * Do not begin a window at the very end: those samples belong to the last window.
		 */
		if (time_ns < end_ns || (duration && end_ns >= r->began_ns + duration))
			break;
		err = close_window(r, end_ns);
	}
	return err;
}

/* What is recorded changed at that time: a window has what was recorded in one way. */
static int divide(struct recorder *r, uint64_t time_ns)
{
	int err;

	if (!r->pipeline || !r->options->rotate_ns || time_ns <= r->window_start_ns)
		return 0;
	err = rotate(r, time_ns);
	return err || time_ns <= r->window_start_ns ? err : close_window(r, time_ns);
}

/* Return how many samples had all frames of interpreted code. */
static uint64_t count_named(const struct recorder *r)
{
	struct pipeline_reuse reuse;

	pipeline_reuse(r->pipeline, &reuse);
	return reuse.n_interpreted - reuse.n_incomplete;
}

/*
 * Pass one event to the pipeline, the capture file and the counters. Return 0 or a negative code.
 * With a pipeline, errors of the capture file are not returned.
 */
static int on_event(struct recorder *r, const struct event *event)
{
	int err = 0;

	if (event->type == EVENT_CHANGED)
		return divide(r, event->time_ns);
	if (event->type == EVENT_SAMPLE && event->sample.event < OUTCOME_EVENTS)
		r->values[event->sample.event] += event->sample.period;

	if (r->pipeline) {
		/*
		 * Only samples and frees move the windows on: the events of processes that already
		 * ran are older than the recording.
		 */
		if ((event->type == EVENT_SAMPLE || event->type == EVENT_FREED) &&
		    event->time_ns > r->window_start_ns)
			err = rotate(r, event->time_ns);
		/*
		 * Before it walks a sample, the pipeline reports what it found out about the
		 * sample's process (on_found). So the capture file gets that first, and the sample
		 * after it.
		 */
		if (!err) {
			reading_busy(true);
			err = pipeline_event(r->pipeline, event);
			reading_busy(false);
		}
		runtime_event(&r->runtime, event, count_named(r));
		/*
		 * An unwritable capture file is reported by raw_event and does not end the
		 * profile.
		 */
		if (r->raw)
			(void)raw_event(r->raw, event);
		return err;
	}
	if (event->type == EVENT_SAMPLE) {
		stats_written(r->stats, event);
		r->raw_accounting.captured++;
		r->raw_accounting.cut += event->sample.stack_cut;
	} else if (event->type == EVENT_LOST) {
		r->raw_accounting.captured += event->lost.n_samples;
		r->raw_accounting.lost[event->lost.reason] += event->lost.n_samples;
		r->raw_accounting.sideband_lost += event->lost.n_sideband;
	}
	return raw_event(r->raw, event);
}

/*
 * Stop the source once a signal came, the command ended or the duration is over. Events that are
 * already buffered still come.
 */
static void check_stop(struct recorder *r)
{
	/* Once the recording has ended, the command no longer decides about the exit code. */
	bool ended = command_ended(&r->command, !r->stopped);
	uint64_t duration = r->options->duration_ns;

	if (r->stopped)
		return;
	if (interrupted || ended || (duration && now_ns() >= r->began_ns + duration)) {
		r->stopped = true;
		r->stopped_ns = now_ns();
		source_stop(r->source);
	}
}

/*
 * Stop recording because the capture file, which is the only result, cannot be written. err is
 * negative and becomes the result of loop.
 */
static void give_up(struct recorder *r, int err)
{
	if (r->raw_err)
		return;
	r->raw_err = err;
	log_error("recording stopped: %s", strerror(-err));
	if (r->stopped)
		return;
	r->stopped = true;
	r->stopped_ns = now_ns();
	source_stop(r->source);
}

/* Show the time and the number of samples on a terminal. */
static void show_progress(const struct recorder *r)
{
	struct accounting a = r->raw_accounting;

	if (r->pipeline)
		pipeline_total(r->pipeline, &a);
	log_progress("%" PRIu64 " s, %" PRIu64 " samples", (now_ns() - r->began_ns) / SECOND_NS,
		     a.captured);
}

/*
 * Return how long to wait for events, in ms: a little longer than the source's LIVE_TICK_NS, so that on a busy machine
 * only events wake this process, but not longer than the recording lasts.
 */
static int patience(const struct recorder *r, uint64_t now)
{
	uint64_t end_ns = r->began_ns + r->options->duration_ns;

	if (!r->options->duration_ns || r->stopped || end_ns >= now + WAIT_MS * MS_NS)
		return WAIT_MS;
	return end_ns > now ? (int)((end_ns - now) / MS_NS) + 1 : 0;
}

/* Process events until the source has ended. Return 0 or a negative code after reporting it. */
static int loop(struct recorder *r)
{
	/*
	 * The source delays events to put them in order, so the stream is behind the clock. If no
	 * events come, close a window only this long after its end, which is several times the
	 * source's LIVE_TICK_NS.
	 */
	const uint64_t lag_ns = 2 * SECOND_NS;
	uint64_t last_look = 0, now = now_ns();

	for (;;) {
		struct event event;
		bool looks;
		int err = 0, rc = source_next(r->source, &event, patience(r, now));

		if (rc == 0) {
			if (!r->stopped)
				command_await(&r->command);
			return r->raw_err;
		}
		if (rc == 1)
			err = on_event(r, &event);
		else if (rc != -EAGAIN && rc != -EINTR) {
			log_error("%s", r->source->error);
			return rc;
		}
		now = now_ns();
		looks = rc != 1 || now >= last_look + SECOND_NS / 10;
		/* Not all events are written to the capture file, so what is buffered may not wait for the next. */
		if (looks && r->raw) {
			int raw_err = raw_idle(r->raw);

			if (!err && !r->pipeline)
				err = raw_err;
		}
		/* Samples that are already captured are still counted, so do not return here. */
		if (err && !r->pipeline) {
			give_up(r, err);
			err = 0;
		}
		if (err) {
			log_error("recording stopped: %s", strerror(-err));
			return err;
		}
		if (!looks)
			continue;
		last_look = now;
		reading_beat();
		check_stop(r);
		show_progress(r);
		/* Events of processes may come again and again while there are no samples that move the windows on. */
		if (r->pipeline && now > lag_ns)
			err = rotate(r, rc == 1 ? event.time_ns : now - lag_ns);
		if (err)
			return err;
	}
}

/*
 * Complete and close the capture file. Without a pipeline, count the samples that are not in the
 * file as EVENT_LOST_NOT_WRITTEN. Return 0 or a negative code.
 */
static int close_raw(struct recorder *r)
{
	struct accounting *a = &r->raw_accounting;
	uint64_t n_samples, n_given = a->captured;
	int err = raw_close(r->raw, r->opener, r->store, &n_samples);

	for (size_t i = 0; i < EVENT_LOST_N; i++)
		n_given -= a->lost[i];
	if (r->pipeline)
		return err;
	a->lost[EVENT_LOST_NOT_WRITTEN] += n_given - n_samples;
	stats_not_written(r->stats, n_given - n_samples);
	return err;
}

/*
 * Print the result: the accounting of all samples, warnings, the files written and a summary.
 * Return how many samples were captured. raw_written: the capture file is complete.
 */
static uint64_t say_result(const struct recorder *r, uint64_t n_written, bool raw_written)
{
	const struct record_options *o = r->options;
	struct accounting total = r->raw_accounting;
	struct live_counters counters;
	char text[1024];

	/* The exact sums are for logs and scripts; on a terminal the summary below is enough. */
	bool sums = log_is_verbose() || !isatty(STDERR_FILENO);

	stats_text(r->stats, text, sizeof(text));
	if (sums)
		log_info("%s", text);
	stats_off_cpu_text(r->stats, text, sizeof(text));
	if (text[0] && sums)
		log_info("%s", text);
	if (r->pipeline) {
		pipeline_total(r->pipeline, &total);
		if (o->history)
			record_history_total(&r->history, &total);
		accounting_text(&total, text, sizeof(text));
		if (sums)
			log_info("%s", text);
	} else if (sums) {
		accounting_written_text(&total, text, sizeof(text));
		log_info("%s", text);
	}
	outcome_warn(&total);
	outcome_warn_rough(&r->source->info, stats_events(r->stats));
	runtime_say(&r->runtime);
	if (!total.captured && !source_live_counters(r->source, -1, &counters))
		outcome_warn_empty(&counters);
	if (sums && !o->rotate_ns && n_written && strcmp(o->path, "-") != 0)
		log_info("wrote %s", o->path);
	if (o->rotate_ns)
		log_info("wrote %" PRIu64 " %s into %s", n_written,
			 o->history ? "windows" : "profiles", o->history ? o->history : o->path);
	if (raw_written && strcmp(o->raw_path, "-") != 0 && (sums || r->pipeline))
		log_info("wrote %s", o->raw_path);
	if (total.captured)
		outcome_say(&(struct outcome){ .total = &total,
					       .info = &r->source->info,
					       .values = r->values,
					       .duration_ns = r->ended_ns - r->began_ns,
					       .walked = r->pipeline != NULL,
					       .path = o->rotate_ns ? NULL : o->path,
					       .format = o->format });
	advice_say(&r->unnamed);
	return total.captured;
}

/*
 * Return true if the user chose what to record. Then a recording without samples is a failure;
 * without such a choice the machine was only idle.
 */
static bool is_selective(const struct source_live_options *live)
{
	return live->n_pids || live->n_tids || live->n_comms || live->n_uids || live->n_cgroups ||
	       live->n_containers || live->n_pods || live->n_units || live->n_cpus ||
	       live->n_events || live->n_probes;
}

/* Limit the memory that malloc keeps, and handle the signals that end a recording. */
static void prepare_process(void)
{
	struct sigaction action = { .sa_handler = on_signal }, hangup;

	/*
	 * Blocks of hundreds of KiB, for compiled tables and profiles, come and go. By default
	 * malloc raises its mmap threshold when such a block is freed, and then caches what threads
	 * freed, 16 MB each. See mallopt(3), M_MMAP_THRESHOLD.
	 */
	(void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
	(void)mallopt(M_TRIM_THRESHOLD, 256 << 10);
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	/* nohup(1) sets SIGHUP to be ignored: leave it so. */
	if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN)
		(void)sigaction(SIGHUP, &action, NULL);
	supervisor_hear_signals();
}

/* How a recording came out. */
struct result {
	bool began;		      /* everything was set up, and the command runs */
	uint64_t n_written, n_failed; /* profiles */
	uint64_t n_captured;	      /* samples */
	int err, raw_err, stats_err;  /* of the recording, the capture file, the statistics */
};

/* Set everything up and record until the end. */
static void run(struct recorder *r, struct result *result)
{
	const struct record_options *o = r->options;

	result->err = record_set_up(r);
	if (!result->err) {
		if (!supervisor_is_again())
			r->began_ns = now_ns();
		r->window_start_ns = now_ns();
		if (o->history)
			record_history_begin(&r->history, supervisor_is_again());
		result->err = command_release(&r->command);
		result->began = !result->err;
	}
	if (result->began)
		result->err = loop(r);
	r->ended_ns = r->stopped ? r->stopped_ns : now_ns();
	if (result->began && o->realtime)
		(void)priority_realtime(0); /* no samples can be lost any more */
}

/*
 * Write what was captured, whatever ended the recording, even an error: the last profiles, the
 * capture file and the statistics. Report how it came out.
 */
static void finish(struct recorder *r, struct result *result)
{
	const struct record_options *o = r->options;
	struct pipeline_reuse reuse = { .n_samples = 0 };

	if (r->pipeline)
		pipeline_end(r->pipeline);
	log_progress_done();
	if (r->writer) {
		int last = 0;

		/* Write profiles of windows without samples, too. */
		if (result->began && r->stopped)
			last = rotate(r, r->stopped_ns);
		if (result->began && !last)
			last = close_window(r, now_ns());
		writer_finish(r->writer, &result->n_written, &result->n_failed);
		if (!result->err)
			result->err = last;
	}
	if (r->raw)
		result->raw_err = close_raw(r);
	if (result->began)
		result->n_captured = say_result(r, result->n_written, o->raw && !result->raw_err);
	unnamed_fini(&r->unnamed);
	if (r->pipeline)
		pipeline_reuse(r->pipeline, &reuse);
	if (result->began && o->stats_path)
		result->stats_err = stats_write(r->stats, &reuse, o->stats_path);
	if (result->began && r->pipeline && !result->err)
		result->err = walking_verified(&o->walking, &reuse);
}

/*
 * Release everything. Abandoned threads (errand.h) may still use this memory: then do not free it,
 * the program ends anyway.
 */
static void release(struct recorder *r)
{
	if (errands_left() || !pipeline_free(r->pipeline)) {
		log_debug("some files are still being read; offwind does not wait for them");
		source_close(r->source);
	} else {
		store_work(r->store, ending_left());
		store_close(r->store);
		opener_free(r->opener);
		stats_free(r->stats);
		source_close(r->source);
	}
	command_end(&r->command);
	free(r->program);
}

/* Return the exit code of a recording. */
static int exit_code(const struct recorder *r, const struct result *result)
{
	const struct record_options *o = r->options;

	if (!result->began && r->command.code)
		return r->command.code; /* the command could not be run: 127 or 126 */
	if ((result->n_failed && !result->n_written) || result->err || result->raw_err ||
	    result->stats_err)
		return CMD_FAILED;
	if (result->n_failed)
		return CMD_PARTLY;
	/* A command that ended together with its recording, by a signal, did not itself fail. */
	if (o->command)
		return interrupted ? CMD_DONE : r->command.code;
	return result->n_captured || o->rotate_ns || !is_selective(&o->live) ? CMD_DONE
									     : CMD_FAILED;
}

/* What the supervisor does for the worker. ctx is the struct recorder. */
static int ask(void *ctx, uint64_t what, uint64_t *number)
{
	struct recorder *r = ctx;

	return command_ask(&r->command, what, number);
}

static void worker_ended(void *ctx)
{
	struct recorder *r = ctx;

	command_worker_ended(&r->command);
	if (r->options->server)
		server_close(r->options->server, true);
}

static int record_serve(void *ctx)
{
	struct recorder *r = ctx;

	return server_run(r->options->server);
}

static int record_send(void *ctx)
{
	struct recorder *r = ctx;

	return sender_run(r->options->sender);
}

/* Give the sockets that are served. */
static size_t record_sockets(const struct record_options *o, int fds[SERVER_SOCKETS])
{
	int n = o->server ? o->server->n_sockets : 0;

	for (int i = 0; i < n; i++)
		fds[i] = o->server->sockets[i].fd;
	return (size_t)n;
}

int record_run(const struct record_options *options)
{
	bool named = options->command || options->live.n_pids || options->live.n_tids;
	struct recorder r = { .options = options,
			      .command = { .argv = options->command, .gate = -1, .fault = -1 } };
	struct result result = { .began = false };
	int cost_err = options->server || options->cpu_budget ? cost_new(&r.cost) : 0;
	int fds[SERVER_SOCKETS];
	size_t n_fds = record_sockets(options, fds);
	/* Needed until the end, by the supervisor. */
	const struct supervision given = {
		.output = options->rotate_ns ? NULL : options->path,
		.windows = options->rotate_ns ? options->path : NULL,
		.history = options->history,
		.keep = options->keep,
		.statistics = options->stats_path,
		.db = options->walking.db,
		.no_store = options->walking.no_cache,
		.live = &r.live,
		.streams = (options->path && !strcmp(options->path, "-")) ||
			   (options->raw && !strcmp(options->raw_path, "-")),
		.realtime = options->realtime,
		.beside = { { .title = "offwind-server",
			      .what = "serves HTTP",
			      .cost = COST_SERVER,
			      .run = options->server ? record_serve : NULL,
			      .fds = fds,
			      .n_fds = n_fds,
			      .asks = true },
			    { .title = "offwind-sender",
			      .what = "sends windows to other systems",
			      .cost = COST_SENDER,
			      .run = options->sender ? record_send : NULL } },
		.service = options->service,
		.cost = r.cost,
		.cpu_budget = options->cpu_budget,
		.ask = ask,
		.ended = worker_ended,
		.ctx = &r
	};

	if (options->server)
		options->server->cost = r.cost;
	result.err = cost_err ? cost_err : record_prepare(&r);
	r.began_ns = now_ns(); /* for a worker that follows another */
	if (!result.err)
		result.err = supervisor_start(&given);
	prepare_process();
	if (!result.err)
		run(&r, &result);
	end_began = 1;
	ending_begin(named ? NAMED_END_NS : END_NS);
	finish(&r, &result);
	release(&r);
	/* Where memory is short, not every part of the recording says so itself. */
	if (result.err && !log_has_error())
		log_error("recording failed: %s", strerror(-result.err));
	return exit_code(&r, &result);
}

/*
 * Return the command line as given, words separated by spaces; the caller frees it. NULL: out of
 * memory.
 */
static char *command_line(int argc, char **argv)
{
	char *text = strdup("offwind");

	for (int i = 0; text && i < argc; i++) {
		char *longer;

		if (asprintf(&longer, "%s %s", text, argv[i]) < 0)
			longer = NULL;
		free(text);
		text = longer;
	}
	return text;
}

int cmd_record(int argc, char **argv)
{
	struct record_options o = RECORD_OPTIONS_DEFAULT;
	int parsed = record_options_parse(argc, argv, &o);
	int rc = parsed < 0 ? CMD_USAGE : CMD_DONE;

	if (!parsed && rights_missing("record")) {
		rc = CMD_FAILED;
	} else if (!parsed) {
		char *command = command_line(argc, argv);

		io_allow_many_files();
		o.live.command = command;
		rc = record_run(&o);
		free(command);
	}
	record_options_fini(&o);
	return rc;
}

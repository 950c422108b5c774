/*
 * agent/cmd/record.c: the record command: samples the live system and writes profiles, a capture
 * file or both.
 */
#include "agent/cli/advice.h"
#include "agent/cli/input.h"
#include "agent/cli/option.h"
#include "agent/cli/priority.h"
#include "agent/cli/rights.h"
#include "agent/cli/stats.h"
#include "agent/cli/walking.h"
#include "agent/clock.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/outcome.h"
#include "agent/cmd/raw.h"
#include "agent/cmd/runtime.h"
#include "agent/ending.h"
#include "agent/errand.h"
#include "agent/export/output.h"
#include "agent/export/types.h"
#include "agent/export/writer.h"
#include "agent/io.h"
#include "agent/live/live.h"
#include "agent/live/perf.h"
#include "agent/log.h"
#include "agent/opener/opener.h"
#include "agent/pipeline/fold.h"
#include "agent/store/store.h"
#include "schema/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * The time for names, source lines and the store after a recording has ended. For the 4,000
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
#define RATE_MAX       50000
/* Hz, default for COMMAND; for the system or for running processes the default is 99 */
#define RATE_COMMAND 997
#define DURATION_MAX (UINT64_C(10000) * 86400 * SECOND_NS)
#define ROTATE_MAX   (UINT64_C(7) * 86400 * SECOND_NS)
/* bytes; the same as Go's runtime.MemProfileRate */
#define ALLOC_INTERVAL UINT64_C(524288)

static const char help[] =
	"usage: offwind record [OPTION]… [-a | -p PID[,PID…] | [--] COMMAND [ARG]…]\n"
	"Samples the stacks of the live system and writes a pprof profile.\n"
	"\n"
	"  -a, --all-cpus        the whole system (the default)\n"
	"  -p, --pid PID[,PID…]  these processes and the children they make\n"
	"  -t, --tid TID[,TID…]  these threads\n"
	"      --comm NAME[,…]   threads of this name\n"
	"  -u, --uid USER[,…]    of this user, by name or number\n"
	"      --cgroup PATH[,…] in this cgroup and those below it\n"
	"      --container ID[,…]\n"
	"                        in the containers whose ids begin so\n"
	"  -C, --cpu LIST        on these CPUs: 0-3,8\n"
	"  -F, --freq HZ         samples a second on each CPU, or max (default 99; 997 for "
	"COMMAND)\n"
	"  -e, --event EVENT[,…] sample this instead of the CPU's time, in perf's words: cycles,\n"
	"                        page-faults, sched:sched_process_exec; :u or :k behind a\n"
	"                        counter: in user mode or in the kernel\n"
	"      --uprobe FILE:FUNCTION\n"
	"                        sample each call of a function\n"
	"  -c, --count N         one sample every N events, not by frequency\n"
	"      --off-cpu[=MIN]   threads that wait too, for MIN at least: 500us, 10ms (default 0)\n"
	"      --alloc[=BYTES]   memory that programs allocate, one of so many bytes (default "
	"512K;\n"
	"                        1: every allocation): all of it and what is in use at the end;\n"
	"                        a malloc or free takes about 1 us more, with -p and COMMAND in\n"
	"                        these processes alone, else in all\n"
	"  -d, --duration TIME   stop after that long: 10 (seconds), 500ms, 5m, 1h, 2d (default:\n"
	"                        at Ctrl-C, or when COMMAND ends)\n"
	"  -f, --format FORMAT   pprof (default), folded, text, tsv, jsonl, speedscope or "
	"firefox,\n"
	"                        of equal stacks counted together\n"
	"      --sample-type TYPE\n"
	"                        what readers show first, and all formats but pprof: \"cpu\",\n"
	"                        \"samples\", with --off-cpu \"off_cpu\" or \"wall\" (the default "
	"then)\n"
	"  -o, --output FILE     where to (default offwind.pb.gz; with --raw offwind.owc;\n"
	"                        with --rotate the folder offwind-profiles); its ending names the\n"
	"                        format unless -f does: .folded, .txt, .jsonl, .owc (--raw), …\n"
	"      --raw[=FILE]      write a capture file, to be unwound later; with FILE, beside\n"
	"                        the profile.  It keeps what naming and walking need of the\n"
	"                        sampled files, which may be gone by then\n"
	"      --with-files      with --raw: keep all of each sampled file\n"
	"      --rotate TIME     a profile for every TIME (60, 5m, 1h), in the folder that -o "
	"names\n"
	"      --keep N          with --rotate: keep the N newest profiles (default: all)\n"
	"      --max-frames N    most frames of one stack (default 1024)\n"
	"      --stack-max BYTES most bytes copied of one stack (default 256K, up to 1M)\n"
	"  -m, --ring SIZE       the buffer between kernel and offwind, 4M to 1G (default: by "
	"rate\n"
	"                        and CPUs, 4M to 16M); a number alone is pages, as in perf record\n"
	"  -r, --realtime PRIO   run with SCHED_FIFO of this priority while recording, 1 to 99\n"
	"                        (default: nice -20)\n"
	"      --scan            where nothing else leads on, take the next word on the stack\n"
	"                        that follows a call; marked as a guess\n"
	"      --stats FILE      what became of everything that fired, CPU by CPU, as JSON\n"
	"      --verify-reuse    walk stacks fully as well, where callers are taken over from a\n"
	"                        thread's sample before, and fail if that makes a difference\n"
	"      --no-demangle     names as linked\n"
	"      --no-lines        no source lines and inlined calls\n"
	"      --no-inline       no inlined calls\n"
	"      --debug-dir DIR   look for debug files there, too, before /usr/lib/debug\n"
	"      --db FILE         the store of unwind tables (default: see man offwind)\n"
	"      --no-cache        without a store\n"
	"  -q, --quiet           errors and warnings only\n"
	"  -v, --verbose         say more\n"
	"  -h, --help            this text\n"
	"\n"
	"Exit code: that of COMMAND, 128 + N if signal N ended it, 127 or 126 if it could not be\n"
	"run; without COMMAND, or where the recording ends first, 0 done, 1 failed or nothing of\n"
	"what was chosen was recorded, 2 usage, 3 some profiles could not be written.\n"
	"SIGINT, SIGTERM and SIGHUP end the recording; the profile is there within a second.\n"
	"Needs root, or CAP_BPF and CAP_PERFMON; see offwind doctor.  -g and --call-graph of perf\n"
	"are taken and change nothing: stacks are always recorded.\n";

struct options {
	struct source_live_options live;
	struct walking walking;
	/* duration_ns 0: until it is stopped; rotate_ns 0: one profile */
	uint64_t duration_ns, rotate_ns;
	uint32_t keep;
	int realtime; /* SCHED_FIFO priority; 0: normal scheduling */
	/*
	 * Of the profile (a directory with --rotate), of the capture file, of the statistics. If
	 * path and raw_path are the same pointer, only the capture file is wanted.
	 */
	const char *path, *raw_path, *stats_path;
	enum format format;
	const char *sample_type; /* NULL: the default */
	bool raw, with_files, all, has_rate;
	char **command; /* NULL: none */
};

struct recorder {
	const struct options *options;
	struct source *source;
	struct pipeline *pipeline; /* NULL: only a capture file is wanted */
	struct writer *writer;
	struct raw *raw;       /* NULL: none wanted */
	struct opener *opener; /* for the names of kernel functions in the capture file */
	struct store *store;
	pid_t child;	 /* 0: no child, or it is reaped */
	int child_code;	 /* the command's exit status as a shell reports it; 0: none yet */
	int child_gate;	 /* writing a byte lets the command start; -1: it has started */
	int child_fault; /* the child writes the errno of a failed execvp into it; -1: closed */
	uint64_t began_ns, window_start_ns;
	bool stopped;
	uint64_t stopped_ns, ended_ns;
	struct accounting raw_accounting; /* used only without a pipeline */
	int raw_err;			  /* error for which recording was stopped; 0: none */
	struct stats *stats;		  /* NULL until the source is open */
	struct runtime runtime;
	struct unnamed unnamed;		 /* the writer fills it until it is finished */
	uint64_t values[OUTCOME_EVENTS]; /* sums of the samples' periods, by event */
};

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

/* ---- the command to profile ------------------------------------------------- */

/*
 * In the child: wait at the gate until everything that observes the child is set up, then run the
 * command. If execvp fails, write its errno into fault.
 */
static void __attribute__((noreturn)) become_command(char **command, int gate, int fault)
{
	char byte;
	int err;

	(void)signal(SIGINT, SIG_DFL);
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGHUP, SIG_DFL);
	(void)signal(SIGPIPE, SIG_DFL);
	/* No byte means that the recorder failed before the command could start. */
	if (read(gate, &byte, 1) != 1)
		_exit(CMD_FAILED);
	(void)execvp(command[0], command);
	err = errno;
	(void)!write(fault, &err, sizeof(err));
	_exit(127);
}

/*
 * Fork the child that will run the command; it waits at the gate for release_child. Forking first
 * makes its pid known, so that the source can be limited to it before the command runs. Return 0
 * or a negative code.
 */
static int start_child(struct recorder *r)
{
	int gate[2] = { -1, -1 }, fault[2] = { -1, -1 }, err = 0;
	pid_t pid = -1;

	if (pipe2(gate, O_CLOEXEC) || pipe2(fault, O_CLOEXEC) || (pid = fork()) < 0)
		err = -errno;
	if (!pid) {
		(void)close(gate[1]);
		become_command(r->options->command, gate[0], fault[1]);
	}
	if (gate[0] >= 0)
		(void)close(gate[0]);
	if (fault[1] >= 0)
		(void)close(fault[1]);
	r->child_gate = gate[1];
	r->child_fault = fault[0];
	if (!err)
		r->child = pid;
	return err;
}

/*
 * Let the command start. Return 0, or a negative code after reporting why it could not be run;
 * child_code is then what a shell returns: 127 if the command was not found, else 126.
 */
static int release_child(struct recorder *r)
{
	int why = 0, err = 0;

	if (r->child_gate < 0)
		return 0;
	if (write(r->child_gate, "", 1) != 1)
		err = -errno;
	(void)close(r->child_gate);
	r->child_gate = -1;
	/*
	 * The other end has close-on-exec: a successful execvp closes it, a failed one sends
	 * errno.
	 */
	if (!err && read(r->child_fault, &why, sizeof(why)) == (ssize_t)sizeof(why))
		err = -why;
	(void)close(r->child_fault);
	r->child_fault = -1;
	if (err) {
		log_error("%s: cannot be run: %s", r->options->command[0], strerror(-err));
		r->child_code = err == -ENOENT ? 127 : 126;
	}
	return err;
}

/*
 * Return true, once, when the command has ended. Keep its exit code, unless the recording ended
 * before, and report a signal or a failure. Does not wait.
 */
static bool child_ended(struct recorder *r)
{
	int status;

	if (!r->child || waitpid(r->child, &status, WNOHANG) != r->child)
		return false;
	r->child = 0;
	if (!r->stopped) /* otherwise the recording ended before the command */
		r->child_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	if (WIFSIGNALED(status))
		log_info("%s: ended by signal %d (%s)", r->options->command[0], WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		log_info("%s: exit status %d", r->options->command[0], WEXITSTATUS(status));
	return true;
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
	r->window_start_ns = end_ns;
	writer_put(r->writer, profile);
	return 0;
}

/*
 * Close every window that has ended by time_ns. time_ns is on the clock of the events, so that
 * each sample falls into its own window.
 */
static int rotate(struct recorder *r, uint64_t time_ns)
{
	uint64_t every = r->options->rotate_ns, duration = r->options->duration_ns;
	int err = 0;

	while (every && !err && time_ns >= r->window_start_ns + every) {
		/*
		 * Do not begin a window at the very end: those samples belong to the last window.
		 */
		if (duration && r->window_start_ns + every >= r->began_ns + duration)
			break;
		err = close_window(r, r->window_start_ns + every);
	}
	return err;
}

/*
 * Pass one event to the pipeline, the capture file and the counters. Return 0 or a negative code.
 * With a pipeline, errors of the capture file are not returned.
 */
static int on_event(struct recorder *r, const struct event *event)
{
	int err = 0;

	runtime_event(&r->runtime, event);
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
		if (!err)
			err = pipeline_event(r->pipeline, event);
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
 * The pipeline's callback: store in the capture file what the pipeline found out
 * (EVENT_GENERATED).
 */
static int on_found(void *ctx, const struct event *event)
{
	struct recorder *r = ctx;

	if (r->raw)
		(void)raw_event(r->raw, event);
	return 0;
}

/*
 * Stop the source once a signal came, the command ended or the duration is over. Events that are
 * already buffered still come.
 */
static void check_stop(struct recorder *r)
{
	bool ended = child_ended(r);
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

/* Process events until the source has ended. Return 0 or a negative code after reporting it. */
static int loop(struct recorder *r)
{
	/*
	 * The source delays events to put them in order, so the stream is behind the clock. If no
	 * events come, close a window only this long after its end, which is several times the
	 * source's TICK_NS (source/live.c).
	 */
	const uint64_t lag_ns = 2 * SECOND_NS;
	uint64_t last_look = 0;

	for (;;) {
		struct event event;
		uint64_t now;
		int err = 0, rc = source_next(r->source, &event, 200);

		if (rc == 0)
			return r->raw_err;
		if (rc == 1)
			err = on_event(r, &event);
		else if (rc != -EAGAIN && rc != -EINTR) {
			log_error("%s", r->source->error);
			return rc;
		}
		if (rc != 1 && r->raw) {
			int raw_err = raw_idle(r->raw);

			err = r->pipeline ? 0 : raw_err;
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
		now = now_ns();
		if (rc == 1 && now < last_look + SECOND_NS / 10)
			continue;
		last_look = now;
		check_stop(r);
		show_progress(r);
		if (rc != 1 && r->pipeline && now > lag_ns) {
			err = rotate(r, now - lag_ns);
			if (err)
				return err;
		}
	}
}

/*
 * Check before recording that the result can be written, so that a wrong file name does not lose
 * an hour of samples. With --rotate, make the directory. Return 0 or a negative code after
 * reporting it.
 */
static int try_output(const struct options *o)
{
	char *window;
	int err;

	if (o->raw && o->raw_path == o->path)
		return 0; /* raw_open creates it before recording begins */
	if (!o->rotate_ns)
		return output_try(o->path);
	if (mkdir(o->path, 0700) && errno != EEXIST) {
		err = -errno;
		log_error("%s: cannot be made: %s", o->path, strerror(-err));
		return err;
	}
	if (asprintf(&window, "%s/offwind%s", o->path, format_suffix(o->format)) < 0)
		return -ENOMEM;
	err = output_try(window);
	free(window);
	return err;
}

/*
 * Find a program as execvp does, by PATH. Return its path, which the caller frees; NULL if it is
 * not found or memory runs out.
 */
static char *find_program(const char *name)
{
	const char *path = getenv("PATH");
	char *copy, *rest, *folder, *found = NULL;

	if (strchr(name, '/'))
		return strdup(name);
	rest = copy = strdup(path ? path : "/bin:/usr/bin");
	while (copy && !found && (folder = strsep(&rest, ":"))) {
		if (asprintf(&found, "%s/%s", *folder ? folder : ".", name) < 0) {
			found = NULL;
			break;
		}
		if (access(found, X_OK)) {
			free(found);
			found = NULL;
		}
	}
	free(copy);
	return found;
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
	log_info("each malloc takes about %.1f µs more and each free %.1f µs, in %s",
		 (double)cost.malloc_ns / 1e3, (double)cost.free_ns / 1e3,
		 cost.everywhere ? "all processes (-p and COMMAND spare the others)"
				 : "the processes asked for");
}

/*
 * Prepare everything that recording needs: the child, the source, the capture file, the pipeline
 * and the writer. Return 0, or a negative code after reporting it; record releases what was made,
 * in both cases.
 */
static int set_up(struct recorder *r)
{
	const struct options *o = r->options;
	struct writer_options writing = { .demangle = !o->walking.as_linked,
					  .lines = !o->walking.no_lines,
					  .inlined = !o->walking.no_inline,
					  .keep = o->keep };
	struct source_live_options live = o->live;
	int32_t child;
	char *program = NULL, error[512] = "";
	int err = try_output(o);

	if (err)
		return err;
	if (o->command) {
		err = start_child(r);
		if (err) {
			log_error("fork: %s", strerror(-err));
			return err;
		}
		child = r->child;
		live.pids = &child;
		live.n_pids = 1;
		if (live.alloc_interval)
			live.program = program = find_program(o->command[0]);
	}
	/*
	 * Raise the priority after the fork: the command keeps the priority that offwind was
	 * started with.
	 */
	priority_raise();
	err = source_live_open(&live, &r->source, error);
	free(program);
	if (err) {
		log_error("%s", error);
		return err;
	}
	if (live.alloc_interval)
		say_alloc_cost(r->source);
	if (o->sample_type) {
		struct types types;

		err = types_of(&r->source->info, &types);
		if (!err)
			err = types_choose(&types, o->sample_type);
		types_fini(&types);
		if (err)
			return err;
	}
	err = stats_new(r->source, &r->stats);
	if (err) {
		log_error("cannot start: %s", strerror(-err));
		return err;
	}
	if (o->raw) {
		struct opener_options opening = { .live = true };

		err = opener_new(&opening, &r->opener);
		/*
		 * If a profile is wanted too, its pipeline reports generated code, and raw needs
		 * no opener.
		 */
		if (!err)
			err = raw_open(o->raw_path, r->source,
				       o->raw_path == o->path ? r->opener : NULL, o->with_files,
				       &r->raw);
		if (err)
			return err;
	}
	if (!o->raw || o->raw_path != o->path) {
		struct walking walking = o->walking;

		walking_open_store(&walking);
		r->store = walking.pipeline.store;
		walking.pipeline.on_stop = on_stop;
		walking.pipeline.on_found = on_found;
		walking.pipeline.ctx = r;
		err = pipeline_new(&walking.pipeline, &r->source->info, &r->pipeline);
		if (!err) {
			writing.info = &r->source->info;
			writing.opener = pipeline_opener(r->pipeline);
			writing.store = r->store;
			writing.format = o->format;
			writing.type = o->sample_type;
			writing.unnamed = &r->unnamed;
			if (o->rotate_ns)
				writing.folder = o->path;
			else
				writing.path = o->path;
			err = writer_new(&writing, &r->writer);
		}
		if (err)
			log_error("cannot start: %s", strerror(-err));
	}
	return err;
}

/*
 * Complete and close the capture file. Without a pipeline, count the samples that are not in the
 * file as EVENT_LOST_NOT_WRITTEN. Return 0 or a negative code.
 */
static int close_raw(struct recorder *r)
{
	struct accounting *a = &r->raw_accounting;
	uint64_t n_samples, n_given = a->captured;
	int err = raw_close(r->raw, r->opener, r->pipeline ? pipeline_modules(r->pipeline) : NULL,
			    &n_samples);

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
	const struct options *o = r->options;
	struct accounting total = r->raw_accounting;
	struct live_counters counters;
	char text[1024];

	/* The exact sums are for logs and scripts; on a terminal the summary below is enough. */
	bool sums = log_is_verbose() || !isatty(STDERR_FILENO);

	stats_text(r->stats, text, sizeof(text));
	if (sums)
		log_info("%s", text);
	stats_waits_text(r->stats, text, sizeof(text));
	if (text[0] && sums)
		log_info("%s", text);
	if (r->pipeline) {
		pipeline_total(r->pipeline, &total);
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
		log_info("wrote %" PRIu64 " profiles into %s", n_written, o->path);
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
 * Ask a command that outlived its recording to end (SIGTERM), and wait for it for half a second.
 * If it has not ended by then, leave it running and say so.
 */
static void end_child(struct recorder *r)
{
	const struct timespec pause = { .tv_nsec = 20000000 };

	if (r->child_gate >= 0)
		(void)close(r->child_gate); /* the command has not begun, so the child ends */
	if (r->child_fault >= 0)
		(void)close(r->child_fault);
	if (r->child <= 0)
		return;
	(void)kill(r->child, SIGTERM);
	for (int i = 0; i < 25; i++) {
		if (waitpid(r->child, NULL, WNOHANG))
			return;
		(void)nanosleep(&pause, NULL);
	}
	log_info("%s: goes on as process %d", r->options->command[0], (int)r->child);
}

/*
 * Return true if the user chose what to record. Then a recording without samples is a failure;
 * without such a choice the machine was only idle.
 */
static bool is_selective(const struct source_live_options *live)
{
	return live->n_pids || live->n_tids || live->n_comms || live->n_uids || live->n_cgroups ||
	       live->n_containers || live->n_cpus || live->n_events || live->n_probes;
}

/* Record as options says. Return the exit code. */
static int record(const struct options *options)
{
	struct recorder r = { .options = options, .child_gate = -1, .child_fault = -1 };
	uint64_t n_written = 0, n_failed = 0, n_captured = 0;
	struct sigaction action = { .sa_handler = on_signal }, hangup;
	struct pipeline_reuse reuse = { .n_samples = 0 };
	bool began = false;
	int err, raw_err = 0, stats_err = 0;

	/*
	 * Limit the memory that malloc keeps. Blocks of hundreds of KiB, for compiled tables and
	 * profiles, come and go. By default malloc raises its mmap threshold when such a block is
	 * freed, and then caches what threads freed, 16 MB each. See mallopt(3), M_MMAP_THRESHOLD.
	 */
	(void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
	(void)mallopt(M_TRIM_THRESHOLD, 256 << 10);
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	/* nohup(1) sets SIGHUP to be ignored: leave it so. */
	if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN)
		(void)sigaction(SIGHUP, &action, NULL);
	err = set_up(&r);
	if (!err && options->realtime)
		err = priority_realtime(options->realtime);
	if (!err) {
		r.began_ns = r.window_start_ns = now_ns();
		err = release_child(&r);
		began = !err;
	}
	if (began)
		err = loop(&r);
	r.ended_ns = r.stopped ? r.stopped_ns : now_ns();
	if (began && options->realtime)
		(void)priority_realtime(0); /* no samples can be lost any more */
	end_began = 1;
	ending_begin(options->command || options->live.n_pids || options->live.n_tids ? NAMED_END_NS
										      : END_NS);
	if (r.pipeline)
		pipeline_end(r.pipeline);
	log_progress_done();
	/* Whatever ended the recording, even an error, write what was captured until then. */
	if (r.writer) {
		int last = 0;

		/* Write profiles of windows without samples, too. */
		if (began && r.stopped)
			last = rotate(&r, r.stopped_ns);
		if (began && !last)
			last = close_window(&r, now_ns());
		writer_finish(r.writer, &n_written, &n_failed);
		if (!err)
			err = last;
	}
	if (r.raw)
		raw_err = close_raw(&r);
	if (began)
		n_captured = say_result(&r, n_written, r.options->raw && !raw_err);
	unnamed_fini(&r.unnamed);
	if (r.pipeline)
		pipeline_reuse(r.pipeline, &reuse);
	if (began && options->stats_path)
		stats_err = stats_write(r.stats, &reuse, options->stats_path);
	if (began && r.pipeline && !err)
		err = walking_verified(&options->walking, &reuse);
	/*
	 * Abandoned threads (errand.h) may still use this memory: do not free it, the program ends
	 * anyway.
	 */
	if (errands_left() || !pipeline_free(r.pipeline)) {
		log_debug("files are still being read; they are left to themselves");
		source_close(r.source);
	} else {
		store_work(r.store, ending_left());
		store_close(r.store);
		opener_free(r.opener);
		stats_free(r.stats);
		source_close(r.source);
	}
	end_child(&r);
	if (!began && r.child_code)
		return r.child_code; /* the command could not be run: 127 or 126 */
	if ((n_failed && !n_written) || err || raw_err || stats_err)
		return CMD_FAILED;
	if (n_failed)
		return CMD_PARTLY;
	/* A command that ended together with its recording, by a signal, did not itself fail. */
	if (options->command)
		return interrupted ? CMD_DONE : r.child_code;
	return n_captured || options->rotate_ns || !is_selective(&options->live) ? CMD_DONE
										 : CMD_FAILED;
}

/* ---- the command line ----------------------------------------------------------- */

/*
 * Append value, of size bytes, to an array of n elements, which is reallocated. array is the
 * address of the pointer to the array. Return 0 or -ENOMEM.
 */
static int append(void *array, size_t *n, const void *value, size_t size)
{
	void **to = array;
	char *bigger = reallocarray(*to, *n + 1, size);

	if (!bigger)
		return -ENOMEM;
	memcpy(bigger + *n * size, value, size);
	*to = bigger;
	++*n;
	return 0;
}

/*
 * Call take for each word of a comma-separated list, in order, until one fails. text is modified;
 * take may keep the words. Return 0 or take's error.
 */
static int each_word(char *text, int (*take)(struct options *o, const char *word),
		     struct options *o)
{
	char *word;
	int err = 0;

	while (!err && (word = strsep(&text, ",")))
		err = take(o, word);
	if (err == -ENOMEM)
		log_error("%s", strerror(ENOMEM));
	return err;
}

/*
 * Add a process to record. Return 0, or a negative code after reporting it; so do all take_
 * functions.
 */
static int take_pid(struct options *o, const char *word)
{
	uint64_t pid;
	int32_t number;
	int err = input_number("--pid", word, 1, INT32_MAX, &pid);

	if (!err && kill((pid_t)pid, 0) && errno == ESRCH) {
		log_error("--pid %" PRIu64 ": no such process", pid);
		err = -ESRCH;
	}
	number = err ? 0 : (int32_t)pid;
	return err ? err : append(&o->live.pids, &o->live.n_pids, &number, sizeof(number));
}

static int take_tid(struct options *o, const char *word)
{
	uint64_t tid;
	int32_t number;
	char path[32];
	int err = input_number("--tid", word, 1, INT32_MAX, &tid);

	if (err)
		return err;
	(void)snprintf(path, sizeof(path), "/proc/%" PRIu64, tid);
	if (access(path, F_OK)) {
		log_error("--tid %" PRIu64 ": no such thread", tid);
		return -ESRCH;
	}
	number = (int32_t)tid;
	return append(&o->live.tids, &o->live.n_tids, &number, sizeof(number));
}

/* Add a user, by name or number. A name that consists of digits is looked up as a name first. */
static int take_uid(struct options *o, const char *word)
{
	const struct passwd *user = getpwnam(word);
	uint64_t number = user ? user->pw_uid : 0;
	uint32_t uid;

	if (!user && word[strspn(word, "0123456789")]) {
		log_error("--uid %s: no such user", word);
		return -EINVAL;
	}
	if (!user && input_number("--uid", word, 0, UINT32_MAX, &number))
		return -EINVAL;
	uid = (uint32_t)number;
	return append(&o->live.uids, &o->live.n_uids, &uid, sizeof(uid));
}

static int take_comm(struct options *o, const char *word)
{
	return append(&o->live.comms, &o->live.n_comms, &word, sizeof(word));
}

static int take_cgroup(struct options *o, const char *word)
{
	return append(&o->live.cgroups, &o->live.n_cgroups, &word, sizeof(word));
}

static int take_container(struct options *o, const char *word)
{
	return append(&o->live.containers, &o->live.n_containers, &word, sizeof(word));
}

static int take_event(struct options *o, const char *word)
{
	return append(&o->live.events, &o->live.n_events, &word, sizeof(word));
}

static int take_probe(struct options *o, const char *word)
{
	return append(&o->live.probes, &o->live.n_probes, &word, sizeof(word));
}

/* Replace the list of CPUs to record. Return 0, or a negative code after reporting it. */
static int parse_cpus(const char *text, struct options *o)
{
	int *cpus, err;
	size_t n;

	err = live_cpus_parse(text, &cpus, &n);
	if (err) {
		log_error("--cpu takes a list such as 0-3,8, not '%s'", text);
		return err;
	}
	free(o->live.cpus);
	o->live.cpus = cpus;
	o->live.n_cpus = n;
	return 0;
}

/*
 * Return true if processes or threads were chosen by number. Filters by name, user or cgroup
 * narrow down any choice, so they do not count here.
 */
static bool picks_tasks(const struct source_live_options *live)
{
	return live->n_pids || live->n_tids;
}

static void free_options(struct options *o)
{
	free(o->live.pids);
	free(o->live.tids);
	free(o->live.uids);
	free(o->live.cpus);
	free((void *)(uintptr_t)o->live.comms);
	free((void *)(uintptr_t)o->live.cgroups);
	free((void *)(uintptr_t)o->live.containers);
	free((void *)(uintptr_t)o->live.events);
	free((void *)(uintptr_t)o->live.probes);
}

/*
 * Return the highest sampling rate that the kernel allows, at most RATE_MAX, as perf record -F max
 * does.
 */
static uint32_t rate_max(void)
{
	FILE *file = fopen("/proc/sys/kernel/perf_event_max_sample_rate", "re");
	unsigned int rate = 0;

	if (file) {
		if (fscanf(file, "%u", &rate) != 1)
			rate = 0;
		(void)fclose(file);
	}
	return rate < 1 ? 1 : rate > RATE_MAX ? RATE_MAX : rate;
}

/*
 * Read the command line into *o. Return 0, or -EINVAL after reporting what is wrong. *done: --help
 * was given and printed; there is nothing to record.
 */
static int parse(int argc, char **argv, struct options *o, bool *done)
{
	enum {
		RAW = 256,
		WITH_FILES,
		ROTATE,
		KEEP,
		STACK_MAX,
		COMM,
		CGROUP,
		CONTAINER,
		OFF_CPU,
		UPROBE,
		ALLOC,
		STATS,
		SAMPLE_TYPE,
		CALL_GRAPH
	};
	static const struct option options[] = {
		{ "all-cpus", no_argument, NULL, 'a' },
		{ "pid", required_argument, NULL, 'p' },
		{ "tid", required_argument, NULL, 't' },
		{ "uid", required_argument, NULL, 'u' },
		{ "cpu", required_argument, NULL, 'C' },
		{ "comm", required_argument, NULL, COMM },
		{ "cgroup", required_argument, NULL, CGROUP },
		{ "container", required_argument, NULL, CONTAINER },
		{ "event", required_argument, NULL, 'e' },
		{ "count", required_argument, NULL, 'c' },
		{ "off-cpu", optional_argument, NULL, OFF_CPU },
		{ "uprobe", required_argument, NULL, UPROBE },
		{ "alloc", optional_argument, NULL, ALLOC },
		{ "stats", required_argument, NULL, STATS },
		{ "freq", required_argument, NULL, 'F' },
		{ "call-graph", required_argument, NULL, CALL_GRAPH },
		{ "duration", required_argument, NULL, 'd' },
		{ "output", required_argument, NULL, 'o' },
		{ "format", required_argument, NULL, 'f' },
		{ "sample-type", required_argument, NULL, SAMPLE_TYPE },
		{ "raw", optional_argument, NULL, RAW },
		{ "with-files", no_argument, NULL, WITH_FILES },
		{ "rotate", required_argument, NULL, ROTATE },
		{ "keep", required_argument, NULL, KEEP },
		WALKING_OPTIONS,
		WALKING_FOLD_OPTIONS,
		{ "stack-max", required_argument, NULL, STACK_MAX },
		{ "ring", required_argument, NULL, 'm' },
		{ "mmap-pages", required_argument, NULL, 'm' },
		{ "realtime", required_argument, NULL, 'r' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	bool has_format = false;
	uint64_t number;
	int c;

	/* +: stop at COMMAND, so that its own options are not read here */
	while ((c = option_next(argc, argv, "+ap:t:u:C:e:c:F:d:o:f:m:r:gqvh", options)) != -1) {
		switch (c) {
		case 'a':
			o->all = true;
			break;
		case 'p':
			if (each_word(optarg, take_pid, o))
				return -EINVAL;
			break;
		case 't':
			if (each_word(optarg, take_tid, o))
				return -EINVAL;
			break;
		case 'u':
			if (each_word(optarg, take_uid, o))
				return -EINVAL;
			break;
		case 'C':
			if (parse_cpus(optarg, o))
				return -EINVAL;
			break;
		case COMM:
			if (each_word(optarg, take_comm, o))
				return -EINVAL;
			break;
		case CGROUP:
			if (each_word(optarg, take_cgroup, o))
				return -EINVAL;
			break;
		case CONTAINER:
			if (each_word(optarg, take_container, o))
				return -EINVAL;
			break;
		case 'e':
			if (take_event(o, optarg))
				return -EINVAL;
			break;
		case UPROBE:
			if (take_probe(o, optarg))
				return -EINVAL;
			break;
		case 'c':
			if (input_number("--count", optarg, 1, INT64_MAX, &o->live.count))
				return -EINVAL;
			break;
		case OFF_CPU:
			o->live.off_cpu = true;
			if (optarg &&
			    input_time("--off-cpu", optarg, INT64_MAX, &o->live.off_cpu_min_ns))
				return -EINVAL;
			break;
		case ALLOC:
			o->live.alloc_interval = ALLOC_INTERVAL;
			if (optarg && input_size("--alloc", optarg, 1, CAPTURE_INTERVAL_MAX,
						 &o->live.alloc_interval))
				return -EINVAL;
			break;
		case STATS:
			o->stats_path = optarg;
			break;
		case 'g':
		case CALL_GRAPH:
			log_info("%s: stacks are always recorded, so this option changes nothing",
				 c == 'g' ? "-g" : "--call-graph");
			break;
		case 'F':
			o->has_rate = true;
			if (!strcmp(optarg, "max")) {
				o->live.frequency_hz = rate_max();
				break;
			}
			if (input_number("--freq", optarg, 1, RATE_MAX, &number))
				return -EINVAL;
			o->live.frequency_hz = (uint32_t)number;
			break;
		case 'd':
			if (input_duration("--duration", optarg, DURATION_MAX, &o->duration_ns))
				return -EINVAL;
			break;
		case 'o':
			o->path = optarg;
			break;
		case 'f':
			o->format = format_find(optarg);
			if (o->format == FORMAT_N)
				return -EINVAL;
			has_format = true;
			break;
		case SAMPLE_TYPE:
			o->sample_type = optarg;
			break;
		case WITH_FILES:
			o->with_files = true;
			break;
		case RAW:
			o->raw = true;
			o->raw_path = optarg;
			break;
		case ROTATE:
			if (input_duration("--rotate", optarg, ROTATE_MAX, &o->rotate_ns))
				return -EINVAL;
			if (o->rotate_ns < SECOND_NS) {
				log_error("--rotate takes a second at least, not '%s'", optarg);
				return -EINVAL;
			}
			break;
		case KEEP:
			if (input_number("--keep", optarg, 1, UINT32_MAX, &number))
				return -EINVAL;
			o->keep = (uint32_t)number;
			break;
		case STACK_MAX:
			if (input_size("--stack-max", optarg, 4096, 1 << 20, &number))
				return -EINVAL;
			o->live.stack_max = (uint32_t)number;
			break;
		case 'm':
			if (input_pages("--ring", optarg, 4 << 20, 1 << 30, &number))
				return -EINVAL;
			o->live.ring_bytes = (uint32_t)number;
			break;
		case 'r':
			if (input_number("--realtime", optarg, 1, 99, &number))
				return -EINVAL;
			o->realtime = (int)number;
			break;
		case 'q':
			log_quiet(true);
			break;
		case 'v':
			log_verbose(true);
			break;
		case 'h':
			(void)fputs(help, stdout);
			*done = true;
			return 0;
		default:
			if (walking_option(&o->walking, c, optarg) != 1)
				return -EINVAL;
		}
	}
	if (optind < argc)
		o->command = argv + optind;
	if (o->command && !o->has_rate)
		o->live.frequency_hz = RATE_COMMAND;
	if ((o->all && (o->command || picks_tasks(&o->live))) ||
	    (o->command && picks_tasks(&o->live))) {
		log_error("record: only one of -a, -p or -t, and COMMAND");
		return -EINVAL;
	}
	if (o->keep && !o->rotate_ns) {
		log_error("record: --keep goes with --rotate");
		return -EINVAL;
	}
	/* If neither -f nor --raw gives the type of the file that -o names, its suffix does. */
	if (o->path && !has_format && !o->raw && !o->rotate_ns) {
		size_t size = strlen(o->path);

		o->raw = size > 4 && !strcmp(o->path + size - 4, ".owc");
		if (!o->raw && format_of_path(o->path, &o->format))
			return -EINVAL;
	}
	if (has_format && o->raw && !o->raw_path) {
		log_error("record: --raw writes a capture file, which has no --format; a profile "
			  "beside it: --raw=FILE");
		return -EINVAL;
	}
	if (o->path && (o->format == FORMAT_PPROF || o->raw) &&
	    output_not_terminal("record", o->path))
		return -EINVAL;
	if (o->with_files && !o->raw) {
		log_error("record: --with-files goes with --raw");
		return -EINVAL;
	}
	if (o->raw && !o->raw_path && o->rotate_ns) {
		log_error("record: --raw with --rotate needs a file: --raw=FILE");
		return -EINVAL;
	}
	if (o->raw && !o->raw_path) {
		if (!o->path)
			o->path = "offwind.owc";
		o->raw_path = o->path; /* the same pointer means that no profile is wanted */
	}
	if (!o->path)
		o->path = o->rotate_ns ? "offwind-profiles" : format_file(o->format);
	return 0;
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
	struct options o = { .live = { .frequency_hz = 99, .stack_max = 256 << 10 },
			     .walking = { .pipeline = { .live = true, .fold = true },
					  .frames_limit = 1 << 20 } };
	bool done = false;
	int rc = CMD_USAGE;

	if (!parse(argc, argv, &o, &done)) {
		rc = CMD_DONE;
		if (!done && rights_missing("record"))
			rc = CMD_FAILED;
		else if (!done) {
			char *command = command_line(argc, argv);

			io_allow_many_files();
			o.live.command = command;
			rc = record(&o);
			free(command);
		}
	}
	free_options(&o);
	return rc;
}

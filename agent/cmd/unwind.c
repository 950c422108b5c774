/* agent/cmd/unwind.c: the unwind command: turns recordings into profiles or into frames. */
#include "agent/cmd/unwind.h"

#include "agent/cli/advice.h"
#include "agent/cli/input.h"
#include "agent/cli/option.h"
#include "agent/cli/pick.h"
#include "agent/cli/supervisor.h"
#include "agent/cli/walking.h"
#include "agent/clock.h"
#include "agent/cmd/cmd.h"
#include "agent/export/export.h"
#include "agent/export/output.h"
#include "agent/export/result.h"
#include "agent/log.h"
#include "agent/pipeline/fold.h"
#include "agent/pipeline/names.h"
#include "agent/role/files.h"
#include "agent/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/*
 * After the result is written, missing tables are compiled for the store, for at most this time.
 */
#define KEEP_LIMIT_NS UINT64_C(3000000000)

struct job {
	enum format format;
	struct output out;
	struct walking walking; /* if it names a process, that is one more input */
	struct names *names;	/* of the current input */
	struct pick *pick;	/* which samples; NULL: all */
	uint64_t n_left_out;	/* samples that were not picked */
	const char *type;	/* sample type to show; NULL: the default */
	struct result *result;	/* so far; NULL: each sample is written at once */
	bool into;		/* it is for another command */
	uint64_t n_before;	/* number of samples in the previous inputs */
	uint64_t n_walked;	/* number of the last walked sample, over all inputs */
	struct accounting total;
	struct pipeline_reuse reuse;
	struct unnamed unnamed;
	uint64_t start_ns;
	bool lines;    /* text output shows source lines */
	bool began;    /* at least one stack was walked */
	bool in_place; /* see output_open_in_place */
	bool damaged;  /* an input is damaged: the exit code is CMD_PARTLY */
	int write_err; /* error of the output, after which nothing more is read */
};

/*
 * Flush the first stack, so that a reader of the output gets it at once, and log how long it took.
 */
static void first_is_out(struct job *job)
{
	/* Later writes to this stream also fail, but do not report the reason: store it now. */
	if (job->out.file && !job->walking.pipeline.fold && fflush(job->out.file))
		job->write_err = -errno;
	log_debug("first stack after %" PRIu64 " us, %" PRIu64 " us of cpu since the program began",
		  (now_ns() - job->start_ns) / 1000, clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000);
}

/*
 * The pipeline's callback: write one sample. Return 0 or a negative code, which ends the reading.
 */
static int on_walked(void *ctx, const struct walked *walked)
{
	struct job *job = ctx;
	struct walked sample = *walked;

	if (job->write_err)
		return job->write_err;
	sample.number += job->n_before; /* numbers are unique over all inputs */
	job->n_walked = sample.number;
	if (job->format == FORMAT_TEXT)
		job->write_err = export_text(job->out.file, &sample, job->names, job->lines);
	else if (job->format == FORMAT_TSV)
		job->write_err = export_tsv(job->out.file, &sample, job->names);
	else
		job->write_err = export_jsonl(job->out.file, &sample, job->names);
	return job->write_err;
}

/*
 * Read the input up to its end or its damage, and pass the selected events to the pipeline. Damage
 * is reported, noted in job->damaged and no error. Return 0 or the pipeline's error.
 */
static int read_all(struct job *job, struct source *source, struct pipeline *pipeline)
{
	struct accounting so_far;
	uint64_t n = 0;
	int err;

	for (;;) {
		struct event event;
		int rc = source_next(source, &event, -1);

		if (rc == 0)
			break;
		if (rc == -EAGAIN)
			continue;
		if (rc < 0) {
			log_error("%s", source->error);
			job->damaged = true;
			break;
		}
		if (job->pick && !pick_wants(job->pick, &event, pipeline)) {
			job->n_left_out += event.type == EVENT_SAMPLE;
			continue;
		}
		err = pipeline_event(pipeline, &event);
		if (err)
			return err;
		if (event.type == EVENT_SAMPLE && !job->began) {
			job->began = true;
			first_is_out(job);
		}
		if (++n % 4096 == 0) {
			pipeline_total(pipeline, &so_far);
			log_progress("%" PRIu64 " samples", so_far.captured);
		}
	}
	log_progress_done();
	return 0;
}

/* Add the samples that the pipeline folded to the result, with their names. */
static int fold_into(struct job *job, const struct source_info *info, struct pipeline *pipeline)
{
	struct profile *profile;
	int err = pipeline_take(pipeline, &profile);

	if (err)
		return err;
	err = result_add(job->result, profile, job->names, info);
	if (!err)
		unnamed_add(&job->unnamed, profile, job->names, info);
	profile_free(profile);
	return err;
}

/*
 * Unwind one input into the result; path NULL: the running process. Return 0, or a negative code
 * after reporting it (but for job->write_err, which the caller reports).
 */
static int unwind_input(struct job *job, const char *path)
{
	struct pipeline_options *options = &job->walking.pipeline;
	struct pipeline *pipeline = NULL;
	struct source *source = NULL;
	struct pipeline_reuse reuse;
	struct accounting total;
	int err = path && job->pick ? pick_begin(job->pick, path) : 0;

	if (!err)
		err = walking_open(&job->walking, path, &source);
	if (err)
		return err;
	if (!path)
		path = "the process";
	err = pipeline_new(options, &source->info, &pipeline);
	if (!err)
		err = names_new(pipeline_opener(pipeline), &source->info, !job->walking.as_linked,
				&job->names);
	if (!err) {
		names_store(job->names, options->store);
		if (!job->walking.no_lines)
			names_lines(job->names, !job->walking.no_inline);
	}
	if (!err)
		err = read_all(job, source, pipeline);
	if (!err && options->fold)
		err = fold_into(job, &source->info, pipeline);
	job->n_before = job->n_walked;
	if (job->write_err) {
		log_progress_done(); /* run reports it */
	} else if (err == -EINVAL) {
		log_error("%s: %sits events are not those of the input before it", path,
			  job->into ? "" : "left out: ");
	} else if (err) {
		log_error("%s: %s", path, strerror(-err));
	} else {
		pipeline_total(pipeline, &total);
		accounting_add(&job->total, &total);
		pipeline_reuse(pipeline, &reuse);
		job->reuse.n_samples += reuse.n_samples;
		job->reuse.n_walked += reuse.n_walked;
		job->reuse.n_taken += reuse.n_taken;
		job->reuse.n_verified += reuse.n_verified;
		job->reuse.n_differing += reuse.n_differing;
	}
	names_free(job->names);
	job->names = NULL;
	pipeline_free(pipeline);
	source_close(source);
	return err;
}

/*
 * Choose by the format what the pipeline does with the samples: count equal stacks together, keep
 * each with its time, or pass each on as soon as it is walked.
 */
static void choose_samples(struct job *job)
{
	struct pipeline_options *options = &job->walking.pipeline;

	options->fold = job->format != FORMAT_TEXT && job->format != FORMAT_TSV &&
			job->format != FORMAT_JSONL;
	options->separate = job->format == FORMAT_SPEEDSCOPE || job->format == FORMAT_FIREFOX;
	options->on_walked = options->fold ? NULL : on_walked;
	options->ctx = job;
}

/*
 * Prepare the result in memory or, for formats that are written sample by sample, the output
 * stream.
 */
static int begin_output(struct job *job)
{
	if (job->walking.pipeline.fold)
		return result_new(job->format, &job->result);
	if (!output_file(&job->out))
		return -ENOMEM;
	return job->format == FORMAT_TSV ? export_tsv_header(job->out.file) : 0;
}

/* Write a result that was collected in memory. Return 0 or a negative code. */
static int finish_output(struct job *job)
{
	if (!job->result)
		return 0;
	return output_file(&job->out) ? result_write(job->result, job->type, job->out.file)
				      : -ENOMEM;
}

/*
 * Let malloc reuse freed blocks instead of returning them to the kernel: the page faults of fresh
 * pages take longer than most of the work on them. By default malloc maps blocks from 128 KiB on
 * separately.
 */
static void keep_memory(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
	(void)mallopt(M_TRIM_THRESHOLD, 16 << 20);
	(void)mallopt(M_TOP_PAD, 1 << 20);
}

/*
 * Unwind all inputs, up to an error of the output (job->write_err). Return how many failed, and
 * their number in *n; failures are reported.
 */
static size_t unwind_inputs(struct job *job, char **inputs, int n_inputs, size_t *n)
{
	struct input_list list = { 0 };
	size_t failed = 0;

	for (int i = 0; i < n_inputs; i++)
		failed += input_list_add(&list, inputs[i]) != 0;
	*n = list.n + failed + (job->walking.pid != 0);
	for (size_t i = 0; !job->write_err && i < list.n; i++)
		failed += unwind_input(job, list.paths[i]) != 0;
	if (!job->write_err && job->walking.pid)
		failed += unwind_input(job, NULL) != 0;
	input_list_free(&list);
	if (!job->write_err && job->pick && pick_any(job->pick) && !job->total.captured &&
	    failed < *n) {
		log_error(
			"no sample matches the conditions (--time, --pid, --tid, --comm); %" PRIu64
			" were left out",
			job->n_left_out);
		failed = *n;
	}
	return failed;
}

/* Unwind all inputs into the output at path. Return the exit code. */
static int run(struct job *job, const char *path, char **inputs, int n_inputs)
{
	size_t failed = 0, n = 0;
	int err;

	keep_memory();
	supervisor_confine();
	if (!job->in_place && output_open(&job->out, path))
		return CMD_FAILED;
	err = begin_output(job);
	if (!err) {
		failed = unwind_inputs(job, inputs, n_inputs, &n);
		err = job->write_err;
	}
	/* If some inputs failed, the result of the others is still written. */
	if (!err && failed < n && job->in_place && output_open_in_place(&job->out, path))
		failed = n;
	if (!err && failed < n)
		err = finish_output(job);
	if (err && err != -ENOENT) /* no such sample type, which is already reported */
		log_unwritable(path, err);
	else if (!err && failed < n)
		err = output_commit(&job->out);
	result_free(job->result);
	output_abort(&job->out);
	if (err || failed == n)
		return CMD_FAILED;
	return failed || job->damaged ? CMD_PARTLY : CMD_DONE;
}

/*
 * Compile missing tables for the store after the result is out. First detach from standard output,
 * so that a reader of a pipe sees its end now and does not wait for this work.
 */
static void keep_tables(struct store *store)
{
	int null;

	if (!store_has_work(store)) {
		store_close(store);
		return;
	}
	files_done();
	if (!fflush(stdout)) {
		/* Nobody reads it: in the sandbox, /dev/null cannot be opened. */
		null = memfd_create("no output", MFD_CLOEXEC);
		if (null >= 0) {
			(void)dup2(null, STDOUT_FILENO);
			(void)close(null);
		}
	}
	store_work(store, KEEP_LIMIT_NS);
	store_close(store);
}

/*
 * Return true if standard output is redirected to a file, as in `offwind unwind perf.data >
 * x.pb.gz`. If standard error goes to the same file, the file is a log, and the result is false.
 */
static bool is_redirected(void)
{
	struct stat out, messages;

	return !fstat(STDOUT_FILENO, &out) && S_ISREG(out.st_mode) &&
	       (fstat(STDERR_FILENO, &messages) || out.st_dev != messages.st_dev ||
		out.st_ino != messages.st_ino);
}

int unwind_into(const char *path, struct pick *pick, struct stacks *stacks, bool base,
		struct store *store)
{
	struct job job = { .out = { .fd = -1 },
			   .into = true,
			   .pick = pick,
			   .walking = { .pipeline = { .fold = true } } };
	char *input = (char *)(uintptr_t)path;
	size_t failed = 0, n = 0;
	int err = result_into(stacks, base, &job.result);

	if (err) {
		log_error("%s: %s", path, strerror(-err));
		return err;
	}
	keep_memory();
	job.walking.pipeline.store = store;
	failed = unwind_inputs(&job, &input, 1, &n);
	result_free(job.result);
	unnamed_fini(&job.unnamed);
	store_work(store, KEEP_LIMIT_NS);
	return failed == n ? -EIO : job.damaged;
}

static const char help_before[] =
	"usage: offwind unwind [OPTION]… INPUT…\n"
	"       offwind unwind [OPTION]… --pid PID\n"
	"Unwinds the stacks of perf.data and .owc recordings (- for standard input), of core\n"
	"files, of snapshot directories, or of a running process.\n"
	"\n";

static const char help_after[] =
	"\n"
	"Exit code: 0 success, 1 failure, 2 wrong command line, 3 an input was damaged, and\n"
	"everything before the damage was processed.\n";

struct options {
	struct walking walking;
	struct pick pick;
	const char *path;   /* NULL: the default */
	const char *type;   /* NULL: the default */
	enum format format; /* FORMAT_N: not given */
	bool lines;
};

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--output", 'o', "FILE",
	  "write to FILE; without -f the suffix chooses the format: .pb.gz,\n"
	  ".folded, .txt, .tsv, .jsonl, .speedscope.json, .firefox.json or\n"
	  ".parquet (default: standard output, but offwind.pb.gz for a pprof\n"
	  "profile if standard output is not a file)",
	  .set = option_text, AT(path) },
	{ "--format", 'f', "FORMAT", "write pprof (default), " FORMAT_OTHERS, .set = format_take,
	  AT(format) },
	{ "--sample-type", 0, "TYPE",
	  "choose the type that speedscope, firefox and folded show and that\n"
	  "readers of pprof show first: samples, cpu, off_cpu, wall, …",
	  .set = option_text, AT(type) },
	WALKING_MAX_FRAMES(struct options),
	WALKING_INPUT(struct options),
	{ "--time", 0, "BEGIN,END",
	  "use only samples of this slice: seconds on the recording's clock, as\n"
	  "perf script prints it (either may be left out); +BEGIN,+END count\n"
	  "from the first sample; 10%-20% is a part of the whole",
	  .set = pick_time, AT(pick) },
	{ "--pid", 0, "PID[,…]", OPTION_BESIDE, .set = option_text, AT(pick.pids) },
	{ "--tid", 0, "TID[,…]", OPTION_BESIDE, .set = option_text, AT(pick.tids) },
	{ "--comm", 0, "NAME[,…]", "use only samples of these processes, threads or names",
	  .set = option_text, AT(pick.comms) },
	{ "--pid", 0, "PID", "without INPUT: unwind all threads of a running process once",
	  .set = NULL },
	WALKING_SCAN(struct options),
	WALKING_VERIFY_REUSE(struct options),
	{ "--lines", 0, NULL,
	  "in text: print each frame's source line after it, as perf script -F\n"
	  "+srcline does; other formats except folded always have source lines",
	  .set = option_true, AT(lines) },
	WALKING_LAST_ROWS(struct options),
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	OPTION_ROWS(option_rows),
};

/*
 * Read the command line into *o. Return 0; 1 after --help was printed; or a negative code after
 * reporting what is wrong.
 */
static int parse(int argc, char **argv, struct options *o)
{
	int err = option_read(&option_table, argc, argv, o);
	bool has_format = o->format != FORMAT_N;

	if (err)
		return err;
	if (!has_format)
		o->format = FORMAT_PPROF;
	if (optind == argc && !o->pick.pids) {
		log_error("unwind: no input; see offwind unwind --help");
		return -EINVAL;
	}
	/* With an input, --pid selects samples; without one it names a running process. */
	if (optind == argc) {
		if (walking_pid(&o->walking, "--pid", (char *)(uintptr_t)o->pick.pids))
			return -EINVAL;
		o->pick.pids = NULL;
	}
	if (!o->path)
		o->path =
			o->format != FORMAT_PPROF || is_redirected() ? "-" : format_file(o->format);
	else if (!has_format && format_of_path(o->path, &o->format))
		return -EINVAL;
	return format_is_binary(o->format) && output_not_terminal("unwind", o->path) ? -EINVAL : 0;
}

/* Report what was unwound. Return 0, or a negative code if --verify-reuse failed. */
static int say_result(const struct job *job, const char *path)
{
	char text[1024];

	accounting_text(&job->total, text, sizeof(text));
	log_info("%s", text);
	if (job->n_left_out)
		log_info("left out by --time, --pid, --tid, --comm: %" PRIu64 " samples",
			 job->n_left_out);
	log_debug("frames walked %" PRIu64 ", taken over from the sample before %" PRIu64,
		  job->reuse.n_walked, job->reuse.n_taken);
	if (strcmp(path, "-"))
		log_info("wrote %s", path);
	advice_say(&job->unnamed);
	return walking_verified(&job->walking, &job->reuse);
}

int cmd_unwind(int argc, char **argv)
{
	struct options o = { .walking = { .frames_limit = 1 << 20 }, .format = FORMAT_N };
	int rc = parse(argc, argv, &o);
	struct job job;

	if (rc)
		return rc < 0 ? CMD_USAGE : CMD_DONE;
	job = (struct job){ .walking = o.walking,
			    .out = { .fd = -1 },
			    .format = o.format,
			    .type = o.type,
			    .lines = o.lines,
			    .pick = pick_any(&o.pick) ? &o.pick : NULL,
			    .start_ns = now_ns() };
	choose_samples(&job);
	if (supervisor_start(&(struct supervision){ .inputs = argv + optind,
						    .n_inputs = (size_t)(argc - optind),
						    .output = o.path,
						    .db = o.walking.db,
						    .no_store = o.walking.no_cache }) ||
	    walking_open_process(&job.walking))
		return CMD_FAILED;
	walking_open_store(&job.walking);
	rc = run(&job, o.path, argv + optind, argc - optind);
	if ((rc == CMD_DONE || rc == CMD_PARTLY) && say_result(&job, o.path))
		rc = CMD_FAILED;
	unnamed_fini(&job.unnamed);
	keep_tables(job.walking.pipeline.store);
	return rc;
}

/* ---- perf_to_profile ---------------------------------------------------------------- */

struct to_profile {
	const char *in, *out;
	bool force, ignored;
};

/* The text names all of them. -j: other programs of this name accept it; it has no effect here. */
static const struct option_row to_profile_rows[] = {
	{ "-i", 'i', "PERF.DATA", .set = option_text, .at = offsetof(struct to_profile, in) },
	{ "-o", 'o', "PROFILE", .set = option_text, .at = offsetof(struct to_profile, out) },
	{ "-f", 'f', NULL, .set = option_true, .at = offsetof(struct to_profile, force) },
	{ "-j", 'j', NULL, .set = option_true, .at = offsetof(struct to_profile, ignored) },
	{ "-h", 'h', NULL, .set = option_show_help },
};

static const struct option_table to_profile_table = {
	.usage = "usage: perf_to_profile -i PERF.DATA -o PROFILE [-f]\n"
		 "Turns perf.data into a pprof profile; -f replaces an existing PROFILE.\n"
		 "This is offwind unwind under the name that go tool pprof looks for.\n",
	OPTION_ROWS(to_profile_rows),
};

int cmd_perf_to_profile(int argc, char **argv)
{
	/*
	 * go tool pprof creates PROFILE, keeps it open and reads its contents afterwards: so write
	 * into that file instead of replacing it.
	 */
	struct job job = { .in_place = true,
			   .out = { .fd = -1 },
			   .walking = { .pipeline = { .fold = true } } };
	struct to_profile o = { 0 };
	int rc = option_read(&to_profile_table, argc, argv, &o);
	char *in = (char *)(uintptr_t)o.in;

	if (rc > 0)
		return CMD_DONE;
	if (rc < 0 || !in || !o.out || optind != argc) {
		option_help(&to_profile_table, stderr);
		return CMD_USAGE;
	}
	if (!o.force && !access(o.out, F_OK)) {
		log_error("%s: already exists; -f replaces it", o.out);
		return CMD_FAILED;
	}
	if (supervisor_start(
		    &(struct supervision){ .inputs = &in, .n_inputs = 1, .output = o.out }))
		return CMD_FAILED;
	walking_open_store(&job.walking);
	rc = run(&job, o.out, &in, 1);
	unnamed_fini(&job.unnamed);
	keep_tables(job.walking.pipeline.store);
	return rc;
}

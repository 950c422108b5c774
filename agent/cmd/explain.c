/*
 * agent/cmd/explain.c: the explain command: shows how one sample's stack was walked, and why it
 * ended.
 */
#include "agent/cli/input.h"
#include "agent/cli/option.h"
#include "agent/cli/walking.h"
#include "agent/cmd/cmd.h"
#include "agent/export/export.h"
#include "agent/log.h"
#include "agent/pipeline/names.h"
#include "agent/store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

struct explaining {
	const char *wanted; /* a number or a name; NULL: the first sample */
	uint64_t number;    /* 0: wanted is a name */
	const char *stop;   /* take the first sample whose walk ended so; NULL: any */
	bool json, found;
	int err; /* error of the output */
	struct names *names;
};

static const char help[] =
	"usage: offwind explain [OPTION]… INPUT\n"
	"       offwind explain [OPTION]… --pid PID\n"
	"Tells how one sample's stack was walked: for each frame its mapping and file, the\n"
	"rule, where the caller's registers were and what they held; then why the walk ended.\n"
	"\n"
	"      --sample N        which: its number from 1, its name as tables have it, or\n"
	"                        :TID of a core or process; the first if not given\n"
	"      --stop REASON     the first whose walk ended so: truncated, no_unwind_info, …\n"
	"      --json            for programs\n"
	"      --max-frames N    most frames of one stack (default 1024)\n"
	"      --symfs DIR       look for the recorded files below DIR first: at their paths, by\n"
	"                        name, by build-id; then on this host.  --sysroot is the same\n"
	"      --exe FILE        the program that a core file is of\n"
	"      --pid PID         a thread of a running process\n"
	"      --scan            where nothing else leads on, take the next word on the stack\n"
	"                        that follows a call; marked as a guess\n"
	"      --no-demangle     names as linked\n"
	"      --debug-dir DIR   look for debug files there, too, before /usr/lib/debug\n"
	"      --db FILE         the store of unwind tables (default: see man offwind)\n"
	"      --no-cache        without a store\n"
	"  -q, --quiet           errors and warnings only\n"
	"  -h, --help            this text\n";

/*
 * Return true if name is a reason for which a walk ends; otherwise report the reasons that there
 * are.
 */
static bool is_stop(const char *name)
{
	char known[512] = "";

	for (size_t i = 0; i < UW_STOP_N; i++) {
		const char *stop = uw_stop_name((enum uw_stop)i);
		size_t used = strlen(known);

		if (!strcmp(name, stop))
			return true;
		(void)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", stop);
	}
	log_error("--stop: a walk does not end by '%s'; there are: %s", name, known);
	return false;
}

/* Return the sample that is looked for, as messages name it. */
static const char *sought(const struct explaining *e)
{
	return e->stop ? e->stop : e->wanted ? e->wanted : "at all";
}

/*
 * Return true if a sample may be the wanted one, so that its steps are to be recorded. Also the
 * pipeline's callback.
 */
static bool is_wanted(void *ctx, uint64_t number, const struct event *event)
{
	const struct explaining *e = ctx;
	const char *name = event->sample.name, *colon;

	if (e->stop)
		return true; /* how a walk ends is known only after it */
	if (e->number)
		return number == e->number;
	if (!name)
		return false;
	/* A thread's sample is named "core:123"; ":123" alone also selects it. */
	colon = strrchr(name, ':');
	return !strcmp(name, e->wanted) || (colon && !strcmp(colon, e->wanted));
}

/*
 * The pipeline's callback: print the sample if it is the wanted one, and end the reading with
 * -ECANCELED.
 */
static int on_walked(void *ctx, const struct walked *walked)
{
	struct explaining *e = ctx;
	int err;

	if (!is_wanted(ctx, walked->number, walked->event))
		return 0;
	if (e->stop && strcmp(e->stop, uw_stop_name(walked->stop)) != 0)
		return 0;
	e->found = true;
	err = e->json ? export_explain_json(stdout, walked, e->names)
		      : export_explain_text(stdout, walked, e->names);
	if (err) {
		log_unwritable(NULL, err);
		/*
		 * Drop the buffered output, so that main does not try to write it again and report
		 * the error twice.
		 */
		__fpurge(stdout);
		clearerr(stdout);
	}
	e->err = err;
	return -ECANCELED; /* no more samples are needed */
}

/*
 * Read events until the wanted sample was printed. Return 0, the output's error, -ENOENT if there
 * is no such sample, or another negative code.
 */
static int read_until_found(struct explaining *e, struct source *source, struct pipeline *pipeline)
{
	struct event event;
	int err;

	while ((err = source_next(source, &event, -1)) == 1) {
		err = pipeline_event(pipeline, &event);
		if (err)
			return err == -ECANCELED && e->found ? e->err : err;
	}
	if (err < 0)
		log_error("%s", source->error);
	return err < 0 ? err : -ENOENT;
}

/*
 * Explain the wanted sample of the recording at path, NULL: of the running process. Return 0, or a
 * negative code after reporting it.
 */
static int explain(struct explaining *e, struct walking *walking, const char *path)
{
	struct source *source = NULL;
	struct pipeline *pipeline = NULL;
	int err = walking_open(walking, path, &source);

	if (err)
		return err;
	err = pipeline_new(&walking->pipeline, &source->info, &pipeline);
	if (!err)
		err = names_new(pipeline_opener(pipeline), &source->info, !walking->as_linked,
				&e->names);
	if (!err) {
		err = read_until_found(e, source, pipeline);
		if (err == -ENOENT)
			log_error("%s: has no sample %s", path ? path : "the process", sought(e));
		else if (err && !e->found && source->error[0])
			log_error("%s: no sample %s before that", path ? path : "the process",
				  sought(e));
		else if (err && !e->found)
			log_error("%s: %s", path ? path : "the process", strerror(-err));
	} else {
		log_error("%s", strerror(-err));
	}
	names_free(e->names);
	pipeline_free(pipeline);
	source_close(source);
	return err;
}

int cmd_explain(int argc, char **argv)
{
	enum { SAMPLE = 256, STOP, JSON };
	static const struct option options[] = {
		{ "sample", required_argument, NULL, SAMPLE },
		{ "stop", required_argument, NULL, STOP },
		{ "json", no_argument, NULL, JSON },
		WALKING_OPTIONS,
		WALKING_INPUT_OPTIONS,
		{ "pid", required_argument, NULL, WALKING_PID },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct explaining e = { .number = 1 };
	struct walking walking = {
		.pipeline = { .on_walked = on_walked, .explain = is_wanted, .ctx = &e },
		.frames_limit = 1 << 16,
	};
	int c, err;

	while ((c = option_next(argc, argv, "qh", options)) != -1) {
		switch (c) {
		case SAMPLE:
			e.wanted = optarg;
			e.number = 0;
			if (optarg[0] && strspn(optarg, "0123456789") == strlen(optarg) &&
			    input_number("--sample", optarg, 1, UINT64_MAX, &e.number))
				return CMD_USAGE;
			break;
		case STOP:
			if (!is_stop(optarg))
				return CMD_USAGE;
			e.stop = optarg;
			break;
		case JSON:
			e.json = true;
			break;
		case 'q':
			log_quiet(true);
			break;
		case 'h':
			(void)fputs(help, stdout);
			return CMD_DONE;
		default:
			if (walking_option(&walking, c, optarg) != 1)
				return CMD_USAGE;
		}
	}
	if (optind + !walking.pid != argc) {
		log_error("explain: takes one input; see offwind explain --help");
		return CMD_USAGE;
	}
	walking_open_store(&walking);
	err = explain(&e, &walking, walking.pid ? NULL : argv[optind]);
	store_close(walking.pipeline.store);
	return err ? CMD_FAILED : CMD_DONE;
}

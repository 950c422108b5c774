/* agent/cmd/explain.c: why one sample's stack is what it is. */
#include "agent/cmd/cmd.h"
#include "agent/cmd/input.h"
#include "agent/export/export.h"
#include "agent/log.h"
#include "agent/pipeline/names.h"
#include "agent/pipeline/pipeline.h"
#include "agent/store/store.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct explaining {
	const char *wanted; /* a number or a name; NULL: the first sample */
	uint64_t number;    /* 0: wanted is a name */
	bool json, as_linked, found;
	int err; /* of the output */
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
	"      --json            for programs\n"
	"      --max-frames N    most frames of one stack (default 1024)\n"
	"      --symfs DIR       look for the recorded files below DIR; --sysroot is the same\n"
	"      --exe FILE        the program that a core file is of\n"
	"      --pid PID         a thread of a running process\n"
	"      --scan            where nothing else leads on, take the next word on the stack\n"
	"                        that follows a call; marked as a guess\n"
	"      --no-demangle     names as linked\n"
	"      --db FILE         the store of unwind tables (default: see man offwind)\n"
	"      --no-cache        without a store\n"
	"  -q, --quiet           errors and warnings only\n"
	"  -h, --help            this text\n";

static bool is_wanted(void *ctx, uint64_t number, const struct event *event)
{
	const struct explaining *e = ctx;
	const char *name = event->sample.name, *colon;

	if (e->number)
		return number == e->number;
	if (!name)
		return false;
	/* "core:123", or ":123", the thread alone. */
	colon = strrchr(name, ':');
	return !strcmp(name, e->wanted) || (colon && !strcmp(colon, e->wanted));
}

static int on_walked(void *ctx, const struct walked *walked)
{
	struct explaining *e = ctx;
	int err;

	if (!is_wanted(ctx, walked->number, walked->event))
		return 0;
	e->found = true;
	err = e->json ? export_explain_json(stdout, walked, e->names)
		      : export_explain_text(stdout, walked, e->names);
	if (err) {
		log_error("standard output: cannot be written: %s", strerror(-err));
		/* It has been said, and is not to be tried and said again at the end. */
		__fpurge(stdout);
		clearerr(stdout);
	}
	e->err = err;
	return -ECANCELED; /* there is no more to read */
}

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

static int explain(struct explaining *e, struct pipeline_options *options, const char *path,
		   uint32_t pid)
{
	struct source *source = NULL;
	struct pipeline *pipeline = NULL;
	char error[512] = "";
	struct stat st;
	int err;

	if (pid) {
		err = source_process_open(pid, &source, error);
		if (err)
			log_error("%s", error);
		options->live = true;
	} else {
		err = input_open(path, &source);
	}
	if (err)
		return err;
	if (!pid) {
		options->beside = input_beside(source, path);
		if (!options->beside && strcmp(path, "-") != 0 && !stat(path, &st))
			options->until_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000;
	}
	err = pipeline_new(options, &source->info, &pipeline);
	if (!err)
		err = names_new(pipeline_opener(pipeline), &source->info, !e->as_linked, &e->names);
	if (!err) {
		err = read_until_found(e, source, pipeline);
		if (err == -ENOENT)
			log_error("%s: has no sample %s", path ? path : "the process",
				  e->wanted ? e->wanted : "at all");
		else if (err && !e->found && !source->error[0])
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
	enum { SAMPLE = 256, JSON, MAX_FRAMES, SYMFS, EXE, PID, SCAN, NO_DEMANGLE, DB, NO_CACHE };
	static const struct option options[] = {
		{ "sample", required_argument, NULL, SAMPLE },
		{ "json", no_argument, NULL, JSON },
		{ "max-frames", required_argument, NULL, MAX_FRAMES },
		{ "symfs", required_argument, NULL, SYMFS },
		{ "sysroot", required_argument, NULL, SYMFS },
		{ "exe", required_argument, NULL, EXE },
		{ "pid", required_argument, NULL, PID },
		{ "scan", no_argument, NULL, SCAN },
		{ "no-demangle", no_argument, NULL, NO_DEMANGLE },
		{ "db", required_argument, NULL, DB },
		{ "no-cache", no_argument, NULL, NO_CACHE },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct explaining e = { .number = 1 };
	struct pipeline_options pipeline = { .on_walked = on_walked,
					     .explain = is_wanted,
					     .ctx = &e };
	const char *db = NULL;
	bool cached = true;
	uint64_t number, pid = 0;
	int c, err;

	while ((c = getopt_long(argc, argv, "qh", options, NULL)) != -1) {
		switch (c) {
		case SAMPLE:
			e.wanted = optarg;
			e.number = 0;
			if (optarg[0] && strspn(optarg, "0123456789") == strlen(optarg) &&
			    input_number("--sample", optarg, 1, UINT64_MAX, &e.number))
				return CMD_USAGE;
			break;
		case JSON:
			e.json = true;
			break;
		case MAX_FRAMES:
			if (input_number("--max-frames", optarg, 1, 1 << 16, &number))
				return CMD_USAGE;
			pipeline.max_frames = (size_t)number;
			break;
		case SYMFS:
			pipeline.symfs = optarg;
			break;
		case EXE:
			pipeline.exe = optarg;
			break;
		case PID:
			if (input_number("--pid", optarg, 1, INT32_MAX, &pid))
				return CMD_USAGE;
			break;
		case SCAN:
			pipeline.scan = true;
			break;
		case NO_DEMANGLE:
			e.as_linked = true;
			break;
		case DB:
			db = optarg;
			break;
		case NO_CACHE:
			cached = false;
			break;
		case 'q':
			log_quiet(true);
			break;
		case 'h':
			(void)fputs(help, stdout);
			return CMD_DONE;
		default:
			return CMD_USAGE;
		}
	}
	if (optind + !pid != argc) {
		log_error("explain: takes one input; see offwind explain --help");
		return CMD_USAGE;
	}
	if (cached)
		(void)store_open(db, &pipeline.store);
	err = explain(&e, &pipeline, pid ? NULL : argv[optind], (uint32_t)pid);
	store_close(pipeline.store);
	return err ? CMD_FAILED : CMD_DONE;
}

/*
 * agent/cmd/explain.c: the explain command: shows how one sample's stack was walked, and why it
 * ended.
 */
#include "agent/cli/input.h"
#include "agent/cli/limit.h"
#include "agent/cli/option.h"
#include "agent/cli/supervisor.h"
#include "agent/cli/walking.h"
#include "agent/cmd/cmd.h"
#include "agent/export/export.h"
#include "agent/log.h"
#include "agent/pipeline/names.h"
#include "agent/store/store.h"
#include "agent/textbuf.h"

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

/*
 * Return true if name is a reason for which a walk ends; otherwise report the reasons that there
 * are.
 */
static bool is_stop(const char *name)
{
	char known[512] = "";

	for (size_t i = 0; i < UW_STOP_N; i++) {
		const char *stop = uw_stop_name((enum uw_stop)i);

		if (!strcmp(name, stop))
			return true;
		textbuf_add(known, sizeof(known), "%s%s", i ? ", " : "", stop);
	}
	log_error("--stop: there is no stop reason '%s'; there are: %s", name, known);
	return false;
}

/* Return the sample that is looked for, as messages name it. */
static const char *wanted_name(const struct explaining *e)
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
			log_error("%s: has no sample %s", path ? path : "the process",
				  wanted_name(e));
		else if (err && !e->found && source->error[0])
			log_error("%s: no sample %s was found before this error",
				  path ? path : "the process", wanted_name(e));
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

static const char help_before[] =
	"usage: offwind explain [OPTION]… INPUT\n"
	"       offwind explain [OPTION]… --pid PID\n"
	"Explains how one sample's stack was walked: for each frame its mapping and file, the\n"
	"rule, where the caller's registers were and which values they had; then why the walk\n"
	"stopped.\n"
	"\n";

struct options {
	struct explaining sample;
	struct walking walking;
};

/* Take the number or the name of a sample. to is the struct explaining. */
static int take_sample(void *to, const char *option, char *text)
{
	struct explaining *e = to;

	e->wanted = text;
	e->number = 0;
	if (!text[0] || strspn(text, "0123456789") != strlen(text))
		return 0;
	return input_number(option, text, 1, UINT64_MAX, &e->number);
}

static int take_stop(void *to, const char *option, char *text)
{
	return is_stop(text) ? option_text(to, option, text) : -EINVAL;
}

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--sample", 0, "N",
	  "explain this sample: its number (from 1), its name in tables, or :TID\n"
	  "in a core file or process (default: the first sample)",
	  .set = take_sample, AT(sample) },
	{ "--stop", 0, "REASON",
	  "explain the first sample whose walk stopped for REASON: truncated,\n"
	  "no_unwind_info, …",
	  .set = take_stop, AT(sample.stop) },
	{ "--json", 0, NULL, "print one JSON object", .set = option_true, AT(sample.json) },
	WALKING_MAX_FRAMES(struct options),
	WALKING_INPUT(struct options),
	{ "--pid", 0, "PID", "explain a thread of a running process", .set = walking_pid,
	  AT(walking) },
	WALKING_SCAN(struct options),
	WALKING_NO_DEMANGLE(struct options),
	WALKING_NO_LINES_HIDDEN(struct options),
	LIMIT_OPTION,
	WALKING_STORE(struct options),
	OPTION_QUIET,
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.column = 24,
	OPTION_ROWS(option_rows),
};

int cmd_explain(int argc, char **argv)
{
	struct options o = { .sample = { .number = 1 }, .walking = { .frames_limit = 1 << 16 } };
	int rc = option_read(&option_table, argc, argv, &o), err;

	if (rc)
		return rc < 0 ? CMD_USAGE : CMD_DONE;
	if (optind + !o.walking.pid != argc) {
		log_error("explain: takes one input; see offwind explain --help");
		return CMD_USAGE;
	}
	if (o.sample.wanted && o.sample.stop) {
		log_error("explain: use --sample or --stop, not both");
		return CMD_USAGE;
	}
	o.walking.pipeline.on_walked = on_walked;
	o.walking.pipeline.explain = is_wanted;
	o.walking.pipeline.ctx = &o.sample;
	if (supervisor_start(&(struct supervision){ .inputs = argv + optind,
						    .n_inputs = (size_t)(argc - optind),
						    .output = "-",
						    .db = o.walking.db,
						    .no_store = o.walking.no_cache }) ||
	    walking_open_process(&o.walking))
		return CMD_FAILED;
	walking_open_store(&o.walking);
	supervisor_confine();
	err = explain(&o.sample, &o.walking, o.walking.pid ? NULL : argv[optind]);
	store_close(o.walking.pipeline.store);
	return err ? CMD_FAILED : CMD_DONE;
}

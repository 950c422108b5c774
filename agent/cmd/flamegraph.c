/*
 * agent/cmd/flamegraph.c: the flamegraph command: writes profiles as a flame graph for browsers.
 */
#include "agent/cli/limit.h"
#include "agent/cli/option.h"
#include "agent/cli/selection.h"
#include "agent/cli/supervisor.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/given.h"

#include "agent/export/output.h"
#include "agent/export/profile/flame.h"
#include "agent/export/profile/stacks.h"
#include "agent/log.h"
#include "agent/store/store.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BASES_MAX = 64 };

struct options {
	const char *output, *type, *by, *title;
	const char *bases[BASES_MAX];
	size_t n_bases;
	char **paths;
	size_t n_paths;
	struct pick pick; /* which samples of recordings */
	bool hide_interpreters;
};

static const char help_before[] =
	"usage: offwind flamegraph [OPTION]… [PROFILE…]\n"
	"Makes a page for browsers that shows the flame graph of pprof profiles, compressed or\n"
	"not (- is standard input): each function is as wide as its share, and its callees are\n"
	"next to it.  The page is one file and loads nothing from the network.  It can be\n"
	"searched, enlarged, filtered and used by keyboard, and has a table of the functions and\n"
	"a graph of their callers.  Several profiles are shown as one.  Recordings (perf.data,\n"
	".owc) are unwound first.  Without PROFILE, the command reads the first of offwind.pb.gz,\n"
	"offwind.owc and perf.data that exists in this directory.\n"
	"\n";

static const char help_after[] =
	"\n"
	"A frame that was found by a guess has a dashed edge and the mark ≈; a stack that does\n"
	"not reach its root begins with a hatched frame that says why.\n"
	"Exit code: 0 success, 1 failure, 2 wrong command line, 3 a recording or a history was\n"
	"damaged, and the page has the rest.\n";

/* Add a profile to compare with. to is the struct options. */
static int take_base(void *to, const char *option, char *text)
{
	struct options *o = to;

	if (o->n_bases == BASES_MAX) {
		log_error("%s: more than %d profiles", option, BASES_MAX);
		return -EINVAL;
	}
	o->bases[o->n_bases++] = text;
	return 0;
}

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--output", 'o', "FILE", "write to FILE (default offwind.html; - is standard output)",
	  .set = option_text, AT(output) },
	{ "--diff", 0, "BASE",
	  "compare with this profile; if the option is given several times, with\n"
	  "the sum of these profiles",
	  .set = take_base },
	{ "--sample-type", 0, "TYPE", OPTION_BESIDE, .set = option_text, AT(type) },
	{ "--type", 0, "TYPE",
	  "show this sample type first: samples, cpu, … (default: the one that\n"
	  "the profile names)",
	  .set = option_text, AT(type) },
	{ "--by", 0, "LABEL",
	  "group stacks at the root by this label: thread, pid, container_id, any\n"
	  "other label of the profile, or none (default: comm, the process name,\n"
	  "if the profile has it)",
	  .set = option_text, AT(by) },
	GIVEN_RANGE_ROWS(struct options),
	{ "--time", 0, "BEGIN,END", "use only this slice of a recording, as with offwind unwind",
	  .set = pick_time, AT(pick), .column = 26 },
	{ "--hide-interpreters", 0, NULL,
	  "leave out an interpreter's own functions between those that it runs", .set = option_true,
	  AT(hide_interpreters), .column = 26 },
	{ "--title", 0, "TEXT", "set the page's title (default: the profiles' names)",
	  .set = option_text, AT(title) },
	LIMIT_OPTION,
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 22,
	OPTION_ROWS(option_rows),
};

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/*
 * Return the files' names, such as "a.pb.gz, b.pb.gz and 3 more"; the caller frees them. NULL: out
 * of memory.
 */
static char *names_of(char *const *paths, size_t n)
{
	enum { NAMED = 3 };
	char *text = strdup("");

	for (size_t i = 0; text && i < n && i < NAMED; i++) {
		const char *name =
			strcmp(paths[i], "-") != 0 ? base_name(paths[i]) : "standard input";
		char *longer;

		if (asprintf(&longer, "%s%s%s", text, i ? ", " : "", name) < 0)
			longer = NULL;
		free(text);
		text = longer;
	}
	if (text && n > NAMED) {
		char *longer;

		if (asprintf(&longer, "%s and %zu more", text, n - NAMED) < 0)
			longer = NULL;
		free(text);
		text = longer;
	}
	return text;
}

/* Return true if a sample has a label with this key. */
static bool has_label(const struct stacks *s, const char *key)
{
	for (size_t i = 0; i < s->n_samples; i++)
		if (stacks_label(s, &s->samples[i], key))
			return true;
	return false;
}

/* Report that no sample has the label of --by, and list the labels that samples have. */
static void say_labels(const struct stacks *s, const struct options *o)
{
	char there[512] = "";

	for (size_t i = 0; i < s->n_labels; i++) {
		const char *key = s->labels[i].key;
		bool said = false;

		for (size_t j = 0; !said && j < i; j++)
			said = !strcmp(s->labels[j].key, key);
		if (!said)
			textbuf_add(there, sizeof(there), ", %s", key);
	}
	log_error("%s: no sample has the label '%s'; there are: none%s", o->paths[0], o->by, there);
}

/*
 * Load the profiles and those that they are compared with. Return 0, or a negative code after
 * reporting it.
 */
static int load(struct stacks *s, struct options *o, struct store *store)
{
	int err = 0;

	for (size_t i = 0; !err && i < o->n_paths; i++)
		err = given_load(s, o->paths[i], false, &o->pick, store);
	for (size_t i = 0; !err && i < o->n_bases; i++)
		err = given_load(s, o->bases[i], true, &o->pick, store);
	return err;
}

/*
 * Choose the sample type to show, and the label to group stacks by; *by NULL: no grouping. Return
 * 0, or -ENOENT after reporting what the profile does not have. A missing label is an error only
 * if --by named it.
 */
static int choose(const struct stacks *s, const struct options *o, size_t *type, const char **by)
{
	if (selection_type(s, o->type, o->paths[0], type))
		return -ENOENT;
	*by = o->by && !strcmp(o->by, "none")	     ? NULL
	      : o->by && !strcmp(o->by, "container") ? "container_id" /* as report calls it */
	      : o->by				     ? o->by
						     : "comm";
	if (*by && !has_label(s, *by)) {
		if (o->by) {
			say_labels(s, o);
			return -ENOENT;
		}
		*by = NULL;
	}
	return 0;
}

/* Write the page to the output file. Return 0, or a negative code after reporting it. */
static int write_page(const struct flame *flame, const struct options *o)
{
	char *names = names_of(o->paths, o->n_paths);
	char *bases = names_of((char *const *)(uintptr_t)o->bases, o->n_bases);
	struct output out = { .fd = -1 };
	int err = names && bases ? 0 : -ENOMEM;

	if (err)
		log_error("%s", strerror(-err));
	if (!err)
		err = output_open(&out, o->output);
	if (!err) {
		FILE *file = output_file(&out);
		struct flame_page page = { .title = o->title ? o->title : names };

		if (flame->diff)
			page.against = *bases ? bases : "the base in it";

		err = file ? flame_write(flame, &page, file) : -ENOMEM;
		if (err)
			log_unwritable(o->output, err);
		else
			err = output_commit(&out);
	}
	output_abort(&out);
	free(names);
	free(bases);
	return err;
}

/* Make the page that the options describe. Return 0, or a negative code after reporting it. */
static int flamegraph(struct options *o, struct store *store)
{
	struct stacks *stacks = NULL;
	struct flame *flame = NULL;
	const char *by;
	size_t type;
	int err = stacks_new(&stacks);

	if (err) {
		log_error("%s", strerror(-err));
		return err;
	}
	err = load(stacks, o, store);
	if (!err && o->hide_interpreters)
		err = stacks_hide_interpreters(stacks);
	if (!err)
		err = choose(stacks, o, &type, &by);
	if (!err) {
		err = flame_new(stacks, type, by, &flame);
		if (err == -E2BIG)
			log_error("%s: more than %d frames in the graph", o->paths[0], FLAME_NODES);
		else if (err)
			log_error("%s: %s", o->paths[0], strerror(-err));
	}
	if (!err && flame->n_negative)
		log_warning("%s: %zu samples have negative values and are left out", o->paths[0],
			    flame->n_negative);
	if (!err)
		err = write_page(flame, o);
	flame_free(flame);
	stacks_free(stacks);
	return err;
}

int cmd_flamegraph(int argc, char **argv)
{
	struct options options = { .output = "offwind.html" };
	struct supervision given;
	struct store *store = NULL;
	char *last, *owned = NULL;
	int rc = option_read(&option_table, argc, argv, &options);

	if (rc)
		return rc < 0 ? CMD_USAGE : CMD_DONE;
	if (pick_check_range(&options.pick))
		return CMD_USAGE;
	options.paths = argv + optind;
	options.n_paths = (size_t)(argc - optind);
	if (!options.n_paths) {
		last = given_last("flamegraph", &options.pick, &owned);
		if (!last)
			return CMD_USAGE;
		options.paths = &last;
		options.n_paths = 1;
	}
	given = (struct supervision){ .inputs = options.paths,
				      .n_inputs = options.n_paths,
				      .bases = options.bases,
				      .n_bases = options.n_bases,
				      .output = options.output };
	rc = given_begin(&given, &store);
	if (!rc)
		rc = flamegraph(&options, store);
	rc = given_code(rc);
	store_close(store);
	free(owned);
	return rc;
}

/*
 * agent/cmd/report.c: the report command: prints profiles as tables or as trees of callers, merges
 * them, and writes them in other formats.
 */
#include "agent/clean.h"
#include "agent/cli/input.h"
#include "agent/cli/option.h"
#include "agent/cli/selection.h"
#include "agent/cli/short_name.h"
#include "agent/cli/table.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/given.h"
#include "agent/cmd/report_json.h"
#include "agent/export/export.h"
#include "agent/export/formats.h"
#include "agent/export/output.h"
#include "agent/export/tree.h"
#include "agent/log.h"
#include "agent/textbuf.h"
#include "proto/pprof_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	PROFILE_MAX = 256 << 20, /* most bytes of an unpacked profile */
	FAULTS_MAX = 20,	 /* most faults that --check prints */
	COMMENTS_MAX = 32,	 /* most comments that are printed */
	DEPTH_MAX = 64,		 /* most levels of a tree */
};

enum bars { BARS_AUTO, BARS_ALWAYS, BARS_NEVER };

struct options {
	size_t top; /* rows to print; 0: all */
	enum ranking_by by;
	bool by_total, check, merge;
	bool all_frames, whole_names;
	bool json;
	enum bars bars;
	const char *type; /* NULL: the profile's default */
	const char *callers, *callees, *base, *output;
	double least;	    /* percent; smaller branches of a tree are left out */
	enum format format; /* FORMAT_N: a table */
	struct selection selection;
	struct pick pick; /* which samples of recordings */
};

/* ---- tables --------------------------------------------------------------------- */

/*
 * Count the samples without those of the base, by the value "samples". Return false, with *out 0,
 * if the profile has no such value.
 */
static bool count_samples(const struct stacks *s, int64_t *out)
{
	size_t samples = stacks_find_type(s, "samples");

	*out = 0;
	if (samples >= s->n_types || strcmp(s->types[samples].unit, "count") != 0)
		return false;
	for (size_t i = 0; i < s->n_samples; i++)
		if (!s->samples[i].base)
			*out = stacks_sum(*out, stacks_value(s, i, samples));
	return true;
}

/* Print the lines before the table: the files, the base, the time, the comments and the sums. */
static void print_header(const struct stacks *s, size_t type, const struct ranking *r, char **paths,
			 int n_paths, const struct options *o, FILE *out)
{
	const char *unit = s->types[type].unit;
	char value[TABLE_VALUE];
	int64_t n_samples;
	bool counted = count_samples(s, &n_samples);

	for (int i = 0; i < n_paths; i++) {
		(void)fputs("# ", out);
		table_text(paths[i], 0, false, out);
		(void)fputc('\n', out);
	}
	if (o->base) {
		(void)fputs("# compared with ", out);
		table_text(o->base, 0, false, out);
		table_value(r->base_total, unit, value);
		(void)fprintf(out, ", %s of %s\n", value, s->types[type].type);
	}
	if (s->time_ns >= 1000000000) {
		time_t when = (time_t)(s->time_ns / 1000000000);
		struct tm tm;
		char text[64];

		if (localtime_r(&when, &tm) && strftime(text, sizeof(text), "%F %T %z", &tm))
			(void)fprintf(out, "# begun: %s\n", text);
	}
	for (size_t i = 0; i < s->n_comments && i < COMMENTS_MAX; i++) {
		(void)fputs("# ", out);
		table_text(s->comments[i], 0, false, out);
		(void)fputc('\n', out);
	}
	if (s->n_comments > COMMENTS_MAX)
		(void)fprintf(out, "# … and %zu comments more\n", s->n_comments - COMMENTS_MAX);
	(void)fputs("# ", out);
	if (counted)
		(void)fprintf(out, "%" PRId64 " samples", n_samples);
	if (!counted || type != stacks_find_type(s, "samples")) {
		table_value(r->total, unit, value);
		(void)fprintf(out, "%s%s of ", counted ? ", " : "", value);
		table_text(s->types[type].type, 0, false, out);
	}
	if (s->duration_ns > 0) {
		table_value(s->duration_ns, "nanoseconds", value);
		(void)fprintf(out, " in %s", value);
	}
	(void)fputs("\n#\n", out);
}

/* Return true if shares are also drawn as bars. */
static bool wants_bars(const struct options *o, FILE *out)
{
	return o->bars == BARS_ALWAYS || (o->bars == BARS_AUTO && table_width(out));
}

static enum ranking_order order_of(const struct options *o)
{
	if (o->base)
		return o->by_total ? RANKING_BY_TOTAL_CHANGE : RANKING_BY_CHANGE;
	return o->by_total ? RANKING_BY_TOTAL : RANKING_BY_SELF;
}

/* Print the table or, with --json, the JSON object. Return 0 or a negative code. */
static int print_table(const struct stacks *s, size_t type, char **paths, int n_paths,
		       const struct options *o, FILE *out)
{
	struct table_options table = { .order = order_of(o),
				       .unit = s->types[type].unit,
				       .n = o->top,
				       .width = table_width(out),
				       .bars = wants_bars(o, out),
				       .whole_names = o->whole_names,
				       .compared = o->base };
	struct ranking r = { .by = o->by, .outside = !o->all_frames };
	int err = ranking_add(&r, s, type);

	if (!err) {
		ranking_sort(&r, table.order);
		if (!o->json)
			print_header(s, type, &r, paths, n_paths, o, out);
		if (o->json) {
			struct report_json json = { .paths = paths,
						    .n_paths = n_paths,
						    .base = o->base,
						    .n = o->top,
						    .by_total = o->by_total };

			json.counted = count_samples(s, &json.n_samples);
			report_json_print(s, type, &r, &json, out);
		} else if (r.n_rows) {
			table_print(&r, &table, out);
		} else {
			(void)fputs("# no samples\n", out);
		}
	}
	ranking_fini(&r);
	return err;
}

/* ---- trees ----------------------------------------------------------------------- */

/* tree_make's callback: return true if the function matched the pattern. */
static bool matches(void *ctx, uint32_t function)
{
	const bool *wanted = ctx;

	return wanted[function];
}

/*
 * Print one line of a tree. On a terminal the name is shortened and cut to the width; elsewhere
 * its module follows.
 */
static void print_node(const struct stacks *s, size_t type, const struct tree *t,
		       const struct tree_node *node, const struct options *o, FILE *out)
{
	double percent = ranking_percent(node->value, t->total);
	size_t width = table_width(out), used = 7 + 2 + 12 + 2 + 2 * (size_t)node->depth;
	char value[TABLE_VALUE], name[CLEAN_MAX];

	table_value(node->value, s->types[type].unit, value);
	(void)fprintf(out, "%6.2f%%  %12s  ", percent, value);
	if (wants_bars(o, out)) {
		table_bar(percent, 12, out);
		(void)fputs("  ", out);
		used += 14;
	}
	(void)fprintf(out, "%*s", (int)(2 * node->depth), "");
	if (width && !o->whole_names)
		short_name(s->functions[node->function].name, name, sizeof(name));
	table_text(width && !o->whole_names ? name : s->functions[node->function].name,
		   width > used + 20 ? width - used : 0, false, out);
	if (!width && *s->modules[node->module].name) {
		(void)fputs("  (", out);
		table_text(s->modules[node->module].name, 0, false, out);
		(void)fputc(')', out);
	}
	(void)fputc('\n', out);
}

/*
 * Print the tree in depth-first order. Without recursion: after a node come its first child, its
 * next sibling, or its nearest ancestor's next sibling. Branches below o->least are left out, and
 * so is all after ten times o->top lines.
 */
static void print_nodes(const struct stacks *s, size_t type, const struct tree *t,
			const struct options *o, FILE *out)
{
	size_t n = 0, left_out = 0, small = 0;

	for (uint32_t at = t->first; at != HASH_NONE;) {
		const struct tree_node *node = &t->nodes[at];
		double percent = ranking_percent(node->value, t->total);
		bool shown = (percent < 0 ? -percent : percent) >= o->least;

		small += !shown;
		if (shown && o->top && n >= o->top * 10) {
			left_out++;
			shown = false;
		}
		if (shown) {
			print_node(s, type, t, node, o, out);
			n++;
		}
		if (shown && node->child != HASH_NONE) {
			at = node->child;
			continue;
		}
		while (at != HASH_NONE && t->nodes[at].next == HASH_NONE)
			at = t->nodes[at].parent;
		if (at != HASH_NONE)
			at = t->nodes[at].next;
	}
	if (left_out)
		(void)fprintf(out, "# … and more; -n 0 prints all\n");
	if (small && n)
		(void)fprintf(out,
			      "# … %zu branches below %g %% are left out; --least 0 shows them\n",
			      small, o->least);
	if (small && !n)
		(void)fprintf(out, "# all that matches is below %g %%; --least 0 shows it\n",
			      o->least);
	else if (!n)
		(void)fputs("# no function matches\n", out);
}

/* Print who calls the functions that match, or what they call. Return 0 or a negative code. */
static int print_tree(const struct stacks *s, size_t type, const struct options *o, FILE *out)
{
	const char *pattern = o->callers ? o->callers : o->callees;
	bool *wanted = calloc(s->n_functions + 1, sizeof(*wanted));
	struct tree t = { .first = HASH_NONE };
	char why[128];
	regex_t regex;
	int err;

	err = regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB);
	if (err) { /* parse compiled it already, so only memory can be missing */
		(void)regerror(err, &regex, why, sizeof(why));
		log_error("'%s': %s", pattern, why);
		free(wanted);
		return -EINVAL;
	}
	for (size_t i = 0; wanted && i < s->n_functions; i++)
		wanted[i] = !regexec(&regex, s->functions[i].name, 0, NULL, 0);
	regfree(&regex);
	err = wanted ? tree_make(s, type, o->callers, DEPTH_MAX, matches, wanted, &t) : -ENOMEM;
	if (!err) {
		(void)fprintf(out, "# %s '", o->callers ? "who calls" : "what is called by");
		table_text(pattern, 0, false, out);
		(void)fputs("', as shares of ", out);
		table_text(s->types[type].type, 0, false, out);
		(void)fputs("\n#\n", out);
		print_nodes(s, type, &t, o, out);
	}
	tree_fini(&t);
	free(wanted);
	return err;
}

/* ---- checking -------------------------------------------------------------------- */

struct faults {
	const char *path;
	size_t n;
};

/* pprof_check_file's callback: report a fault, up to FAULTS_MAX of them. */
static void print_fault(void *ctx, const char *text)
{
	struct faults *f = ctx;

	if (f->n++ < FAULTS_MAX)
		log_error("%s: %s", f->path, text);
}

/* Check a profile strictly, and report its faults or what it contains. Return 0 or -EBADMSG. */
static int check_file(const struct pprof_file *file, const char *path)
{
	const Perftools__Profiles__Profile *p = pprof_profile(file);
	struct faults faults = { .path = path };
	char name[CLEAN_MAX];

	(void)pprof_check_file(file, print_fault, &faults);
	if (faults.n > FAULTS_MAX)
		log_error("%s: … and %zu more", path, faults.n - FAULTS_MAX);
	if (faults.n)
		return -EBADMSG;
	(void)clean_text(path, "", '?', name, sizeof(name));
	(void)printf("%s: sound; %zu samples, %zu locations, %zu functions, %zu mappings\n", name,
		     p->n_sample, p->n_location, p->n_function, p->n_mapping);
	return 0;
}

/*
 * Read and check the profile at path, "-" for standard input. Return 0, or a negative code after
 * reporting it.
 */
static int check(const char *path)
{
	int fd = strcmp(path, "-") != 0 ? open(path, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	struct pprof_file *file = NULL;
	char error[PPROF_ERROR_SIZE];
	int err = fd < 0 ? -errno : 0;

	if (err) {
		log_error("%s: %s", path, strerror(-err));
		return err;
	}
	err = pprof_read(fd, PROFILE_MAX, &file, error);
	(void)close(fd);
	if (err)
		log_error("%s: %s", path, error);
	else
		err = check_file(file, path);
	pprof_file_free(file);
	return err;
}

/* ---- command ---------------------------------------------------------------------- */

/*
 * Write the profile in the format of -f. type SIZE_MAX: the profile's default. Return 0, or a
 * negative code after reporting it.
 */
static int write_format(const struct stacks *s, size_t type, const struct options *o)
{
	const char *path = o->output ? o->output : "-";
	struct output out;
	int err;

	err = o->format == FORMAT_PPROF ? output_not_terminal("report", path) : 0;
	if (!err)
		err = output_open(&out, path);
	if (err)
		return err;
	err = output_file(&out) ? format_write(o->format, s, type, out.file) : -ENOMEM;
	if (err) {
		log_unwritable(path, err);
		output_abort(&out);
		return err;
	}
	return output_commit(&out);
}

/* Print the table or the tree. Return 0, or a negative code after reporting it. */
static int print(const struct stacks *s, size_t type, char **paths, int n_paths,
		 const struct options *o, FILE *out)
{
	int err = o->callers || o->callees ? print_tree(s, type, o, out)
					   : print_table(s, type, paths, n_paths, o, out);

	if (err)
		log_error("%s: %s", paths[0], strerror(-err));
	return err;
}

/* Print the table or the tree into the file that -o names. */
static int write_table(const struct stacks *s, size_t type, char **paths, int n_paths,
		       const struct options *o)
{
	struct output out;
	int err = output_open(&out, o->output);

	if (err)
		return err;
	err = output_file(&out) ? print(s, type, paths, n_paths, o, out.file) : -ENOMEM;
	if (!err)
		err = output_commit(&out);
	output_abort(&out);
	return err;
}

/*
 * Write the selected samples as the options say. Return 0, or a negative code after reporting it.
 */
static int show(const struct stacks *s, char **paths, int n_paths, const struct options *o,
		FILE *out)
{
	size_t type;
	int err = selection_type(s, o->type, paths[0], &type);

	if (err)
		return err;
	if (o->format != FORMAT_N)
		return write_format(s, o->type ? type : SIZE_MAX, o);
	return o->output ? write_table(s, type, paths, n_paths, o)
			 : print(s, type, paths, n_paths, o, out);
}

/*
 * Load the profiles, apply the conditions and show the result; with --check only check the files.
 * Return 0, or a negative code after reporting it.
 */
static int report(char **paths, int n_paths, struct options *o, FILE *out)
{
	struct stacks *s = NULL;
	int err = 0;

	if (o->check) {
		for (int i = 0; i < n_paths; i++) {
			int one = check(paths[i]);

			err = err ? err : one;
		}
		return err;
	}
	err = stacks_new(&s);
	for (int i = 0; !err && i < n_paths; i++)
		err = given_load(s, paths[i], false, &o->pick);
	if (!err && o->base)
		err = given_load(s, o->base, true, &o->pick);
	if (!err)
		err = selection_apply(&o->selection, s);
	if (!err && !s->n_samples && (o->selection.n_labels || o->selection.n_regexes)) {
		log_error("%s: no sample matches the conditions", paths[0]);
		err = -ENODATA;
	}
	if (!err)
		err = show(s, paths, n_paths, o, out);
	stacks_free(s);
	return err;
}

int report_print(const char *path, int top, FILE *out)
{
	char *paths[] = { (char *)(uintptr_t)path };

	return report(paths, 1, &(struct options){ .top = (size_t)top, .format = FORMAT_N }, out);
}

/* Return the index of text in words; -EINVAL after reporting which words there are. */
static int one_of(const char *option, const char *text, const char *const *words, size_t n)
{
	char known[256] = "";

	for (size_t i = 0; i < n; i++)
		if (!strcmp(text, words[i]))
			return (int)i;
	for (size_t i = 0; i < n; i++)
		textbuf_add(known, sizeof(known), "%s%s",
			    !i		 ? ""
			    : i + 1 == n ? " or "
					 : ", ",
			    words[i]);
	log_error("%s is %s, not '%s'", option, known, text);
	return -EINVAL;
}

/* Report options that exclude each other. Return 0 or -EINVAL. */
static int check_options(const struct options *o)
{
	const char *why = NULL;

	if (o->callers && o->callees)
		why = "--callers or --callees, not both";
	else if (o->base && (o->callers || o->callees))
		why = "--diff compares tables, not trees";
	else if (o->format != FORMAT_N && (o->callers || o->callees))
		why = "--callers and --callees print; they have no --format";
	else if (o->base && o->format != FORMAT_N && !format_compares(o->format))
		why = "with --diff the format is pprof or folded";
	else if (o->json && (o->callers || o->callees || o->check || o->format != FORMAT_N))
		why = "--json is of the table: not with --callers, --callees, --check or a format";
	if (why)
		log_error("report: %s; see offwind report --help", why);
	return why ? -EINVAL : 0;
}

static int take_top(void *to, const char *option, char *text)
{
	uint64_t number;

	if (input_number(option, text, 0, INT32_MAX, &number))
		return -EINVAL;
	*(size_t *)to = (size_t)number;
	return 0;
}

/* Take the order of the rows, also by pprof's names. */
static int take_sort(void *to, const char *option, char *text)
{
	static const char *const orders[] = { "self", "total" };
	const char *order = !strcmp(text, "cum") ? "total" : !strcmp(text, "flat") ? "self" : text;
	int i = one_of(option, order, orders, 2);

	*(bool *)to = i == 1;
	return i < 0 ? i : 0;
}

/* Take what the rows are, also by the names of labels. */
static int take_by(void *to, const char *option, char *text)
{
	static const char *const bys[] = { "symbol", "module", "source",    "pid",
					   "comm",   "thread", "container", "stop" };
	const char *by = !strcmp(text, "tid")		 ? "thread"
			 : !strcmp(text, "container_id") ? "container"
							 : text;
	int i = one_of(option, by, bys, sizeof(bys) / sizeof(bys[0]));

	if (i < 0)
		return i;
	*(enum ranking_by *)to = (enum ranking_by)i;
	return 0;
}

static int take_regex(void *to, const char *option, char *text)
{
	*(const char **)to = text;
	return selection_try_regex(option, text);
}

static int take_least(void *to, const char *option, char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= 0 && value <= 100)) {
		log_error("%s is a percentage, not '%s'", option, text);
		return -EINVAL;
	}
	*(double *)to = value;
	return 0;
}

static int take_bars(void *to, const char *option, char *text)
{
	static const char *const bars[] = { "auto", "always", "never" };
	int i = one_of(option, text, bars, 3);

	if (i < 0)
		return i;
	*(enum bars *)to = (enum bars)i;
	return 0;
}

static int take_format(void *to, const char *option, char *text)
{
	enum format *format = to;

	(void)option;
	*format = format_find(text);
	return *format == FORMAT_N ? -EINVAL : 0;
}

static int take_merge(void *to, const char *option, char *text)
{
	(void)option;
	(void)text;
	*(enum format *)to = FORMAT_PPROF;
	return 0;
}

static const char help_before[] =
	"usage: offwind report [OPTION]… [FILE…]\n"
	"Prints the functions of a pprof profile (- for standard input) with their own share\n"
	"(self) and with what they call (total), or writes it in another format.  Recordings\n"
	"(perf.data, .owc, cores) are unwound first.  Several files become one; without FILE it\n"
	"is offwind.pb.gz, offwind.owc or perf.data of this folder, the first that is there.\n"
	"\n";

static const char help_after[] =
	"\n"
	"Exit code: 0 done, 1 a file is damaged or cannot be read, 2 usage.\n";

#define AT(field) .at = offsetof(struct options, field)

static const struct option_row option_rows[] = {
	{ "--top", 'n', "N", "how many rows (default 30; 0: all)", .set = take_top, AT(top) },
	{ "--sort", 0, "self|total", "order of the rows (default self)", .set = take_sort,
	  AT(by_total) },
	{ "--by", 0, "WHAT",
	  "rows are symbol (default), module, source, pid, comm, thread,\n"
	  "container, or stop: why stacks ended",
	  .set = take_by, AT(by) },
	{ "--sample-type", 0, "TYPE", OPTION_BESIDE, .set = option_text, AT(type) },
	{ "--type", 0, "TYPE",
	  "which value to count: \"samples\", \"cpu\", \"off_cpu\" (default:\n"
	  "the file's own)",
	  .set = option_text, AT(type) },
	{ "--callers", 0, "REGEX", "who calls the functions that match, as a tree",
	  .set = take_regex, AT(callers) },
	{ "--callees", 0, "REGEX", "what they call", .set = take_regex, AT(callees) },
	{ "--least", 0, "PERCENT", "leave out branches of a tree below this share (default 0.5)",
	  .set = take_least, AT(least) },
	{ "--diff", 0, "BASE", "what changed since the profile BASE, as shares of the whole",
	  .set = option_text, AT(base) },
	{ "--all-frames", 0, NULL,
	  "of waits and allocations: self may be the scheduler's or the\n"
	  "allocator's own functions, not the first outside them",
	  .set = option_true, AT(all_frames) },
	{ "--full-names", 0, NULL, "on a terminal: C++ functions with their parameter lists",
	  .set = option_true, AT(whole_names) },
	{ "--bars", 0, "auto|always|never", "shares as bars (default auto: on a terminal)",
	  .set = take_bars, AT(bars) },
	{ .help = "\nOnly some samples:" },
	{ "--time", 0, "BEGIN,END",
	  "of recordings: a slice, in seconds on the recording's clock,\n"
	  "since its first sample (+1,+2), or 10%-20% of it",
	  .set = pick_time, AT(pick), .column = 28 },
	SELECTION_ROWS(struct options),
	{ .help = "" },
	{ "--format", 'f', "FORMAT",
	  "write pprof, folded, text, tsv, jsonl, speedscope or firefox;\n"
	  "with --diff: pprof (as go tool pprof -diff_base) or folded (two\n"
	  "counts, as difffolded.pl)",
	  .set = take_format, AT(format) },
	{ "--merge", 0, NULL, "the same as --format pprof", .set = take_merge, AT(format) },
	{ "--output", 'o', "FILE",
	  "where to (default: standard output); without -f its ending names\n"
	  "the format: .pb.gz, .folded, .speedscope.json, …; any other is a\n"
	  "table",
	  .set = option_text, AT(output) },
	{ "--json", 0, NULL, "the table, its shares and the header as one JSON object",
	  .set = option_true, AT(json) },
	{ "--check", 0, NULL, "only check the files, strictly", .set = option_true, AT(check) },
	OPTION_HELP,
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

	if (err)
		return err;
	/* The suffix of the output file sets the format, except that .txt and .tsv are tables. */
	if (o->format == FORMAT_N && o->output && !o->callers && !o->callees && !o->json) {
		enum format format = FORMAT_N;

		if (format_of_path(o->output, &format))
			return -EINVAL;
		o->format = format == FORMAT_TEXT || format == FORMAT_TSV ? FORMAT_N : format;
	}
	return check_options(o);
}

int cmd_report(int argc, char **argv)
{
	struct options o = { .top = 30, .least = 0.5, .format = FORMAT_N };
	char *last = NULL;
	int rc = CMD_USAGE, parsed = parse(argc, argv, &o);

	if (parsed > 0) {
		rc = CMD_DONE;
	} else if (!parsed && (optind < argc || (last = given_default("report")))) {
		char **paths = optind < argc ? argv + optind : &last;
		int n_paths = optind < argc ? argc - optind : 1;

		rc = report(paths, n_paths, &o, stdout) ? CMD_FAILED : CMD_DONE;
	}
	selection_fini(&o.selection);
	return rc;
}

/* agent/cmd/report_options.c: reads the command line of offwind report. */
#include "agent/cmd/report_options.h"

#include "agent/cli/input.h"
#include "agent/cli/limit.h"
#include "agent/cli/option.h"
#include "agent/cmd/given.h"
#include "agent/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Report options that exclude each other. Return 0 or -EINVAL. */
static int check_options(const struct report_options *o)
{
	const char *why = NULL;

	if (o->callers && o->callees)
		why = "use --callers or --callees, not both";
	else if (o->base && (o->callers || o->callees))
		why = "--diff compares tables, not trees";
	else if (o->format != FORMAT_N && (o->callers || o->callees))
		why = "--callers and --callees print a tree, which has no --format";
	else if (o->base && o->format != FORMAT_N && !format_compares(o->format))
		why = "with --diff the format is pprof or folded";
	else if (o->json && (o->callers || o->callees || o->check || o->format != FORMAT_N))
		why = "--json prints the table: it cannot be used with --callers, --callees, "
		      "--check or a format";
	if (why)
		log_error("report: %s; see offwind report --help", why);
	return why ? -EINVAL : pick_check_range(&o->pick);
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
	int i = option_word(option, order, orders, 2);

	*(bool *)to = i == 1;
	return i < 0 ? i : 0;
}

/* Take what the rows are, also by the names of labels. */
static int take_by(void *to, const char *option, char *text)
{
	static const char *const bys[] = { "symbol", "module",	  "source", "pid",  "comm",
					   "thread", "container", "stop",   "unit", "service",
					   "exe",    "user",	  "host",   "waker" };
	const char *by = !strcmp(text, "tid")		 ? "thread"
			 : !strcmp(text, "container_id") ? "container"
			 : !strcmp(text, "service.name") ? "service"
							 : text;
	int i = option_word(option, by, bys, sizeof(bys) / sizeof(bys[0]));

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
	int i = option_word(option, text, bars, 3);

	if (i < 0)
		return i;
	*(enum report_bars *)to = (enum report_bars)i;
	return 0;
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
	"Prints the functions of a pprof profile (- is standard input) with their own share\n"
	"(self) and their share with callees (total), or writes the profile in another format.\n"
	"Recordings (perf.data, .owc, core files) are unwound first.  Several files are treated\n"
	"as one profile.  Without FILE, the command reads the first of offwind.pb.gz,\n"
	"offwind.owc and perf.data that exists in this directory.\n"
	"\n";

static const char help_after[] =
	"\n"
	"Exit code: 0 success, 1 no sample matches, or a profile is damaged or cannot be read,\n"
	"2 wrong command line, 3 a recording or a history is damaged, and the rest was used.\n";

#define AT(field) .at = offsetof(struct report_options, field)

static const struct option_row option_rows[] = {
	{ "--top", 'n', "N", "print N rows (default 30; 0: all)", .set = take_top, AT(top) },
	{ "--sort", 0, "self|total", "sort the rows by this column (default self)",
	  .set = take_sort, AT(by_total) },
	{ "--by", 0, "WHAT",
	  "choose what a row is: symbol (default), module, source, pid, comm,\n"
	  "thread, container, unit, service, exe, user, host, waker (who ended\n"
	  "waits), or stop (why stacks ended)",
	  .set = take_by, AT(by) },
	{ "--sample-type", 0, "TYPE", OPTION_BESIDE, .set = option_text, AT(type) },
	{ "--type", 0, "TYPE",
	  "count this value: samples, cpu, off_cpu, … (default: the one that the\n"
	  "profile names)",
	  .set = option_text, AT(type) },
	{ "--callers", 0, "REGEX", "show the callers of the functions that match, as a tree",
	  .set = take_regex, AT(callers) },
	{ "--callees", 0, "REGEX", "show the callees of the functions that match, as a tree",
	  .set = take_regex, AT(callees) },
	{ "--least", 0, "PERCENT", "leave out branches of a tree below this share (default 0.5)",
	  .set = take_least, AT(least) },
	{ "--diff", 0, "BASE", "show what changed since the profile BASE, as shares of each total",
	  .set = option_text, AT(base) },
	{ "--all-frames", 0, NULL,
	  "for waits and allocations: count the innermost function as self, even\n"
	  "if it belongs to the scheduler or the allocator",
	  .set = option_true, AT(all_frames) },
	{ "--full-names", 0, NULL,
	  "print C++ functions with their parameter lists on a terminal, too", .set = option_true,
	  AT(whole_names) },
	{ "--bars", 0, "auto|always|never", "show shares as bars (default auto: on a terminal)",
	  .set = take_bars, AT(bars) },
	{ .help = "\nSelect samples:" },
	GIVEN_RANGE_ROWS(struct report_options),
	{ "--time", 0, "BEGIN,END",
	  "use only this slice of a recording: seconds on its clock,\n"
	  "seconds since its first sample (+1,+2), or 10%-20% of it",
	  .set = pick_time, AT(pick), .column = 28 },
	SELECTION_ROWS(struct report_options),
	{ .help = "" },
	{ "--format", 'f', "FORMAT",
	  "write " FORMAT_NAMES ";\n"
	  "with --diff: pprof (as go tool pprof -diff_base) or folded (two\n"
	  "counts, as difffolded.pl)",
	  .set = format_take, AT(format) },
	{ "--merge", 0, NULL, "write one pprof profile, as --format pprof does", .set = take_merge,
	  AT(format) },
	{ "--output", 'o', "FILE",
	  "write to FILE (default: standard output); without -f the suffix\n"
	  "chooses the format: .pb.gz, .folded, .speedscope.json, …; any other\n"
	  "suffix means the table",
	  .set = option_text, AT(output) },
	{ "--json", 0, NULL, "print the table and its header as one JSON object",
	  .set = option_true, AT(json) },
	{ "--check", 0, NULL, "only check the files, strictly", .set = option_true, AT(check) },
	LIMIT_OPTION,
	OPTION_HELP,
};

static const struct option_table option_table = {
	.usage = help_before,
	.end = help_after,
	.column = 24,
	OPTION_ROWS(option_rows),
};

int report_options_parse(int argc, char **argv, struct report_options *o)
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

/*
 * agent/cmd/report.c: the report command: prints profiles as tables or as trees of callers, merges
 * them, and writes them in other formats.
 */
#include "agent/cli/columns.h"
#include "agent/cli/short_name.h"
#include "agent/cli/supervisor.h"
#include "agent/cmd/cmd.h"
#include "agent/cmd/given.h"
#include "agent/cmd/report_options.h"
#include "agent/export/export.h"
#include "agent/export/output.h"
#include "agent/export/profile/ranking_json.h"
#include "agent/export/profile/tree.h"
#include "agent/limits.h"
#include "agent/log.h"
#include "agent/role/files.h"
#include "agent/sanitize.h"
#include "agent/store/store.h"
#include "proto/pprof_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
	FAULTS_MAX = 20,   /* most faults that --check prints */
	COMMENTS_MAX = 32, /* most comments that are printed */
	DEPTH_MAX = 64,	   /* most levels of a tree */
};

/* ---- tables --------------------------------------------------------------------- */

/* Print the lines before the table: the files, the base, the time, the comments and the sums. */
static void print_header(const struct stacks *s, size_t type, const struct ranking *r, char **paths,
			 int n_paths, const struct report_options *o, FILE *out)
{
	const char *unit = s->types[type].unit;
	char value[TABLE_VALUE];
	size_t counter = stacks_counter_of(s, type);

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
	if (counter < s->n_types)
		(void)fprintf(out, "%" PRId64 " samples", stacks_total(s, counter));
	if (type != counter) {
		table_value(r->total, unit, value);
		(void)fprintf(out, "%s%s of ", counter < s->n_types ? ", " : "", value);
		table_text(s->types[type].type, 0, false, out);
	}
	if (s->duration_ns > 0) {
		table_value(s->duration_ns, "nanoseconds", value);
		(void)fprintf(out, " in %s", value);
	}
	(void)fputs("\n#\n", out);
}

/* Return true if shares are also drawn as bars. */
static bool wants_bars(const struct report_options *o, FILE *out)
{
	return o->bars == REPORT_BARS_ALWAYS || (o->bars == REPORT_BARS_AUTO && table_width(out));
}

static enum ranking_order order_of(const struct report_options *o)
{
	if (o->base)
		return o->by_total ? RANKING_BY_TOTAL_CHANGE : RANKING_BY_CHANGE;
	return o->by_total ? RANKING_BY_TOTAL : RANKING_BY_SELF;
}

/* Print the table or, with --json, the JSON object. Return 0 or a negative code. */
static int print_table(const struct stacks *s, size_t type, char **paths, int n_paths,
		       const struct report_options *o, FILE *out)
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
			struct ranking_json json = { .paths = paths,
						     .n_paths = n_paths,
						     .base = o->base,
						     .n = o->top,
						     .sort = o->by_total ? "total" : "self" };

			ranking_json_print(s, type, &r, &json, out);
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
		       const struct tree_node *node, const struct report_options *o, FILE *out)
{
	double percent = ranking_percent(node->value, t->total);
	size_t width = table_width(out), used = 7 + 2 + 12 + 2 + 2 * (size_t)node->depth;
	char value[TABLE_VALUE], name[SANITIZED_MAX];

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
			const struct report_options *o, FILE *out)
{
	size_t n = 0, left_out = 0, small = 0;

	for (uint32_t at = t->first; at != UW_HASH_NONE;) {
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
		if (shown && node->child != UW_HASH_NONE) {
			at = node->child;
			continue;
		}
		while (at != UW_HASH_NONE && t->nodes[at].next == UW_HASH_NONE)
			at = t->nodes[at].parent;
		if (at != UW_HASH_NONE)
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
static int print_tree(const struct stacks *s, size_t type, const struct report_options *o,
		      FILE *out)
{
	const char *pattern = o->callers ? o->callers : o->callees;
	bool *wanted = calloc(s->n_functions + 1, sizeof(*wanted));
	struct tree t = { .first = UW_HASH_NONE };
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
	char name[SANITIZED_MAX];

	(void)pprof_check_file(file, print_fault, &faults);
	if (faults.n > FAULTS_MAX)
		log_error("%s: … and %zu more", path, faults.n - FAULTS_MAX);
	if (faults.n)
		return -EBADMSG;
	(void)sanitize_text(path, "", '?', name, sizeof(name));
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
	struct pprof_file *file = NULL;
	char error[PPROF_ERROR_SIZE];
	int fd, err = files_open(path, &fd);

	if (err) {
		log_error("%s: %s", path, strerror(-err));
		return err;
	}
	err = pprof_read(fd, (size_t)limits.profile_bytes, &file, error);
	if (err == -EFBIG)
		limits_reach(profile_bytes, 1);
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
static int write_format(const struct stacks *s, size_t type, const struct report_options *o)
{
	const char *path = o->output ? o->output : "-";
	struct output out;
	int err;

	err = format_is_binary(o->format) ? output_not_terminal("report", path) : 0;
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
		 const struct report_options *o, FILE *out)
{
	int err = o->callers || o->callees ? print_tree(s, type, o, out)
					   : print_table(s, type, paths, n_paths, o, out);

	if (err)
		log_error("%s: %s", paths[0], strerror(-err));
	return err;
}

/* Print the table or the tree into the file that -o names. */
static int write_table(const struct stacks *s, size_t type, char **paths, int n_paths,
		       const struct report_options *o)
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
static int show(const struct stacks *s, char **paths, int n_paths, const struct report_options *o,
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
 * Show profiles of which some are differences already (report --diff -f pprof), like those that are compared here. Return 0,
 * or a negative code after reporting it.
 */
static int show_difference(const struct stacks *s, char **paths, int n_paths,
			   const struct report_options *o, FILE *out)
{
	struct report_options compared = *o;
	char *base = NULL;
	int err;

	if (o->callers || o->callees || (o->format != FORMAT_N && !format_compares(o->format))) {
		log_error("%s: a difference of two profiles, of which there are only tables, pprof "
			  "and folded stacks",
			  paths[0]);
		return -EINVAL;
	}
	if (asprintf(&base, "the base in %s", paths[0]) < 0)
		return -ENOMEM;
	compared.base = base;
	err = show(s, paths, n_paths, &compared, out);
	free(base);
	return err;
}

/*
 * Load the profiles, apply the conditions and show the result; with --check only check the files.
 * Return 0, or a negative code after reporting it.
 */
static int report(char **paths, int n_paths, struct report_options *o, struct store *store,
		  FILE *out)
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
	if (err)
		log_error("%s: %s", paths[0], strerror(-err));
	for (int i = 0; !err && i < n_paths; i++)
		err = given_load(s, paths[i], false, &o->pick, store);
	if (!err && o->base)
		err = given_load(s, o->base, true, &o->pick, store);
	if (!err)
		err = selection_apply(&o->selection, s);
	if (!err && !s->n_samples && (o->selection.n_labels || o->selection.n_regexes)) {
		log_error("%s: no sample matches the conditions", paths[0]);
		err = -ENODATA;
	}
	if (!err)
		err = s->compared && !o->base ? show_difference(s, paths, n_paths, o, out)
					      : show(s, paths, n_paths, o, out);
	stacks_free(s);
	return err;
}

int report_print(const char *path, int top, FILE *out)
{
	char *paths[] = { (char *)(uintptr_t)path };

	return report(paths, 1, &(struct report_options){ .top = (size_t)top, .format = FORMAT_N },
		      NULL, out);
}

int cmd_report(int argc, char **argv)
{
	struct report_options o = { .top = 30, .least = 0.5, .format = FORMAT_N };
	char *last = NULL, *owned = NULL;
	int rc = CMD_USAGE, parsed = report_options_parse(argc, argv, &o);

	if (parsed > 0) {
		rc = CMD_DONE;
	} else if (!parsed && (optind < argc || (last = given_last("report", &o.pick, &owned)))) {
		char **paths = optind < argc ? argv + optind : &last;
		int n_paths = optind < argc ? argc - optind : 1;

		struct supervision given = { .inputs = paths,
					     .n_inputs = (size_t)n_paths,
					     .bases = &o.base,
					     .n_bases = o.base != NULL,
					     .output = o.output ? o.output : "-" };
		struct store *store = NULL;
		int err = given_begin(&given, &store);

		if (!err)
			err = report(paths, n_paths, &o, store, stdout);
		store_close(store);
		rc = given_code(err);
	}
	selection_fini(&o.selection);
	free(owned);
	return rc;
}

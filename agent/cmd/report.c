/* agent/cmd/report.c: a pprof file as a table of functions. */
#include "agent/cmd/cmd.h"
#include "agent/cmd/input.h"
#include "agent/export/clean.h"
#include "agent/export/export.h"
#include "agent/hash.h"
#include "agent/log.h"
#include "proto/pprof_read.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
	PROFILE_MAX = 256 << 20, /* bytes of a profile without gzip */
	FAULTS_MAX = 20,	 /* printed by --check */
	COMMENTS_MAX = 32,	 /* printed */
	MODULE_WIDTH = 24,
};

struct row { /* one function of one module */
	const char *function, *module;
	int64_t self, total;
	size_t last; /* number of the sample it was counted in last, from 1 */
};

struct report {
	const struct pprof_file *file;
	size_t type; /* which value of the samples */
	const char *type_name, *unit;
	struct row *rows;
	size_t n_rows, room_rows;
	struct hash_index by_name;
	struct strings texts; /* made here: names of what has none */
	size_t *first;	      /* by location: its rows in row_of, innermost first */
	uint32_t *row_of;
	int64_t total, n_samples; /* n_samples: by the count type, -1: there is none */
};

struct options {
	int top; /* 0: all */
	bool by_total, check;
	const char *type; /* NULL: the file's default */
};

/* Sums of a stranger's numbers must not overflow. */
static int64_t add(int64_t a, int64_t b)
{
	int64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return a < 0 ? INT64_MIN : INT64_MAX;
	return sum;
}

/* ---- counting -------------------------------------------------------------- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

struct key {
	const struct report *r;
	const char *function, *module;
};

static bool same_row(const void *ctx, uint32_t id)
{
	const struct key *key = ctx;
	const struct row *row = &key->r->rows[id];

	return !strcmp(row->function, key->function) && !strcmp(row->module, key->module);
}

/* HASH_NONE only when out of memory. */
static uint32_t row_id(struct report *r, const char *function, const char *module)
{
	struct key key = { r, function, module };
	uint64_t hash =
		hash_bytes(hash_bytes(0, function, strlen(function)), module, strlen(module));
	uint32_t id = hash_find(&r->by_name, hash, same_row, &key);

	if (id != HASH_NONE)
		return id;
	if (r->n_rows == r->room_rows) {
		size_t room = r->room_rows ? r->room_rows * 2 : 1024;
		struct row *bigger = reallocarray(r->rows, room, sizeof(*bigger));

		if (!bigger)
			return HASH_NONE;
		r->rows = bigger;
		r->room_rows = room;
	}
	if (hash_add(&r->by_name, hash, (uint32_t)r->n_rows))
		return HASH_NONE;
	r->rows[r->n_rows] = (struct row){ .function = function, .module = module };
	return (uint32_t)r->n_rows++;
}

/* What is without a function counts for its module, as other readers do. */
static const char *nameless(struct report *r, const char *module)
{
	char text[CLEAN_MAX];

	export_place(&(struct name){ .module = module }, text, sizeof(text));
	return strings_keep(&r->texts, text, strlen(text));
}

static int place_locations(struct report *r)
{
	const Perftools__Profiles__Profile *p = pprof_profile(r->file);
	size_t n = 0;

	for (size_t i = 0; i < p->n_location; i++)
		n += p->location[i]->n_line ? p->location[i]->n_line : 1;
	r->first = calloc(p->n_location + 1, sizeof(*r->first));
	r->row_of = calloc(n + 1, sizeof(*r->row_of));
	if (!r->first || !r->row_of)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < p->n_location; i++) {
		const Perftools__Profiles__Location *l = p->location[i];
		const Perftools__Profiles__Mapping *m = pprof_find_mapping(r->file, l->mapping_id);
		const char *module = m ? base_name(pprof_text(r->file, m->filename)) : "";

		r->first[i] = n;
		for (size_t j = 0; j < (l->n_line ? l->n_line : 1); j++) {
			const char *name = "";
			uint32_t row;

			if (l->n_line)
				name = pprof_text(r->file, pprof_find_function(
								   r->file, l->line[j]->function_id)
								   ->name);
			if (!*name)
				name = nameless(r, module);
			row = name ? row_id(r, name, module) : HASH_NONE;
			if (row == HASH_NONE)
				return -ENOMEM;
			r->row_of[n++] = row;
		}
	}
	r->first[p->n_location] = n;
	return 0;
}

static void count_sample(struct report *r, const Perftools__Profiles__Sample *s, size_t number)
{
	int64_t value = s->value[r->type];
	bool leaf = true;

	r->total = add(r->total, value);
	for (size_t i = 0; i < s->n_location_id; i++) {
		/* pprof_read has seen that it exists. */
		size_t place = pprof_place_of_location(r->file, s->location_id[i]);

		for (size_t j = r->first[place]; j < r->first[place + 1]; j++) {
			struct row *row = &r->rows[r->row_of[j]];

			if (leaf)
				row->self = add(row->self, value);
			leaf = false;
			/* Recursion counts once. */
			if (row->last != number)
				row->total = add(row->total, value);
			row->last = number;
		}
	}
}

static int count(struct report *r)
{
	const Perftools__Profiles__Profile *p = pprof_profile(r->file);
	size_t samples = p->n_sample_type;
	int err = place_locations(r);

	if (err)
		return err;
	for (size_t i = p->n_sample_type; i-- > 0;)
		if (!strcmp(pprof_text(r->file, p->sample_type[i]->unit), "count") &&
		    !strcmp(pprof_text(r->file, p->sample_type[i]->type), "samples"))
			samples = i;
	r->n_samples = samples < p->n_sample_type ? 0 : -1;
	for (size_t i = 0; i < p->n_sample; i++) {
		count_sample(r, p->sample[i], i + 1);
		if (r->n_samples >= 0)
			r->n_samples = add(r->n_samples, p->sample[i]->value[samples]);
	}
	return 0;
}

/* The value to show: as asked for, else the file's default, else the last, as go tool pprof. */
static int choose_type(struct report *r, const char *wanted)
{
	const Perftools__Profiles__Profile *p = pprof_profile(r->file);
	const char *want = wanted ? wanted : pprof_text(r->file, p->default_sample_type);

	if (!p->n_sample_type)
		return -ENOENT;
	r->type = p->n_sample_type;
	for (size_t i = p->n_sample_type; i-- > 0;)
		if (!strcmp(pprof_text(r->file, p->sample_type[i]->type), want))
			r->type = i;
	if (r->type == p->n_sample_type && wanted)
		return -ENOENT;
	if (r->type == p->n_sample_type)
		r->type--;
	r->type_name = pprof_text(r->file, p->sample_type[r->type]->type);
	r->unit = pprof_text(r->file, p->sample_type[r->type]->unit);
	return 0;
}

/* ---- printing -------------------------------------------------------------- */

static void format_value(int64_t value, const char *unit, char *out, size_t size)
{
	static const struct {
		double from, one;
		const char *name;
	} times[] = { { 1e9, 1e9, "s" }, { 1e6, 1e6, "ms" }, { 1e3, 1e3, "us" } };
	static const char *const bytes[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	double v = (double)value, size_of = v < 0 ? -v : v;

	if (!strcmp(unit, "nanoseconds")) {
		for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
			if (size_of < times[i].from)
				continue;
			(void)snprintf(out, size, "%.2f %s", v / times[i].one, times[i].name);
			return;
		}
		(void)snprintf(out, size, "%" PRId64 " ns", value);
	} else if (!strcmp(unit, "bytes")) {
		size_t i = 0;

		for (; size_of >= 1024 && i + 1 < sizeof(bytes) / sizeof(bytes[0]); i++) {
			v /= 1024;
			size_of /= 1024;
		}
		(void)snprintf(out, size, i ? "%.2f %s" : "%.0f %s", v, bytes[i]);
	} else {
		(void)snprintf(out, size, "%" PRId64, value);
	}
}

/* Columns that text takes on a terminal, counting each character as one. */
static size_t columns_of(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

/* Prints text in at most width columns (0: any), a cut one with an ellipsis; pads it if asked to. */
static void print_text(const char *text, size_t width, bool pad, FILE *out)
{
	char clean[CLEAN_MAX];
	size_t n;

	(void)clean_text(text, "", '?', clean, sizeof(clean));
	n = columns_of(clean);
	if (width && n > width) {
		char *at = clean;

		for (size_t i = 0; i + 1 < width; i++)
			do
				at++;
			while (((unsigned char)*at & 0xc0) == 0x80);
		*at = '\0';
		(void)fprintf(out, "%s…", clean);
		return;
	}
	(void)fprintf(out, "%s%*s", clean, pad ? (int)(width - n) : 0, "");
}

static size_t terminal_width(FILE *out)
{
	struct winsize size;
	int fd = fileno(out);

	if (fd < 0 || !isatty(fd) || ioctl(fd, TIOCGWINSZ, &size) || !size.ws_col)
		return 0;
	return size.ws_col;
}

static void print_header(const struct report *r, const char *path, FILE *out)
{
	const Perftools__Profiles__Profile *p = pprof_profile(r->file);
	char value[64];

	(void)fputs("# ", out);
	print_text(path, 0, false, out);
	(void)fputc('\n', out);
	for (size_t i = 0; i < p->n_comment && i < COMMENTS_MAX; i++) {
		(void)fputs("# ", out);
		print_text(pprof_text(r->file, p->comment[i]), 0, false, out);
		(void)fputc('\n', out);
	}
	if (p->n_comment > COMMENTS_MAX)
		(void)fprintf(out, "# … and %zu comments more\n", p->n_comment - COMMENTS_MAX);
	(void)fputs("# ", out);
	if (r->n_samples >= 0)
		(void)fprintf(out, "%" PRId64 " samples", r->n_samples);
	if (r->n_samples < 0 || strcmp(r->type_name, "samples") != 0) {
		format_value(r->total, r->unit, value, sizeof(value));
		(void)fprintf(out, "%s%s of ", r->n_samples < 0 ? "" : ", ", value);
		print_text(r->type_name, 0, false, out);
	}
	if (p->duration_nanos > 0) {
		format_value(p->duration_nanos, "nanoseconds", value, sizeof(value));
		(void)fprintf(out, " in %s", value);
	}
	(void)fputs("\n#\n", out);
}

static int compare(int64_t a, int64_t b)
{
	return (a < b) - (a > b);
}

static int by_names(const struct row *x, const struct row *y)
{
	int order = strcmp(x->function, y->function);

	return order ? order : strcmp(x->module, y->module);
}

static int by_self(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int order = compare(x->self, y->self);

	order = order ? order : compare(x->total, y->total);
	return order ? order : by_names(x, y);
}

static int by_total(const void *a, const void *b)
{
	const struct row *x = a, *y = b;
	int order = compare(x->total, y->total);

	order = order ? order : compare(x->self, y->self);
	return order ? order : by_names(x, y);
}

static double percent(int64_t part, int64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_rows(struct report *r, const struct options *options, FILE *out)
{
	size_t width = terminal_width(out), module_width = 0, n = r->n_rows, fixed;

	if (r->n_rows)
		qsort(r->rows, r->n_rows, sizeof(*r->rows), options->by_total ? by_total : by_self);
	if (options->top && (size_t)options->top < n)
		n = (size_t)options->top;
	for (size_t i = 0; i < n; i++) {
		size_t columns = columns_of(r->rows[i].module);

		if (columns > module_width)
			module_width = columns;
	}
	module_width = module_width > MODULE_WIDTH ? MODULE_WIDTH
		       : module_width < 6	   ? 6
						   : module_width;
	/* "100.00%  1234567.89 ms  100.00%  1234567.89 ms  module  function" */
	fixed = 2 * (7 + 2 + 12 + 2) + module_width + 2;
	(void)fprintf(out, "%7s  %12s  %7s  %12s  %-*s  %s\n", "SELF", "", "TOTAL", "",
		      (int)module_width, "MODULE", "FUNCTION");
	for (size_t i = 0; i < n; i++) {
		const struct row *row = &r->rows[i];
		char self[64], total[64];

		format_value(row->self, r->unit, self, sizeof(self));
		format_value(row->total, r->unit, total, sizeof(total));
		(void)fprintf(out, "%6.2f%%  %12s  %6.2f%%  %12s  ", percent(row->self, r->total),
			      self, percent(row->total, r->total), total);
		print_text(row->module, module_width, true, out);
		(void)fputs("  ", out);
		print_text(row->function, width > fixed + 10 ? width - fixed : 0, false, out);
		(void)fputc('\n', out);
	}
	if (n < r->n_rows)
		(void)fprintf(out, "# … and %zu functions more\n", r->n_rows - n);
}

static int print_report(const struct pprof_file *file, const char *path,
			const struct options *options, FILE *out)
{
	struct report r = { .file = file };
	int err = choose_type(&r, options->type);

	if (err && options->type)
		log_error("%s: no sample type '%s'", path, options->type);
	else if (err)
		log_error("%s: no sample types, so nothing to count", path);
	if (err)
		return err;
	err = count(&r);
	if (err)
		log_error("%s: %s", path, strerror(-err));
	if (!err) {
		print_header(&r, path, out);
		print_rows(&r, options, out);
	}
	free(r.rows);
	free(r.first);
	free(r.row_of);
	hash_fini(&r.by_name);
	strings_fini(&r.texts);
	return err;
}

/* ---- checking -------------------------------------------------------------- */

struct faults {
	const char *path;
	size_t n;
};

static void print_fault(void *ctx, const char *text)
{
	struct faults *f = ctx;

	if (f->n++ < FAULTS_MAX)
		log_error("%s: %s", f->path, text);
}

static int check(const struct pprof_file *file, const char *path)
{
	const Perftools__Profiles__Profile *p = pprof_profile(file);
	struct faults faults = { .path = path };

	(void)pprof_check(p, true, print_fault, &faults);
	if (faults.n > FAULTS_MAX)
		log_error("%s: … and %zu more", path, faults.n - FAULTS_MAX);
	if (faults.n)
		return -EBADMSG;
	(void)printf("%s: sound; %zu samples, %zu locations, %zu functions, %zu mappings\n", path,
		     p->n_sample, p->n_location, p->n_function, p->n_mapping);
	return 0;
}

/* ---- command --------------------------------------------------------------- */

static int report(const char *path, const struct options *options, FILE *out)
{
	struct pprof_file *file = NULL;
	char error[PPROF_ERROR_SIZE];
	int fd, err;

	fd = strcmp(path, "-") != 0 ? open(path, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
	if (fd < 0) {
		err = -errno;
		log_error("%s: %s", path, strerror(-err));
		return err;
	}
	err = pprof_read(fd, PROFILE_MAX, &file, error);
	(void)close(fd);
	if (err)
		log_error("%s: %s", path, error);
	else if (options->check)
		err = check(file, path);
	else
		err = print_report(file, path, options, out);
	pprof_file_free(file);
	return err;
}

int report_print(const char *path, int top, FILE *out)
{
	return report(path, &(struct options){ .top = top }, out);
}

int cmd_report(int argc, char **argv)
{
	static const char help[] =
		"usage: offwind report [OPTION]… FILE\n"
		"Prints the functions of a pprof profile (- for standard input) with their own "
		"share\n"
		"(self) and with what they call (total).\n"
		"\n"
		"  -n, --top N           how many functions (default 30; 0: all)\n"
		"      --sort self|total order of the functions (default self)\n"
		"      --type TYPE       which sample type to count, \"samples\", \"cpu\" "
		"(default: the\n"
		"                        file's own)\n"
		"      --check           only check the file, strictly\n"
		"  -h, --help            this text\n"
		"\n"
		"Exit code: 0 done, 1 the file is damaged or cannot be read, 2 usage.\n";
	enum { SORT = 256, TYPE, CHECK };
	static const struct option long_options[] = {
		{ "top", required_argument, NULL, 'n' },
		{ "sort", required_argument, NULL, SORT },
		{ "type", required_argument, NULL, TYPE },
		{ "check", no_argument, NULL, CHECK },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct options options = { .top = 30 };
	uint64_t number;
	int c;

	while ((c = getopt_long(argc, argv, "n:h", long_options, NULL)) != -1) {
		switch (c) {
		case 'n':
			if (input_number("--top", optarg, 0, INT32_MAX, &number))
				return CMD_USAGE;
			options.top = (int)number;
			break;
		case SORT:
			if (strcmp(optarg, "self") != 0 && strcmp(optarg, "total") != 0) {
				log_error("--sort is self or total, not '%s'", optarg);
				return CMD_USAGE;
			}
			options.by_total = !strcmp(optarg, "total");
			break;
		case TYPE:
			options.type = optarg;
			break;
		case CHECK:
			options.check = true;
			break;
		case 'h':
			(void)fputs(help, stdout);
			return CMD_DONE;
		default:
			return CMD_USAGE;
		}
	}
	if (optind != argc - 1) {
		log_error("report: one profile is needed; see offwind report --help");
		return CMD_USAGE;
	}
	return report(argv[optind], &options, stdout) ? CMD_FAILED : CMD_DONE;
}

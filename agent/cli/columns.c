/* agent/cli/columns.c: columns, units and bars of tables. */
#include "agent/cli/columns.h"

#include "agent/cli/short_name.h"
#include "agent/sanitize.h"
#include "base/text.h"

#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* columns; a table of less than NARROW leaves out values and shortens WHERE */
enum { WHERE_WIDTH = 24, NARROW = 100, WHERE_NARROW = 16, NAME_LEAST = 16, BAR_WIDTH = 12 };
enum { NAME_BARS = 40 }; /* bars are left out if names would have fewer columns than this */

/* Times are shown in the largest unit that gives at least 1; bytes in powers of 1024. */
void table_value(int64_t value, const char *unit, char out[TABLE_VALUE])
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
			(void)snprintf(out, TABLE_VALUE, "%.2f %s", v / times[i].one,
				       times[i].name);
			return;
		}
		(void)snprintf(out, TABLE_VALUE, "%" PRId64 " ns", value);
	} else if (!strcmp(unit, "bytes")) {
		size_t i = 0;

		for (; size_of >= 1024 && i + 1 < sizeof(bytes) / sizeof(bytes[0]); i++) {
			v /= 1024;
			size_of /= 1024;
		}
		(void)snprintf(out, TABLE_VALUE, i ? "%.2f %s" : "%.0f %s", v, bytes[i]);
	} else {
		(void)snprintf(out, TABLE_VALUE, "%" PRId64, value);
	}
}

/* A UTF-8 character is cut only as a whole: its continuation bytes are 10xxxxxx. */
void table_text(const char *text, size_t width, bool pad, FILE *out)
{
	char sanitized[SANITIZED_MAX];
	size_t n;

	(void)sanitize_text(text, "", '?', sanitized, sizeof(sanitized));
	n = uw_text_columns(sanitized);
	if (width && n > width) {
		char *at = sanitized;

		for (size_t i = 0; i + 1 < width; i++)
			do
				at++;
			while (((unsigned char)*at & 0xc0) == 0x80);
		*at = '\0';
		(void)fprintf(out, "%s…", sanitized);
		return;
	}
	(void)fprintf(out, "%s%*s", sanitized, pad ? (int)(width - n) : 0, "");
}

void table_bar(double percent, size_t width, FILE *out)
{
	static const char *const parts[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
	double share = percent < 0 ? 0 : percent > 100 ? 100 : percent;
	size_t eighths = (size_t)(share / 100 * (double)width * 8 + 0.5), used = eighths / 8;

	for (size_t i = 0; i < used; i++)
		(void)fputs("█", out);
	if (eighths % 8 && used < width) {
		(void)fputs(parts[eighths % 8], out);
		used++;
	}
	(void)fprintf(out, "%*s", (int)(width - used), "");
}

size_t table_width(FILE *out)
{
	struct winsize size;
	int fd = fileno(out);

	if (fd < 0 || !isatty(fd) || ioctl(fd, TIOCGWINSZ, &size) || !size.ws_col)
		return 0;
	return size.ws_col;
}

static const struct {
	const char *name, *where, *many;
} headings[] = {
	[RANKING_SYMBOL] = { "FUNCTION", "MODULE", "functions" },
	[RANKING_MODULE] = { "MODULE", NULL, "modules" },
	[RANKING_SOURCE] = { "SOURCE", NULL, "source files" },
	[RANKING_PID] = { "COMM", "PID", "processes" },
	[RANKING_COMM] = { "COMM", NULL, "names of processes" },
	[RANKING_THREAD] = { "THREAD", "PID/TID", "threads" },
	[RANKING_CONTAINER] = { "CONTAINER", NULL, "containers" },
	[RANKING_STOP] = { "STOP", NULL, "reasons" },
	[RANKING_UNIT] = { "UNIT", NULL, "units" },
	[RANKING_SERVICE] = { "SERVICE", NULL, "services" },
	[RANKING_EXE] = { "PROGRAM", NULL, "programs" },
	[RANKING_USER] = { "USER", NULL, "users" },
	[RANKING_HOST] = { "HOST", NULL, "hosts" },
	[RANKING_WAKER] = { "WAKER", NULL, "wakers" },
};

struct layout {
	size_t fixed, where; /* columns before the name; columns of "where", 0: none */
	size_t name;	     /* columns of the name; 0: no limit */
	bool bars;
	bool totals; /* there is a column of totals: a sample may count for several rows */
	bool values; /* there is room for values beside the shares */
};

/* Choose the columns for the first n rows and the width of the terminal. */
static struct layout lay_out(const struct ranking *r, const struct table_options *o, size_t n)
{
	const char *heading = headings[r->by].where;
	struct layout l = { .totals = r->by <= RANKING_SOURCE };

	l.values = o->compared || !l.totals || !o->width || o->width >= NARROW;

	for (size_t i = 0; heading && i < n; i++) {
		size_t columns = uw_text_columns(r->rows[i].where);

		if (columns > l.where)
			l.where = columns;
	}
	if (heading && l.where < strlen(heading))
		l.where = strlen(heading);
	if (l.where > WHERE_WIDTH)
		l.where = WHERE_WIDTH;
	if (o->width && o->width < NARROW && l.where > WHERE_NARROW)
		l.where = WHERE_NARROW;
	if (o->compared)
		l.fixed = 3 * 10 + 14;
	else
		l.fixed = (l.totals ? 2u : 1u) * (7 + 2 + (l.values ? 12u + 2u : 0u));
	l.fixed += heading ? l.where + 2 : 0;
	l.bars = o->bars && (!o->width || l.fixed + BAR_WIDTH + 2 + NAME_BARS <= o->width);
	l.fixed += l.bars ? BAR_WIDTH + 2 : 0;
	if (o->width)
		l.name = o->width > l.fixed + NAME_LEAST ? o->width - l.fixed : NAME_LEAST;
	return l;
}

/* Print the line above the columns. Its widths and conditions are those of print_row. */
static void print_heading(const struct ranking *r, const struct table_options *o,
			  const struct layout *l, FILE *out)
{
	if (o->compared)
		(void)fprintf(out, "%8s  %8s  %9s  %12s  ", "BASE", "NOW", "CHANGE", "");
	else if (!l->values)
		(void)fprintf(out, "%7s  %7s  ", "SELF", "TOTAL");
	else if (l->totals)
		(void)fprintf(out, "%7s  %12s  %7s  %12s  ", "SELF", "", "TOTAL", "");
	else
		(void)fprintf(out, "%7s  %12s  ", "SHARE", "");
	if (l->bars)
		(void)fprintf(out, "%-*s  ", BAR_WIDTH, "");
	if (headings[r->by].where)
		(void)fprintf(out, "%-*s  ", (int)l->where, headings[r->by].where);
	(void)fprintf(out, "%s\n", headings[r->by].name);
}

/* Return true if the rows are ordered by totals; the bars then show totals, too. */
static bool orders_totals(enum ranking_order order)
{
	return order == RANKING_BY_TOTAL || order == RANKING_BY_TOTAL_CHANGE;
}

/*
 * Print one row. With a base: both shares, the change of the share, and the change of the value.
 */
static void print_row(const struct ranking *r, const struct table_options *o,
		      const struct layout *l, const struct ranking_row *row, FILE *out)
{
	bool by_total = orders_totals(o->order);
	double self = ranking_percent(row->self, r->total);
	double total = ranking_percent(row->total, r->total);
	char value[TABLE_VALUE], other[TABLE_VALUE], name[SANITIZED_MAX];

	if (o->compared) {
		int64_t now = by_total ? row->total : row->self;
		int64_t before = by_total ? row->base_total : row->base_self;
		double now_share = ranking_percent(now, r->total);
		double before_share = ranking_percent(before, r->base_total);
		int64_t change = before == INT64_MIN ? INT64_MAX : stacks_sum(now, -before);

		table_value(change, o->unit, value);
		(void)fprintf(out, "%7.2f%%  %7.2f%%  %+8.2f%%  %12s  ", before_share, now_share,
			      now_share - before_share, value);
	} else if (!l->values) {
		(void)fprintf(out, "%6.2f%%  %6.2f%%  ", self, total);
	} else {
		table_value(row->self, o->unit, value);
		(void)fprintf(out, "%6.2f%%  %12s  ", self, value);
		if (l->totals) {
			table_value(row->total, o->unit, other);
			(void)fprintf(out, "%6.2f%%  %12s  ", total, other);
		}
	}
	if (l->bars) {
		table_bar(by_total ? total : self, BAR_WIDTH, out);
		(void)fputs("  ", out);
	}
	if (headings[r->by].where) {
		table_text(row->where, l->where, true, out);
		(void)fputs("  ", out);
	}
	if (o->width && !o->whole_names && r->by == RANKING_SYMBOL)
		short_name(row->name, name, sizeof(name));
	table_text(o->width && !o->whole_names && r->by == RANKING_SYMBOL ? name : row->name,
		   l->name, false, out);
	(void)fputc('\n', out);
}

void table_print(const struct ranking *r, const struct table_options *o, FILE *out)
{
	size_t n = o->n && o->n < r->n_rows ? o->n : r->n_rows;
	struct layout l = lay_out(r, o, n);

	print_heading(r, o, &l, out);
	for (size_t i = 0; i < n; i++)
		print_row(r, o, &l, &r->rows[i], out);
	if (n < r->n_rows)
		(void)fprintf(out, "# … and %zu %s more\n", r->n_rows - n, headings[r->by].many);
}

/*
 * agent/cmd/query_print.c: prints the replies of a daemon or a fleet as tables. SQLite's functions for JSON read them
 * (https://sqlite.org/json1.html).
 */
#include "agent/cmd/query_print.h"

#include "agent/array.h"
#include "agent/cli/columns.h"
#include "agent/log.h"
#include "agent/store/query/sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	CHART_COLUMNS = 60,
	CHART_NARROW = 20,
	CHART_ROWS_MAX = 1 << 16, /* far more than a server gives */
	NAME_COLUMNS = 24,
	TEXT_SIZE = 256
};

/* Open a database in memory whose table reply has the reply. NULL after reporting that it is none. */
static sqlite3 *open_reply(const char *json)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *stmt = NULL;
	bool valid;

	if (sqlite3_open(":memory:", &db) == SQLITE_OK &&
	    sqlite3_exec(db, "CREATE TABLE reply (text TEXT)", NULL, NULL, NULL) == SQLITE_OK &&
	    sqlite3_prepare_v2(db, "INSERT INTO reply VALUES (json(?1))", -1, &stmt, NULL) ==
		    SQLITE_OK)
		(void)sqlite3_bind_text(stmt, 1, json, -1, SQLITE_STATIC);
	valid = stmt && sqlite3_step(stmt) == SQLITE_DONE;
	(void)sqlite3_finalize(stmt);
	if (valid)
		return db;
	log_error("the reply is no JSON: %s", db ? sqlite3_errmsg(db) : strerror(ENOMEM));
	(void)sqlite3_close(db);
	return NULL;
}

/* Prepare a statement on the reply; NULL after reporting why not. */
static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = NULL;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		log_error("the reply cannot be read: %s", sqlite3_errmsg(db));
	return stmt;
}

static const char *text_of(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return text ? text : "";
}

/* What replies have in common. */
struct head {
	char type[TEXT_SIZE], unit[TEXT_SIZE], name[TEXT_SIZE]; /* name: by or key */
	uint64_t from_ns, to_ns, step_ns;
	int64_t value, base_value, samples;
	char base[TEXT_SIZE];
	bool compared, change;
	bool by_total; /* the order of the rows */
	size_t rows, left_out;
};

static int read_head(sqlite3 *db, struct head *h)
{
	sqlite3_stmt *stmt = prepare(
		db, "SELECT text->>'type', text->>'unit', coalesce(text->>'by', text->>'key', ''),"
		    " coalesce(text->>'begin_ns', text->>'from_ns'),"
		    " coalesce(text->>'step_ns', text->>'column_ns', 1), text->>'value',"
		    " text->>'base_value', text->>'samples', text->>'base', text->>'rows',"
		    " coalesce(text->>'rows_left_out', text->>'values_left_out'), text->>'to_ns',"
		    " text->>'sort' FROM reply");
	int rc = stmt ? sqlite3_step(stmt) : SQLITE_ERROR;

	*h = (struct head){ .from_ns = 0 };
	if (rc == SQLITE_ROW) {
		(void)snprintf(h->type, sizeof(h->type), "%s", text_of(stmt, 0));
		(void)snprintf(h->unit, sizeof(h->unit), "%s", text_of(stmt, 1));
		(void)snprintf(h->name, sizeof(h->name), "%s", text_of(stmt, 2));
		h->from_ns = (uint64_t)sqlite3_column_int64(stmt, 3);
		h->step_ns = (uint64_t)sqlite3_column_int64(stmt, 4);
		h->value = sqlite3_column_int64(stmt, 5);
		h->base_value = sqlite3_column_int64(stmt, 6);
		h->samples = sqlite3_column_int64(stmt, 7);
		(void)snprintf(h->base, sizeof(h->base), "%s", text_of(stmt, 8));
		h->compared = sqlite3_column_type(stmt, 8) != SQLITE_NULL;
		h->rows = (size_t)sqlite3_column_int64(stmt, 9);
		h->left_out = (size_t)sqlite3_column_int64(stmt, 10);
		h->to_ns = (uint64_t)sqlite3_column_int64(stmt, 11);
		h->by_total = !strcmp(text_of(stmt, 12), "total");
	} else if (stmt) {
		log_error("the reply is not of the kind that was asked for: %s",
			  sqlite3_errmsg(db));
	}
	(void)sqlite3_finalize(stmt);
	return rc == SQLITE_ROW ? 0 : -EBADMSG;
}

/* A table without rows says so, as that of report does. */
static void put_nothing(FILE *out)
{
	(void)fputs("# no samples\n", out);
}

static void put_sum(const struct head *h, int64_t value, FILE *out)
{
	char text[TABLE_VALUE];

	table_value(value, h->unit, text);
	(void)fprintf(out, "%s of ", text);
	table_text(h->type, 0, false, out);
}

/* ---- top --------------------------------------------------------------------------------- */

static const struct {
	const char *by;
	enum ranking_by kind;
} kinds[] = {
	{ "module", RANKING_MODULE },	{ "source", RANKING_SOURCE },
	{ "pid", RANKING_PID },		{ "comm", RANKING_COMM },
	{ "thread", RANKING_THREAD },	{ "container", RANKING_CONTAINER },
	{ "stop", RANKING_STOP },	{ "unit", RANKING_UNIT },
	{ "service", RANKING_SERVICE }, { "exe", RANKING_EXE },
	{ "user", RANKING_USER },	{ "host", RANKING_HOST },
	{ "waker", RANKING_WAKER },
};

/* Add the rows of the reply to a ranking, in their order. */
static int read_rows(sqlite3 *db, struct ranking *r)
{
	sqlite3_stmt *stmt = prepare(
		db, "SELECT coalesce(value->>'function', value->>'source', value->>'thread',"
		    " value->>'comm', value->>'container', value->>'stop', value->>'unit',"
		    " value->>'service', value->>'exe', value->>'user', value->>'host', "
		    "value->>'waker', value->>'module'),"
		    " CASE WHEN value->>'tid' IS NOT NULL THEN (value->>'pid') || '/' || "
		    "(value->>'tid') WHEN"
		    " value->>'pid' IS NOT NULL THEN (value->>'pid') || '' WHEN value->>'function' "
		    "IS NOT NULL THEN"
		    " value->>'module' END, value->>'self', value->>'total', value->>'base_self',"
		    " value->>'base_total' FROM reply, json_each(text, '$.rows')");
	int rc = SQLITE_ERROR, err = stmt ? 0 : -EBADMSG;

	while (!err && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
		const char *name = text_of(stmt, 0), *where = text_of(stmt, 1);

		err = array_grow(r->rows, r->n_rows, r->room_rows);
		if (err)
			break;
		r->rows[r->n_rows] = (struct ranking_row){
			.name = strings_keep(&r->texts, name, strlen(name)),
			.where = strings_keep(&r->texts, where, strlen(where)),
			.self = sqlite3_column_int64(stmt, 2),
			.total = sqlite3_column_int64(stmt, 3),
			.base_self = sqlite3_column_int64(stmt, 4),
			.base_total = sqlite3_column_int64(stmt, 5),
		};
		if (!r->rows[r->n_rows].name || !r->rows[r->n_rows].where)
			err = -ENOMEM;
		r->n_rows++;
	}
	(void)sqlite3_finalize(stmt);
	if (!err && rc != SQLITE_DONE)
		err = -EBADMSG;
	if (err)
		log_error("the reply cannot be read: %s", strerror(-err));
	return err;
}

int query_print_top(const char *json, FILE *out)
{
	struct ranking r = { .by = RANKING_SYMBOL };
	sqlite3 *db = open_reply(json);
	struct head h;
	int err = db ? read_head(db, &h) : -EBADMSG;

	for (size_t i = 0; !err && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(h.name, kinds[i].by))
			r.by = kinds[i].kind;
	if (!err)
		err = read_rows(db, &r);
	if (!err) {
		const struct table_options options = {
			.order = h.by_total ? RANKING_BY_TOTAL : RANKING_BY_SELF,
			.unit = h.unit,
			.width = table_width(out),
			.bars = table_width(out) != 0,
			.compared = h.compared,
		};

		r.total = h.value;
		r.base_total = h.base_value;
		if (h.compared) {
			(void)fputs("# compared with ", out);
			table_text(h.base, 0, false, out);
			(void)fputs(", ", out);
			put_sum(&h, h.base_value, out);
			(void)fputc('\n', out);
		}
		(void)fprintf(out, "# %" PRId64 " samples, ", h.samples);
		put_sum(&h, h.value, out);
		(void)fputs("\n#\n", out);
		if (r.n_rows)
			table_print(&r, &options, out);
		else
			put_nothing(out);
		if (h.left_out)
			(void)fprintf(out, "# … and %zu more; -n 0 prints all\n", h.left_out);
	}
	ranking_fini(&r);
	(void)sqlite3_close(db);
	return err;
}

/* ---- labels ------------------------------------------------------------------------------ */

int query_print_labels(const char *json, FILE *out)
{
	sqlite3 *db = open_reply(json);
	sqlite3_stmt *stmt = NULL;
	struct head h;
	bool any = false;
	int err = db ? read_head(db, &h) : -EBADMSG;

	if (!err)
		stmt = prepare(db, "SELECT value->>'value', value->>'samples', value->>'sum' FROM"
				   " reply, json_each(text, '$.values')");
	for (; stmt && sqlite3_step(stmt) == SQLITE_ROW; any = true) {
		char value[TABLE_VALUE];
		const char *name = text_of(stmt, 0);

		if (!any) {
			(void)fprintf(out, "%12s  %9s  ", "SUM", "SAMPLES");
			table_text(h.name, 0, false, out);
			(void)fputc('\n', out);
		}
		table_value(sqlite3_column_int64(stmt, 2), h.unit, value);
		(void)fprintf(out, "%12s  %9lld  ", value, sqlite3_column_int64(stmt, 1));
		table_text(*name ? name : "-", 0, false, out);
		(void)fputc('\n', out);
	}
	if (stmt && !any)
		put_nothing(out);
	if (stmt && h.left_out)
		(void)fprintf(out, "# … and %zu more; -n prints more\n", h.left_out);
	(void)sqlite3_finalize(stmt);
	(void)sqlite3_close(db);
	return err ? err : stmt ? 0 : -EBADMSG;
}

/* ---- charts ------------------------------------------------------------------------------ */

/* Return how many columns a chart has that needs `beside` others. */
static size_t chart_width(size_t beside, FILE *out)
{
	size_t width = table_width(out);

	return !width			       ? CHART_COLUMNS
	       : width > beside + CHART_NARROW ? width - beside
					       : CHART_NARROW;
}

static void put_time(uint64_t time_ns, FILE *out)
{
	time_t when = (time_t)(time_ns / 1000000000);
	char text[32];
	struct tm tm;

	if (localtime_r(&when, &tm) && strftime(text, sizeof(text), "%F %T", &tm))
		(void)fputs(text, out);
}

static void put_span(const struct head *h, uint64_t from_ns, uint64_t to_ns, FILE *out)
{
	char text[TABLE_VALUE];

	(void)fputs("# ", out);
	put_time(from_ns, out);
	(void)fputs(" to ", out);
	put_time(to_ns, out);
	table_value((int64_t)(to_ns - from_ns), "nanoseconds", text);
	(void)fprintf(out, " (%s), ", text);
	table_text(h->type, 0, false, out);
	(void)fputc('\n', out);
}

/* Write a cell of a chart: value is at most `most`. */
static void put_cell(double value, double most, const char *const *steps, size_t n_steps, FILE *out)
{
	size_t i = most <= 0 || value <= 0
			   ? 0
			   : 1 + (size_t)(value / most * ((double)n_steps - 1) * 0.999999);

	(void)fputs(steps[i < n_steps ? i : n_steps - 1], out);
}

/* Sums of the cells of a chart: n_rows of n_columns. */
struct chart {
	double *cells;
	size_t n_rows, n_columns;
};

/* Read rows of (row, column, value) into a chart. Return 0, or a negative code after reporting it. */
static int read_chart(sqlite3 *db, const char *sql, struct chart *c)
{
	sqlite3_stmt *stmt;

	/* The number of rows is what the reply says, whatever cells it has. */
	if (c->n_rows > CHART_ROWS_MAX) {
		log_error("the reply has a chart of more than %d rows", CHART_ROWS_MAX);
		return -EBADMSG;
	}
	stmt = prepare(db, sql);
	c->cells = stmt ? calloc(c->n_rows * c->n_columns + 1, sizeof(*c->cells)) : NULL;
	if (!c->cells) {
		(void)sqlite3_finalize(stmt);
		return -ENOMEM;
	}
	(void)sqlite3_bind_int64(stmt, 1, (int64_t)c->n_columns);
	while (sqlite3_step(stmt) == SQLITE_ROW) {
		size_t row = (size_t)sqlite3_column_int64(stmt, 0);
		size_t column = (size_t)sqlite3_column_int64(stmt, 1);

		if (row < c->n_rows && column < c->n_columns)
			c->cells[row * c->n_columns + column] += sqlite3_column_double(stmt, 2);
	}
	(void)sqlite3_finalize(stmt);
	return 0;
}

static double most_of(const struct chart *c)
{
	double most = 0;

	for (size_t i = 0; i < c->n_rows * c->n_columns; i++)
		most = c->cells[i] > most ? c->cells[i] : most;
	return most;
}

/* Return the first column of a query as a number. */
static size_t count(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt = prepare(db, sql);
	size_t n = stmt && sqlite3_step(stmt) == SQLITE_ROW ? (size_t)sqlite3_column_int64(stmt, 0)
							    : 0;

	(void)sqlite3_finalize(stmt);
	return n;
}

/* A line for each value: its sum, and how that is spread over the time. */
int query_print_timeline(const char *json, FILE *out)
{
	static const char *const steps[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	sqlite3 *db = open_reply(json);
	sqlite3_stmt *stmt = NULL;
	struct chart c = { .cells = NULL };
	struct head h;
	double most = 0;
	size_t n = 0;
	int err = db ? read_head(db, &h) : -EBADMSG;

	if (!err) {
		n = count(db, "SELECT json_array_length(text, '$.series[0].values') FROM reply");
		c.n_rows = count(db, "SELECT json_array_length(text, '$.series') FROM reply");
		c.n_columns = chart_width(12 + 2 + NAME_COLUMNS + 2, out);
		if (n && c.n_columns > n)
			c.n_columns = n;
		err = read_chart(
			db,
			"SELECT s.key, v.key * ?1 / json_array_length(s.value, '$.values'),"
			" v.value FROM reply, json_each(text, '$.series') AS s,"
			" json_each(s.value, '$.values') AS v",
			&c);
	}
	if (!err)
		stmt = prepare(db, "SELECT coalesce(s.value->>'value', '(rest)'), (SELECT"
				   " sum(v.value) FROM json_each(s.value, '$.values') AS v) FROM"
				   " reply, json_each(text, '$.series') AS s");
	if (stmt) {
		most = most_of(&c);
		put_span(&h, h.from_ns, n ? h.from_ns + n * h.step_ns : h.to_ns, out);
	}
	if (stmt && !c.n_rows)
		put_nothing(out);
	for (size_t i = 0; stmt && i < c.n_rows && sqlite3_step(stmt) == SQLITE_ROW; i++) {
		const char *name = text_of(stmt, 0);
		char value[TABLE_VALUE];

		table_value(sqlite3_column_int64(stmt, 1), h.unit, value);
		(void)fprintf(out, "%12s  ", value);
		table_text(*name ? name : "-", NAME_COLUMNS, true, out);
		(void)fputs("  ", out);
		for (size_t j = 0; j < c.n_columns; j++)
			put_cell(c.cells[i * c.n_columns + j], most, steps,
				 sizeof(steps) / sizeof(steps[0]), out);
		(void)fputc('\n', out);
	}
	(void)sqlite3_finalize(stmt);
	free(c.cells);
	(void)sqlite3_close(db);
	return err ? err : stmt ? 0 : -EBADMSG;
}

/* A column for each step of time, a row for each part of it. */
int query_print_heatmap(const char *json, FILE *out)
{
	static const char *const steps[] = { " ", "·", "░", "▒", "▓", "█" };
	sqlite3 *db = open_reply(json);
	struct chart c = { .cells = NULL };
	struct head h;
	size_t n = 0;
	int err = db ? read_head(db, &h) : -EBADMSG;

	if (!err) {
		n = count(db, "SELECT json_array_length(text, '$.columns') FROM reply");
		c.n_rows = h.rows;
		c.n_columns = chart_width(10, out);
		if (n && c.n_columns > n)
			c.n_columns = n;
		err = read_chart(db,
				 "SELECT v.key, s.key * ?1 / json_array_length(text, '$.columns'),"
				 " v.value FROM reply, json_each(text, '$.columns') AS s,"
				 " json_each(s.value) AS v",
				 &c);
	}
	if (!err) {
		double most = most_of(&c);

		put_span(&h, h.from_ns, h.from_ns + n * h.step_ns, out);
		for (size_t i = c.n_rows; i--;) {
			char part[TABLE_VALUE];

			table_value((int64_t)(h.step_ns / c.n_rows * i), "nanoseconds", part);
			(void)fprintf(out, "%9s ", part);
			for (size_t j = 0; j < c.n_columns; j++)
				put_cell(c.cells[i * c.n_columns + j], most, steps,
					 sizeof(steps) / sizeof(steps[0]), out);
			(void)fputc('\n', out);
		}
	}
	free(c.cells);
	(void)sqlite3_close(db);
	return err;
}

/* ---- SQL --------------------------------------------------------------------------------- */

/*
 * Print the rows of a query, whose columns only the reply has. A value is taken by its place in the row: two columns may
 * have the same name, and some names are paths or numbers to SQLite's operators for JSON.
 */
int query_print_rows(const char *json, FILE *out)
{
	sqlite3 *db = open_reply(json);
	sqlite3_stmt *stmt =
		db ? prepare(db, "SELECT key FROM reply, json_each(text, '$[0]')") : NULL;
	sqlite3_str *sql = sqlite3_str_new(db);
	char error[DB_ERROR_SIZE] = "", *text;
	int n = 0, err = stmt ? 0 : -EBADMSG;

	for (; stmt && sqlite3_step(stmt) == SQLITE_ROW; n++)
		sqlite3_str_appendf(sql,
				    "%s(SELECT value FROM json_each(r.value) LIMIT 1 OFFSET %d) AS "
				    "\"%w\"",
				    n ? ", " : "SELECT ", n, text_of(stmt, 0));
	(void)sqlite3_finalize(stmt);
	sqlite3_str_appendall(sql, " FROM reply, json_each(text) AS r");
	text = sqlite3_str_finish(sql);
	if (!err && !text)
		err = -ENOMEM;
	if (!err && n)
		err = sql_print(db, text, SQL_TABLE, out, error);
	if (err)
		log_error("the reply cannot be read: %s", *error ? error : strerror(-err));
	sqlite3_free(text);
	(void)sqlite3_close(db);
	return err;
}

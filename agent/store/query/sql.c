/* agent/store/query/sql.c: runs SQL, and prints rows as an aligned table, as JSON, and as CSV. */
#include "agent/store/query/sql.h"

#include "agent/store/query/extension.h"
#include "agent/store/query/sql_printer.h"
#include "base/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A column of a table is as wide as its widest cell in the first rows, this many. */
#define MEASURED  1000
#define WIDTH_MAX 72

/* Upgrade an older store, if this user can write it. The caller reports other errors. */
static int upgrade(const char *path)
{
	char error[DB_ERROR_SIZE];
	sqlite3 *db;
	int err = db_open(path, &db_store, DB_WRITE, &db, error);

	if (!err)
		(void)sqlite3_close(db);
	return err;
}

int sql_open(const char *path, sqlite3 **out, char error[DB_ERROR_SIZE])
{
	int (*init)(struct sqlite3 *, char **, const struct sqlite3_api_routines *) =
		sqlite3_offwindsqlite_init;
	int err;

	/* SQLite takes an untyped function pointer, but calls it with the type of init. */
	if (sqlite3_auto_extension((void (*)(void))init) != SQLITE_OK)
		return -ENOMEM;
	err = db_open(path, &db_store, DB_READ, out, error);
	if (err == -ENOTSUP && !upgrade(path))
		err = db_open(path, &db_store, DB_READ, out, error);
	(void)sqlite3_cancel_auto_extension((void (*)(void))init);
	return err;
}

/* ---- formats ---------------------------------------------------------------------- */

/*
 * Write a JSON string. Characters that are not shown (see uw_text_is_shown) are escaped, so that
 * nothing is lost and a terminal shows all of it.
 */
static void put_json(FILE *out, const char *text, size_t size)
{
	(void)putc_unlocked('"', out);
	for (size_t i = 0, n; i < size; i += n) {
		uint32_t code;

		n = uw_text_decode(text + i, size - i, &code);
		if (code == '"' || code == '\\')
			(void)fprintf(out, "\\%c", text[i]);
		else if (uw_text_is_shown(code))
			sql_put(out, text + i, n);
		else
			(void)fprintf(out, "\\u%04x", code == UW_TEXT_BAD ? 0xfffd : code);
	}
	(void)putc_unlocked('"', out);
}

/* Write a row of a table, with each column but the last padded to its width. */
static void put_line(struct printer *p, char *const *cells)
{
	for (int i = 0; i < p->n; i++) {
		size_t width = uw_text_columns(cells[i]);

		(void)fputs(cells[i], p->out);
		if (i + 1 == p->n)
			break;
		do
			(void)putc_unlocked(' ', p->out);
		while (++width < p->width[i] + 2);
	}
	(void)putc_unlocked('\n', p->out);
}

static void free_line(struct printer *p, char **line)
{
	for (int i = 0; line && i < p->n; i++)
		free(line[i]);
	free(line);
}

/* Write the head and the waiting rows: the column widths are known now. */
static void flow(struct printer *p)
{
	char **head = calloc((size_t)p->n + 1, sizeof(*head));

	for (int i = 0; head && i < p->n; i++) {
		head[i] = p->names[i];
		if (uw_text_columns(head[i]) > p->width[i])
			p->width[i] = uw_text_columns(head[i]);
		if (p->width[i] > WIDTH_MAX)
			p->width[i] = WIDTH_MAX;
	}
	if (head && p->n)
		put_line(p, head);
	free(head);
	for (size_t i = 0; i < p->n_lines; i++) {
		put_line(p, p->lines[i]);
		free_line(p, p->lines[i]);
	}
	p->n_lines = 0;
	p->flowing = true;
}

/* Read a row of a table; write it, or let it wait until MEASURED rows are read. */
static int table_row(struct printer *p)
{
	char **line = calloc((size_t)p->n + 1, sizeof(*line));

	for (int i = 0; line && i < p->n; i++) {
		struct cell cell;

		if (!sql_read_cell(p->stmt, i, &cell, &p->hex[i]) ||
		    !(line[i] = strndup(cell.text, cell.size))) {
			free_line(p, line);
			return -ENOMEM;
		}
		if (!p->flowing && uw_text_columns(line[i]) > p->width[i])
			p->width[i] = uw_text_columns(line[i]);
	}
	if (!line)
		return -ENOMEM;
	if (p->flowing) {
		put_line(p, line);
		free_line(p, line);
		return 0;
	}
	p->lines[p->n_lines++] = line;
	if (p->n_lines == MEASURED)
		flow(p);
	return 0;
}

/* Write a row as an object, and before the first row the bracket that begins the array. */
static int json_row(struct printer *p)
{
	(void)fputs(p->n_rows ? ",\n{" : "[\n{", p->out);
	for (int i = 0; i < p->n; i++) {
		const char *name = p->names[i];
		struct cell cell;

		if (!sql_read_raw(p->stmt, i, &cell, &p->hex[i]))
			return -ENOMEM;
		if (i)
			(void)putc_unlocked(',', p->out);
		put_json(p->out, name, strlen(name));
		(void)putc_unlocked(':', p->out);
		if (cell.type == SQLITE_NULL)
			(void)fputs("null", p->out);
		else if (cell.type == SQLITE_FLOAT && strstr(cell.text, "Inf"))
			/* JSON has no infinity; SQLite's own functions write this, too. */
			(void)fputs(*cell.text == '-' ? "-9e999" : "9e999", p->out);
		else if (cell.type == SQLITE_INTEGER || cell.type == SQLITE_FLOAT)
			sql_put(p->out, cell.text, cell.size);
		else
			put_json(p->out, cell.text, cell.size);
	}
	(void)putc_unlocked('}', p->out);
	return 0;
}

/* Write what comes after the last row. */
static void finish(struct printer *p, enum sql_format format)
{
	if (format == SQL_TABLE && !p->flowing)
		flow(p);
	if (format == SQL_JSON)
		(void)fputs(p->n_rows ? "\n]\n" : "[]\n", p->out);
}

/* ---- statements ------------------------------------------------------------------- */

/* Step through the statement's rows and print them. *rc is SQLite's last result code. */
static int print_rows(struct printer *p, enum sql_format format, int *rc)
{
	int err = 0;

	if (format == SQL_CSV)
		sql_csv_head(p);
	while (!err && (*rc = sqlite3_step(p->stmt)) == SQLITE_ROW) {
		err = format == SQL_CSV	   ? sql_csv_row(p)
		      : format == SQL_JSON ? json_row(p)
					   : table_row(p);
		p->n_rows++;
		if (ferror(p->out))
			err = -EIO;
	}
	if (p->used)
		sql_csv_finish(p);
	if (!err && *rc == SQLITE_DONE)
		finish(p, format);
	return err;
}

/* Return a copy of a column's name, sanitized; the caller frees it. NULL: out of memory. */
static char *column_name(sqlite3_stmt *stmt, int column)
{
	const char *name = sqlite3_column_name(stmt, column);
	size_t size = name ? strlen(name) : 0;
	char *room = NULL, *copy = NULL;

	if (name)
		name = sql_sanitize(name, &size, &room);
	if (name)
		copy = strndup(name, size);
	free(room);
	return copy;
}

/* Return whether memory sufficed for all column names. */
static bool has_names(const struct printer *p)
{
	for (int i = 0; p->names && i < p->n; i++)
		if (!p->names[i])
			return false;
	return p->names != NULL;
}

/* Print the rows of one statement. *rc is SQLite's result code. */
static int print_statement(sqlite3_stmt *stmt, enum sql_format format, FILE *out, int *rc)
{
	struct printer p = { .stmt = stmt, .out = out, .n = sqlite3_column_count(stmt) };
	size_t n = (size_t)p.n + 1;
	int err = -ENOMEM;

	p.names = calloc(n, sizeof(*p.names));
	for (int i = 0; p.names && i < p.n; i++)
		p.names[i] = column_name(stmt, i);
	p.hex = calloc(n, sizeof(*p.hex));
	p.width = calloc(n, sizeof(*p.width));
	p.lines = calloc(MEASURED, sizeof(*p.lines));
	p.buffer = format == SQL_CSV ? malloc(CSV_BUFFER) : NULL;
	if (has_names(&p) && p.hex && p.width && p.lines && (p.buffer || format != SQL_CSV))
		err = print_rows(&p, format, rc);
	for (size_t i = 0; i < p.n_lines; i++)
		free_line(&p, p.lines[i]);
	for (int i = 0; p.hex && i < p.n; i++)
		free(p.hex[i]);
	for (int i = 0; p.names && i < p.n; i++)
		free(p.names[i]);
	free((void *)p.names);
	free(p.room);
	free((void *)p.hex);
	free(p.width);
	free(p.buffer);
	free((void *)p.lines);
	return err;
}

int sql_print(sqlite3 *db, const char *sql, enum sql_format format, FILE *out,
	      char error[DB_ERROR_SIZE])
{
	int err = 0, rc = SQLITE_OK;

	error[0] = '\0';
	while (!err && *sql) {
		sqlite3_stmt *stmt = NULL;
		const char *rest = sql;

		rc = sqlite3_prepare_v2(db, sql, -1, &stmt, &rest);
		if (rc != SQLITE_OK)
			break;
		sql = rest;
		if (!stmt) /* only a comment or white space */
			continue;
		err = print_statement(stmt, format, out, &rc);
		if (!err && rc != SQLITE_DONE) {
			(void)sqlite3_finalize(stmt); /* the message stays on the connection */
			break;
		}
		rc = SQLITE_OK;
		(void)sqlite3_finalize(stmt);
	}
	if (!err && rc != SQLITE_OK) {
		(void)snprintf(error, DB_ERROR_SIZE, "%s", sqlite3_errmsg(db));
		err = db_errno(rc) ? db_errno(rc) : -EIO;
	}
	return err;
}

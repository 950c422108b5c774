/*
 * agent/store/query/sql_printer.h: what the files that print rows of SQL share: sql.c, sql_cell.c and
 * sql_csv.c.
 */
#ifndef AGENT_STORE_QUERY_SQL_PRINTER_H
#define AGENT_STORE_QUERY_SQL_PRINTER_H

#include "agent/store/query/sql.h"

#include <stdbool.h>
#include <stdint.h>

#define CELL_MAX   24 /* characters of a number */
#define CSV_BUFFER ((size_t)64 << 10)

/* One value of a row, as text. */
struct cell {
	const char *text;
	size_t size;
	int type; /* SQLITE_… */
	char number[CELL_MAX];
};

/* The state while one statement's rows are printed. */
struct printer {
	sqlite3_stmt *stmt;
	FILE *out;
	int n;
	char **names; /* of the columns */
	char **hex;   /* one buffer for each column */
	char *room;   /* buffer for a cell that had to be sanitized */
	size_t *width;
	char ***lines; /* rows of a table that wait until the column widths are known */
	size_t n_lines;
	/* the column widths are known: rows are printed at once */
	bool flowing;
	uint64_t n_rows;
	char *buffer; /* CSV: CSV_BUFFER bytes, of which the first `used` are not yet in out */
	size_t used;
};

static inline void sql_put(FILE *out, const char *text, size_t size)
{
	(void)fwrite_unlocked(text, 1, size, out);
}

/* ---- sql_cell.c ---- */

/* Read a column into a cell; texts stay as they are. False: out of memory. */
bool sql_read_raw(sqlite3_stmt *stmt, int column, struct cell *cell, char **hex);
/* Read a column into a cell, with texts made safe for a terminal. False: out of memory. */
bool sql_read_cell(sqlite3_stmt *stmt, int column, struct cell *cell, char **hex);
/*
 * Return text without control characters and with valid UTF-8: text itself if it is plain, else a
 * copy in *room, which grows as needed. NULL: out of memory.
 */
const char *sql_sanitize(const char *text, size_t *size, char **room);

/* ---- sql_csv.c ---- */

/* Write the names of the columns. */
void sql_csv_head(struct printer *p);
/* Append the row to the buffer, which is written when it is full. -ENOMEM. */
int sql_csv_row(struct printer *p);
/* Write what is left in the buffer. */
void sql_csv_finish(struct printer *p);

#endif

/*
 * agent/store/sql.h: questions to a store in SQL, and their answers as text.
 */
#ifndef AGENT_STORE_SQL_H
#define AGENT_STORE_SQL_H

#include "agent/store/db.h"

#include <stdio.h>

/* As db_open with DB_READ, with the virtual tables (vtab.h). */
int sql_open(const char *path, sqlite3 **out, char error[DB_ERROR_SIZE]);

enum sql_format { SQL_TABLE, SQL_CSV, SQL_JSON };

/*
 * Runs one statement (or several) and writes what it answers, row by row: columns aligned by the
 * first rows, RFC 4180, or an array of objects.  A negative code with a sentence in error; -EIO
 * without one: out cannot be written.
 */
int sql_print(sqlite3 *db, const char *sql, enum sql_format format, FILE *out,
	      char error[DB_ERROR_SIZE]);

#endif

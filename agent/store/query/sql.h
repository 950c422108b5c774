/* agent/store/query/sql.h: runs SQL queries on a store and prints the results. */
#ifndef AGENT_STORE_QUERY_SQL_H
#define AGENT_STORE_QUERY_SQL_H

#include "agent/store/db.h"

#include <stdio.h>

/*
 * Open the database for reading, as db_open() with DB_READ, with the virtual tables of vtab.h. A
 * store of an older version is upgraded first if it can be written.
 */
int sql_open(const char *path, sqlite3 **out, char error[DB_ERROR_SIZE]);

enum sql_format { SQL_TABLE, SQL_CSV, SQL_JSON };

/*
 * Run one or more statements and print their rows: as a table with aligned columns, as CSV (RFC
 * 4180), or as a JSON array of objects. A negative code with a sentence in error; -EIO without one:
 * out cannot be written.
 */
int sql_print(sqlite3 *db, const char *sql, enum sql_format format, FILE *out,
	      char error[DB_ERROR_SIZE]);

#endif

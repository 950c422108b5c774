/* agent/store/query/extension.h: the entry point of the SQLite extension. */
#ifndef AGENT_STORE_QUERY_EXTENSION_H
#define AGENT_STORE_QUERY_EXTENSION_H

struct sqlite3;
struct sqlite3_api_routines;

/*
 * Register the virtual tables with a connection. SQLite looks for this function in
 * offwind_sqlite.so; inside offwind, sql_open() gives it to SQLite. Return an SQLite result code.
 */
__attribute__((visibility("default"))) int
sqlite3_offwindsqlite_init(struct sqlite3 *db, char **error,
			   const struct sqlite3_api_routines *api);

#endif

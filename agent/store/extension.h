/*
 * agent/store/extension.h: the entry point that SQLite looks for in
 * offwind_sqlite.so, and that offwind gives to SQLite itself.
 */
#ifndef AGENT_STORE_EXTENSION_H
#define AGENT_STORE_EXTENSION_H

struct sqlite3;
struct sqlite3_api_routines;

__attribute__((visibility("default"))) int
sqlite3_offwindsqlite_init(struct sqlite3 *db, char **error,
			   const struct sqlite3_api_routines *api);

#endif

/*
 * agent/store/query/extension.c: the entry point that the sqlite3 shell calls after `.load
 * offwind_sqlite`.
 */
#include "agent/store/query/extension.h"

#include "agent/store/query/vtab.h"

#include <sqlite3ext.h>

SQLITE_EXTENSION_INIT1

int sqlite3_offwindsqlite_init(sqlite3 *db, char **error, const sqlite3_api_routines *api)
{
	(void)error;
	SQLITE_EXTENSION_INIT2(api)
	return vtab_register(db);
}

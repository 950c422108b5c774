/*
 * agent/store/tables/stored.h: one stored object, opened for queries and display.
 *
 * These files and the virtual tables are built once for two uses: inside offwind, and as an
 * extension that the sqlite3 shell loads. They therefore call SQLite through the pointers that an
 * extension is given (sqlite3ext.h); inside offwind, sql_open() provides these pointers.
 */
#ifndef AGENT_STORE_TABLES_STORED_H
#define AGENT_STORE_TABLES_STORED_H

#include "symbolizer/symbolizer.h"
#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sqlite3;
struct sqlite3_value;

/* A stored object. Its table is read from the database as it is needed. */
struct stored {
	int64_t object, table; /* ids */
	unsigned int refs;     /* reference count, used by one thread only */
	struct uw_rows *rows;
	/*
	 * schema/table_blob.h, schema/procs_blob.h; NULL: none. Only the front of each blob; all of it after
	 * stored_whole().
	 */
	const void *rules, *procs;
	size_t rules_size, procs_size;
	struct blob_reader *blobs; /* reads the rules, the procs and the symbols */
	struct sqlite3 *db;
	bool named; /* symbols were looked up before */
	struct sym_table *symbols;
};

/*
 * Return the object's symbols, borrowed: the stored ones, or those of the file if it still has the
 * object's build-id. NULL: there are none.
 */
const struct sym_table *stored_symbols(struct stored *stored);

/*
 * Look up an object by key: its id (an integer), its build-id (a blob), or a text. A text is the
 * first digits of the build-id, a path, a base name, or the part of a base name before a dot or
 * dash. If several objects match, the one used last is found. -ENOENT: none matches.
 */
int stored_find(struct sqlite3 *db, struct sqlite3_value *key, int64_t *object);
int stored_find_text(struct sqlite3 *db, const char *key, int64_t *object);

/*
 * Open the object's table; its blocks are read and checked as they are needed. -ENOENT: the object
 * has no table of a layout known here. -EBADMSG: damaged. *out may be NULL or a result of an
 * earlier call, which is released unless it is the same table. The table must be released before
 * the connection is closed.
 */
int stored_load(struct sqlite3 *db, int64_t object, struct stored **out);
/* Release a reference; NULL is accepted. */
void stored_put(struct stored *stored);
/* Read and check all of the table and ranges. -EBADMSG: damaged. */
int stored_whole(struct stored *stored);
/* Close the blob handles until more is read: an open handle pins the database's snapshot. */
void stored_rest(struct stored *stored);

#endif

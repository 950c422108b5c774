/*
 * agent/store/kept.h: one object of a store, to be looked at.
 *
 * These files and the virtual tables are built once for both uses: inside
 * offwind and as an extension that the sqlite3 shell loads.  They therefore call
 * SQLite through the pointers that an extension is given (sqlite3ext.h); inside
 * offwind, store_sql_open sees to that.
 */
#ifndef AGENT_STORE_KEPT_H
#define AGENT_STORE_KEPT_H

#include "symbolizer/symbolizer.h"
#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sqlite3;
struct sqlite3_value;

struct kept {
	int64_t object, table; /* ids */
	unsigned int refs;     /* counted by one thread */
	struct uw_rows *rows;
	/* schema/table.h, schema/procs.h; NULL: none.  The front, and all after kept_whole. */
	const void *rules, *procs;
	size_t rules_size, procs_size;
	struct kept_reading *readings[3]; /* of rules, procs and symbols */
	struct sqlite3 *db;
	bool named; /* symbols were looked for */
	struct sym_table *symbols;
};

/*
 * Its functions' names: out of the store, else out of the file, if that still has the object's
 * build-id.  NULL: there are none; else borrowed.
 */
const struct sym_table *kept_symbols(struct kept *kept);

/*
 * The object that key names: its id (an integer), its build-id (a blob), or in text the first
 * digits of its build-id, a path or a base name, or what that begins with before a dot or dash; of
 * several the one that was used last.
 * -ENOENT none.
 */
int kept_find(struct sqlite3 *db, struct sqlite3_value *key, int64_t *object);
int kept_find_text(struct sqlite3 *db, const char *key, int64_t *object);

/*
 * Its table, of which what is needed is read, and checked, then.  -ENOENT it has none of a layout
 * known here, -EBADMSG damaged.  *out may be what the caller had before: the same table is not read
 * again.  It ends before the connection does.
 */
int kept_load(struct sqlite3 *db, int64_t object, struct kept **out);
void kept_put(struct kept *kept);  /* NULL is fine */
int kept_whole(struct kept *kept); /* all of it: -EBADMSG damaged */
/* Lets go of the database until more has to be read: an open blob pins what it was. */
void kept_rest(struct kept *kept);

#endif

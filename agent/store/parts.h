/*
 * agent/store/parts.h: what the files that make up the store call of each other, by file. The
 * caller holds the store's lock, unless the comment says otherwise.
 */
#ifndef AGENT_STORE_PARTS_H
#define AGENT_STORE_PARTS_H

#include "agent/store/identity.h"
#include "agent/store/session.h"

/* ---- budget.c ---- */

/*
 * Delete the least recently used symbols and objects until the database is within budget (bytes),
 * but not the object spare. This runs in the transaction that made the database grow.
 */
int budget_evict(struct store *s, uint64_t budget, int64_t spare);

/* ---- find_table.c ---- */

/*
 * If the store has a table of the same contents, store the file's inode with it. Return whether it
 * has. Takes the lock itself.
 */
bool table_is_stored(struct store *s, struct uw_object *object, const struct store_file *file);
/*
 * Store the file's inode with the object whose contents it has, if the inode is vouched for; and
 * the only user who can write the file, if there is one.
 */
int table_add_file(struct store *s, int64_t id, const struct uw_object *object,
		   const struct store_file *f, const struct uw_identity *identity);

/* ---- quarantine.c ---- */

/*
 * Insert a row into "building" for the time that file is being compiled: if this process crashes,
 * later processes find the row. *row is what to pass to quarantine_end(); 0: no row was inserted,
 * which is no reason not to compile. -EPERM: too many processes ended while they compiled the file,
 * and it is now in quarantine. Takes the lock itself.
 */
int quarantine_begin(struct store *s, const struct uw_build_id *id, const struct store_file *file,
		     int64_t *row);
/* Delete the row that quarantine_begin() inserted. row 0: none. Takes the lock itself. */
void quarantine_end(struct store *s, int64_t row);
/*
 * Delete the rows of "building" for a file that was compiled, within a transaction. -ENOENT:
 * nothing identifies the file, so it has no rows.
 */
int quarantine_built(struct store *s, const struct uw_build_id *id, const struct store_file *file);
/*
 * Delete this process's rows from "building" if an earlier attempt failed. Otherwise later runs
 * would take the end of this process for a crash while compiling.
 */
void quarantine_forget(struct store *s);

/* ---- store_symbols.c ---- */

struct wanted_symbols {
	struct sym_table *table; /* owned; NULL: these are lines */
	struct sym_lines *lines; /* owned; NULL: this is a symbol table */
	struct store_file file;
	char *path; /* owned; same as file.path */
	struct uw_build_id build_id;
	struct identity beside;
	bool has_beside;
};

/*
 * Pack and insert the symbols or lines of a file, and evict. Failures are counted. Takes the lock
 * itself.
 */
void symbols_keep(struct store *s, const struct wanted_symbols *w);

/* ---- wanted.c ---- */

/* Release the remembered objects, symbols and lines, and the queue's memory. */
void wanted_fini(struct wanted_queue *queue);

#endif

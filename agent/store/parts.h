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

/* ---- change.c: with change_ask(), the functions below do their changes by these ---- */

struct new_table;
struct new_inode;
struct new_symbols;

int change_table(struct store *s, const struct new_table *new, const struct store_file *file);
int change_file(struct store *s, const struct new_inode *new, const struct store_file *file);
int change_symbols(struct store *s, const struct new_symbols *new);
int change_rows(struct store *s); /* what session_remember() remembered */
int change_quarantine(struct store *s, const struct uw_build_id *id, const struct store_file *file,
		      const char *reason);
int change_contents(struct store *s, const struct store_file *file, uint64_t size,
		    const struct identity *contents);
int change_missing(struct store *s, const struct uw_build_id *id);

/* ---- find_table.c ---- */

/*
 * If the store has a table of the same contents, store the file's inode with it. Return whether it
 * has. Takes the lock itself.
 */
bool table_is_stored(struct store *s, struct uw_object *object, const struct store_file *file);
/* The object whose contents a file has. */
struct new_inode {
	int64_t object; /* id of its row */
	const struct uw_build_id *build_id;
	uint16_t machine;
	const struct uw_identity *identity;
};

/*
 * Store the file's inode with the object whose contents it has, if the inode is vouched for; and
 * the only user who can write the file, if there is one. The second function does it within a
 * transaction.
 */
int table_note_file(struct store *s, const struct new_inode *new, const struct store_file *f);
int table_add_file(struct store *s, const struct new_inode *new, const struct store_file *f);

/* ---- keep_table.c ---- */

/* A table, or that there is none, and what it was made from. */
struct new_table {
	struct uw_build_id build_id;
	uint16_t machine;
	struct uw_identity identity;
	struct identity contents;
	const void *rules; /* borrowed; NULL: there is nothing to compile */
	size_t rules_size;
	const void *procs; /* NULL: none */
	size_t procs_size;
};

/* Insert object, table and file in one transaction, delete the row of "building", and evict. */
int table_insert(struct store *s, const struct new_table *new, const struct store_file *file);

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
/* Put a file in quarantine, in a transaction; see store_quarantine(). */
int quarantine_insert(struct store *s, const struct uw_build_id *id, const struct store_file *file,
		      const char *reason);

/* Read which files ended their readers, once; and release the list. */
void quarantine_load(struct store *s);
void quarantine_unload(struct store *s);
/* Store what bytes a file in quarantine has. */
int quarantine_add_contents(struct store *s, const struct store_file *file, uint64_t size,
			    const struct identity *contents);

/* ---- missing.c ---- */

/* Store that no server has a build-id, in a transaction. */
int missing_insert(struct store *s, const struct uw_build_id *id);

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

/* Symbols or lines as they are stored. */
struct new_symbols {
	bool lines;
	size_t n; /* of them */
	struct uw_build_id build_id;
	struct store_file file;
	const struct identity *beside; /* NULL: none */
	const void *blob;
	size_t size;
};

/* Insert symbols or lines in one transaction, and evict. */
int symbols_insert(struct store *s, const struct new_symbols *new);

/*
 * Pack and insert the symbols or lines of a file, and evict. Failures are counted. Takes the lock
 * itself.
 */
void symbols_keep(struct store *s, const struct wanted_symbols *w);

/* ---- store.c ---- */

/* store_close(), without a word. */
void store_release(struct store *s);

/* ---- wanted.c ---- */

/* Release the remembered objects, symbols and lines, and the queue's memory. */
void wanted_fini(struct wanted_queue *queue);

#endif

/*
 * agent/store/change.h: a process of its own that changes the store (docs/security.md, "Roles").
 *
 * A worker reads files that others made, so it has the database open for reading only. What it wants to
 * have stored it sends to the store process, which alone can write the database. That process believes
 * that a table belongs to its file, but not that a message has its form.
 */
#ifndef AGENT_STORE_CHANGE_H
#define AGENT_STORE_CHANGE_H

#include <stdbool.h>

struct channels;

/*
 * The requests. Each begins with its kind, and whether the store must not be waited for long. The reply
 * is an error, and how many tables were inserted and evicted.
 */
enum change {
	CHANGE_TABLE,	   /* a new_table, its file; one descriptor: rules and procs */
	CHANGE_FILE,	   /* row of an object, build-id, machine, identity, the file */
	CHANGE_SYMBOLS,	   /* a new_symbols, its file; one descriptor: the symbols */
	CHANGE_ROWS,	   /* number of rows; of each what is done with it, its id and path */
	CHANGE_QUARANTINE, /* build-id, the file, a reason */
	CHANGE_CONTENTS,   /* of a file in quarantine: the file, size, SHA-256 */
	CHANGE_MISSING,	   /* build-id */
};

/*
 * In the worker, before it opens a store: from now on the process at the other end of channels, which
 * are borrowed, makes all changes.
 */
void change_ask(struct channels *channels);
bool change_is_asked_for(void);

/*
 * In the store process: open the store as store_open does, give up all other rights, and make the
 * changes that the other end asks for until that is closed.
 */
void change_serve(struct channels *channels, const char *db);

#endif

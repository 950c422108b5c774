/*
 * agent/store/db.h: connections to databases, and the schema of the store.
 *
 * One thread at a time may use a connection. Any number of connections in any number of processes
 * may be open (WAL mode): readers see the last committed state and wait for nobody; writers take
 * turns.
 */
#ifndef AGENT_STORE_DB_H
#define AGENT_STORE_DB_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DB_ERROR_SIZE	 512
#define DB_WRITE_WAIT_MS 5000 /* how long a connection of DB_WRITE waits for a lock */

/* What kind of database it is: by its application id, and by the statements that make its schema. */
struct db_kind {
	int32_t id;
	const char *const *steps; /* each leads to the next version of the schema */
	int n_steps;
	/* Give a connection the SQL functions that the steps call. NULL: they call none. Return SQLite's code. */
	int (*prepare)(sqlite3 *db);
};

extern const struct db_kind db_store;

enum db_mode {
	DB_READ,  /* the database must exist; nothing is written, and its schema is not upgraded */
	DB_WRITE, /* created if it does not exist, upgraded if its schema is older */
};

/*
 * Choose the path of the database:
 *
 *   given, if it is not NULL; "" means none
 *   else $OFFWIND_DB; "" means none
 *   else for root: /var/lib/offwind/offwind.db
 *   else $XDG_CACHE_HOME/offwind/offwind.db, or $HOME/.cache/offwind/offwind.db
 *
 * -ENOENT: none is wanted, or there is no place for one. The caller frees *out.
 */
int db_path(const char *given, char **out);

/*
 * Open a database. Return 0, or a negative code with a sentence in error that names the file:
 * -ENOENT it does not exist, -EACCES, -ENOTSUP it was made by a newer offwind (for DB_READ also: by
 * an older one), -EBADMSG it is damaged or of another kind, -EBUSY, -ENOSPC, -EIO, -ENOMEM.
 */
int db_open(const char *path, const struct db_kind *kind, enum db_mode mode, sqlite3 **out,
	    char error[DB_ERROR_SIZE]);

/*
 * Make a database, if it does not exist, and the files of its write-ahead log, which those need who open it
 * after db_write_nothing. Errors are those of db_open.
 */
int db_make_files(const char *path, const struct db_kind *kind, char error[DB_ERROR_SIZE]);

/*
 * Open files of databases only for reading from now on, in all threads, or no longer so. What is open
 * stays as it is.
 */
void db_write_nothing(bool nothing);

/*
 * Return a negative errno code for one of SQLite's result codes; 0 for SQLITE_OK, _ROW and _DONE.
 */
int db_errno(int rc);

/* Run statements that need no parameters. Return 0 or a negative code. */
int db_exec(sqlite3 *db, const char *sql);
/*
 * From now on, read the file instead of mapping it: if another process overwrote or truncated a
 * mapped file, this process would die from SIGBUS.
 */
int db_unmap(sqlite3 *db);
/* Return the first number that sql gives; 0 if it gives none or fails. */
int64_t db_number(sqlite3 *db, const char *sql);

/*
 * Bind a blob. An empty one is bound as a zeroblob: SQLite would take a NULL pointer for SQL's
 * NULL.
 */
void db_bind_bytes(sqlite3_stmt *stmt, int column, const void *bytes, size_t size);
/* Bind n integers to the parameters ?1, ?2 and so on. */
void db_bind_numbers(sqlite3_stmt *stmt, const int64_t *numbers, int n);
/* Return 1 if there is a row, 0 if there is none, or a negative code. */
int db_step(sqlite3_stmt *stmt);
/* Reset the statement, so that it ends its transaction and holds no borrowed pointers. */
void db_release(sqlite3_stmt *stmt);

/* Return the version of the schema that this program knows for a kind. */
int db_schema_version(const struct db_kind *kind);

#endif

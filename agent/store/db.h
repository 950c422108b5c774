/*
 * agent/store/db.h: connections to a store's database, and its schema.
 *
 * A connection belongs to one thread at a time.  Any number of them, of any
 * number of processes, may be open: readers see the last committed state and
 * wait for nobody, writers take turns.
 */
#ifndef AGENT_STORE_DB_H
#define AGENT_STORE_DB_H

#include <sqlite3.h>
#include <stdint.h>

#define DB_ERROR_SIZE 512

enum db_mode {
	DB_READ,  /* must be there; nothing is written, not even a newer schema */
	DB_WRITE, /* made if it is not there, upgraded if it is older */
};

/*
 * The database to use: given; else $OFFWIND_DB, which may be empty for none;
 * else root's /var/lib/offwind/offwind.db and, for everybody else,
 * $XDG_CACHE_HOME/offwind/offwind.db, where that is not set below $HOME/.cache.
 * -ENOENT there is none; the caller frees *out.
 */
int db_path(const char *given, char **out);

/*
 * 0, or a negative code with a sentence in error, which names the file: -ENOENT not there, -EACCES,
 * -ENOTSUP of a newer offwind, -EBADMSG not a store or damaged, -EBUSY, -ENOSPC, -EIO, -ENOMEM.
 */
int db_open(const char *path, enum db_mode mode, sqlite3 **out, char error[DB_ERROR_SIZE]);

/* SQLite's result code as a negative one of ours. */
int db_errno(int rc);

int db_exec(sqlite3 *db, const char *sql); /* 0 or a negative code */
/* From now on it is read, not mapped: who overwrites the file where it is would end us by SIGBUS. */
int db_unmap(sqlite3 *db);
/* The one number that sql gives; 0 where it gives none. */
int64_t db_number(sqlite3 *db, const char *sql);

/* The version of the schema that this program knows. */
int db_schema_version(void);

#endif

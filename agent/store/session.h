/*
 * agent/store/session.h: what the files that make up the store share: struct store, its statements
 * and its transactions.
 *
 * The functions take a store whose lock the caller holds, unless their comments say otherwise.
 */
#ifndef AGENT_STORE_SESSION_H
#define AGENT_STORE_SESSION_H

#include "agent/store/blob_reader.h"
#include "agent/store/db.h"
#include "agent/store/store.h"

#include <pthread.h>

#define BLOB_MAX     ((int64_t)1 << 31)
#define WORK_WAIT_MS 1000 /* how long a process that is about to end waits for a lock */

/* The statements that have a prepared form; their SQL is in session.c. */
enum statement {
	FIND_FILE,
	FIND_SAME,
	FIND_GONE,
	VOUCH,
	FIND_TABLE,
	ADD_OBJECT,
	ADD_TABLE,
	ADD_FILE,
	DROP_TABLE,
	MARK_USED,
	USED_BYTES,
	OLDEST,
	DROP_OBJECT,
	FORGET,
	FORGET_SYMBOLS,
	IS_QUARANTINED,
	QUARANTINE,
	ADD_CONTENTS,
	REFUSED,
	RELEASE,
	BUILDING,
	BEGIN_BUILDING,
	END_BUILDING,
	BUILT,
	FORGET_BUILDING,
	FORGET_OWN,
	FIND_SYMBOLS,
	FIND_GONE_SYMBOLS,
	ADD_SYMBOLS,
	USED_SYMBOLS,
	DROP_SYMBOLS,
	OLDEST_SYMBOLS,
	FIND_MISSING,
	ADD_MISSING,
	DROP_MISSING,
	STATEMENTS
};

/* A change that store_close() writes: a row was used, or a row is to be deleted. */
struct used {
	enum statement what; /* MARK_USED, USED_SYMBOLS, DROP_TABLE, DROP_SYMBOLS */
	int64_t row;
	char *path; /* for MARK_USED; owned */
};

/* What store_work() is to insert (wanted.c). */
struct wanted_queue {
	struct wanted_table *tables;
	size_t n_tables, room_tables;
	struct wanted_symbols *symbols;
	size_t n_symbols, room_symbols;
};

struct store {
	pthread_mutex_t lock;
	sqlite3 *db;
	sqlite3_stmt *statements[STATEMENTS];
	char *path;
	bool read_only;
	bool hurried;	      /* the process is about to end: wait WORK_WAIT_MS for locks at most */
	bool said;	      /* the first error was logged */
	bool wrote;	      /* a transaction was committed */
	bool said_quarantine; /* one object in quarantine was logged */
	bool left_building;   /* a row of "building" that is no longer true could not be deleted */
	unsigned int failures; /* consecutive ones */
	uint64_t budget;
	struct store_counters counters;
	struct wanted_queue queue;
	struct used *used;
	size_t n_used, room_used;
	struct refused_file *refused; /* files that ended their readers (quarantine.c) */
	size_t n_refused, room_refused;
	atomic_bool refused_are_known;
	/*
	 * Lazy reads use db, or after store_read_beside() a separate connection, so that walks do
	 * not wait for a writer. That one may live for hours, so no handle stays open on it. Lock
	 * order: lock, then beside_lock.
	 */
	struct blob_reader blobs, beside;
	pthread_mutex_t beside_lock;
	bool reads_beside;
};

/* Count a failure and log the first one. Return err. */
int session_failed(struct store *s, const char *doing, int err);
/* Return whether too many operations failed, so that the store is not used in this run any more. */
bool session_gave_up(const struct store *s);

/* Return the prepared statement, ready for binding. On failure return NULL and set *err. */
sqlite3_stmt *session_statement(struct store *s, enum statement which, int *err);
/* Run a statement that has only numbers as parameters and gives no rows. */
int session_run(struct store *s, enum statement which, const int64_t *numbers, int n);
/* Read the only number that a statement gives. -ENOENT: it gives no row. */
int session_ask(struct store *s, enum statement which, int64_t *out);

/*
 * Open the database, and create it if it does not exist. If it cannot be written, open it for
 * reading only. After a failure the store is not used in this run.
 */
int session_open(struct store *s);
/* Begin a write transaction; open or create the database first if necessary. -EROFS: read-only. */
int session_begin(struct store *s);
/* End a transaction: commit it, or roll it back if err is set or the commit fails. */
int session_end(struct store *s, int err);

/*
 * Return whether a row last used at that time (seconds since 1970) is to be marked as used now. It
 * is marked at most once an hour, because a change writes pages.
 */
bool session_is_stale(int64_t used);
/*
 * Remember a change of a row, each once; store_close() writes all of them in one transaction. path
 * is copied; NULL: none.
 */
void session_remember(struct store *s, enum statement what, int64_t row, const char *path);
/*
 * Write the list of used and damaged rows in one transaction, and forget it. Return 0 or a negative
 * code, which is counted and logged, unless the database is locked: -EBUSY.
 */
int session_write_used(struct store *s);

#endif

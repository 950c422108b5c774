/*
 * agent/store/store.c: the operations on the store: look up, compile and insert unwind tables,
 * symbols and lines; evict old ones; keep a quarantine of files that cannot be read.
 */
#include "agent/store/store.h"

#include "agent/array.h"
#include "agent/clock.h"
#include "agent/log.h"
#include "agent/store/alive.h"
#include "agent/store/db.h"
#include "agent/store/identity.h"
#include "agent/store/key.h"
#include "schema/lines.h"
#include "schema/procs.h"
#include "schema/symbols.h"
#include "schema/table.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Files up to this size are hashed before their first sample is walked: 0.4 ms at most. */
#define HASH_AT_ONCE_MAX ((uint64_t)4 << 20)
/* After this many failures in a row, the rest of the run works without the store. */
#define FAILURES_MAX 3
#define WORK_WAIT_MS 1000
/* The time of the last use has a resolution of one hour, so that most runs write nothing. */
#define MARK_SECONDS 3600
/*
 * Each wanted object holds a descriptor and memory. Of a thousand objects, later runs store the
 * rest.
 */
#define WANTED_MAX   128
#define BLOB_ALIGN   64
#define BLOB_MAX     ((int64_t)1 << 31)
#define POPULATE_MIN 65536
/*
 * One process that ended while it compiled a file proves little: it may have been killed for any
 * reason.
 */
#define DEATHS_MAX 2
/* The end of a process counts against the file for this long. */
#define DEATH_SECONDS (7 * 24 * 3600)

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

static const char *const sql[STATEMENTS] = {
	[FIND_FILE] = "SELECT f.object, f.\"check\", o.src_size, o.src_hash, o.last_used"
		      " FROM files AS f JOIN objects AS o ON o.id = f.object"
		      " WHERE f.dev = ?1 AND f.ino = ?2 AND f.elf_off = ?3 AND f.size = ?4"
		      " AND f.mtime_ns = ?5 AND f.ctime_ns = ?6 AND f.uid = ?7",
	[FIND_SAME] = "SELECT id, src_size, src_hash, identity FROM objects"
		      " WHERE build_id = ?1 AND machine = ?2",
	[FIND_GONE] = "SELECT o.id, o.owner, o.src_size, o.src_hash, o.last_used, t.id,"
		      " typeof(t.procs) = 'blob', o.path FROM objects AS o JOIN tables AS t"
		      " ON t.object = o.id WHERE o.build_id = ?1 AND length(o.build_id)"
		      " AND t.version = ?2 AND t.builder = ?3 AND typeof(t.rules) = 'blob'"
		      " ORDER BY o.owner = 0 DESC, o.last_used DESC, o.id DESC",
	[VOUCH] = "UPDATE objects SET owner = ?2 WHERE id = ?1 AND owner != ?2"
		  " AND (?2 = 0 OR owner < 0)",
	[FIND_TABLE] = "SELECT id, typeof(rules) = 'blob', typeof(procs) = 'blob' FROM tables"
		       " WHERE object = ?1 AND version = ?2 AND builder = ?3",
	[ADD_OBJECT] = "INSERT INTO objects (build_id, src_size, src_hash, machine, path,"
		       " file_size, first_used, last_used, uses, owner, identity)"
		       " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, 1, ?8, ?9)"
		       " ON CONFLICT DO UPDATE SET path = iif(?6, ?5, path),"
		       " file_size = iif(?6, ?6, file_size), last_used = ?7,"
		       " owner = iif(?8 = 0 OR owner < 0, ?8, owner),"
		       " uses = uses + 1 RETURNING id", /* an import has no file here */
	[ADD_TABLE] = "INSERT OR IGNORE INTO tables (object, version, builder, built, n_rows,"
		      " n_rules, n_procs, size, procs, rules)"
		      " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
	[ADD_FILE] = "INSERT OR REPLACE INTO files (dev, ino, elf_off, size, mtime_ns, ctime_ns,"
		     " uid, object, \"check\") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
	[DROP_TABLE] = "DELETE FROM tables WHERE id = ?1",
	[MARK_USED] = "UPDATE objects SET last_used = ?2, uses = uses + 1, path = ?3 WHERE id = ?1",
	[USED_BYTES] = "SELECT (page_count - freelist_count) * page_size"
		       " FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
	[OLDEST] = "SELECT id FROM objects ORDER BY last_used, uses LIMIT 1",
	[FORGET_SYMBOLS] = "DELETE FROM symbols WHERE last_used < ?1",
	[FIND_SYMBOLS] = "SELECT id, last_used FROM symbols WHERE dev = ?1 AND ino = ?2"
			 " AND elf_off = ?3 AND reader = ?4 AND file_size = ?5 AND mtime_ns = ?6"
			 " AND ctime_ns = ?7 AND uid = ?8 AND build_id = ?9 AND beside = ?10",
	[FIND_GONE_SYMBOLS] = "SELECT id, last_used, owner, dev, ino, elf_off, file_size, mtime_ns,"
			      " ctime_ns, uid FROM symbols WHERE build_id = ?1 AND"
			      " length(build_id) AND reader = ?2 ORDER BY n DESC, owner = 0 DESC",
	[ADD_SYMBOLS] =
		"INSERT OR REPLACE INTO symbols (dev, ino, elf_off, reader, file_size,"
		" mtime_ns, ctime_ns, uid, build_id, beside, path, last_used, n, size, symbols,"
		" owner) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,"
		" ?16)",
	[USED_SYMBOLS] = "UPDATE symbols SET last_used = ?2 WHERE id = ?1",
	[DROP_SYMBOLS] = "DELETE FROM symbols WHERE id = ?1",
	[OLDEST_SYMBOLS] = "SELECT id FROM symbols WHERE last_used <="
			   " (SELECT ifnull(min(last_used), 9e18) FROM objects)"
			   " ORDER BY last_used LIMIT 1",
	[FIND_MISSING] = "SELECT since FROM missing WHERE build_id = ?1 AND since > ?2",
	[ADD_MISSING] = "INSERT OR REPLACE INTO missing VALUES (?1, ?2)",
	[DROP_MISSING] = "DELETE FROM missing WHERE since <= ?1",
	[FORGET] = "DELETE FROM objects WHERE last_used < ?1",
	[IS_QUARANTINED] = "SELECT reason, date(since, 'unixepoch') FROM quarantine"
			   " WHERE build_id = ?1 AND path = ?2 AND builder = ?3 AND file = ?4",
	[BUILDING] = "SELECT pid, begun FROM building WHERE build_id = ?1 AND path = ?2"
		     " AND builder = ?3 AND file = ?4",
	[BEGIN_BUILDING] = "INSERT INTO building (build_id, path, builder, file, pid, begun,"
			   " since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
	[END_BUILDING] = "DELETE FROM building WHERE id = ?1",
	[BUILT] = "DELETE FROM building WHERE build_id = ?1 AND path = ?2 AND builder = ?3"
		  " AND file = ?4",
	[FORGET_OWN] = "DELETE FROM building WHERE pid = ?1",
	[FORGET_BUILDING] = "DELETE FROM building WHERE builder != ?1 OR since < ?2",
	[QUARANTINE] = "INSERT INTO quarantine (build_id, path, builder, file, reason, since,"
		       " crashes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1) ON CONFLICT DO UPDATE SET"
		       " crashes = 1 + crashes * (builder = ?3 AND file = ?4), builder = ?3,"
		       " file = ?4, reason = ?5, since = ?6",
	[RELEASE] = "DELETE FROM quarantine WHERE builder != ?1",
	[DROP_OBJECT] = "DELETE FROM objects WHERE id = ?1",
};

struct wanted {
	struct uw_object *object;
	struct store_file file;
	char *path; /* owned; same as file.path */
};

/*
 * Lines are stored in the table "symbols", with a reader number of their own: both are names that a
 * file gives its code, have the same keys and are evicted together.
 */
#define READER_LINES (256 + LINES_READER)

struct wanted_symbols {
	struct sym_table *table; /* owned; NULL: these are lines */
	struct sym_lines *lines; /* owned; NULL: this is a symbol table */
	struct store_file file;
	char *path; /* owned; same as file.path */
	struct uw_build_id build_id;
	struct identity beside;
	bool has_beside;
};

/* A change that store_close() writes: a row was used, or a row is to be deleted. */
struct used {
	enum statement what; /* MARK_USED, USED_SYMBOLS, DROP_TABLE, DROP_SYMBOLS */
	int64_t row;
	char *path; /* for MARK_USED; owned */
};

/*
 * A blob that is read as it is needed. An open blob handle pins the snapshot of the database that
 * it was opened in. So no handle is open while this process writes, and on the separate connection,
 * which may live for hours, none is open between two reads.
 */
struct reading {
	struct store *store; /* NULL: the store was closed */
	bool beside;	     /* uses the connection store.beside, under its lock */
	struct reading *next, **link;
	sqlite3_blob *open; /* NULL: no handle is open now */
	const char *table, *column;
	int64_t row;
	enum statement drop;
	int size;
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
	struct wanted *wanted;
	size_t n_wanted, room_wanted;
	struct wanted_symbols *symbols;
	size_t n_symbols, room_symbols;
	struct used *used;
	size_t n_used, room_used;
	struct reading *readings; /* on db; beside has its own */
	struct {
		pthread_mutex_t lock; /* lock order: store.lock, then this one */
		bool wanted;
		sqlite3 *db;
		struct reading *readings;
	} beside;
};

/* ---- statements ------------------------------------------------------------------- */

/* Count a failure and log the first one. Return err. */
static int failed(struct store *s, const char *doing, int err)
{
	/* After a rollback SQLite has forgotten the transaction's error. */
	const char *why = s->db && sqlite3_errcode(s->db) != SQLITE_OK ? sqlite3_errmsg(s->db)
								       : "it is damaged";

	s->counters.failed++;
	s->failures++;
	if (!s->said)
		log_warning("%s: cannot %s: %s; unwind tables stay in memory", s->path, doing,
			    err == -EBADMSG ? why : strerror(-err));
	s->said = true;
	return err;
}

static bool gave_up(const struct store *s)
{
	return s->failures >= FAILURES_MAX;
}

/* Return the prepared statement, ready for binding. On failure return NULL and set *err. */
static sqlite3_stmt *statement(struct store *s, enum statement which, int *err)
{
	int rc = SQLITE_OK;

	if (!s->statements[which])
		rc = sqlite3_prepare_v3(s->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT,
					&s->statements[which], NULL);
	*err = db_errno(rc);
	return s->statements[which];
}

/* Reset the statement, so that it ends its transaction and holds no borrowed pointers. */
static void release(sqlite3_stmt *stmt)
{
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
}

/*
 * Bind a blob. An empty one is bound as a zeroblob: SQLite would take a NULL pointer for SQL's
 * NULL.
 */
static void bind_bytes(sqlite3_stmt *stmt, int column, const void *bytes, size_t size)
{
	if (size)
		(void)sqlite3_bind_blob64(stmt, column, bytes, size, SQLITE_STATIC);
	else
		(void)sqlite3_bind_zeroblob(stmt, column, 0);
}

/* Return 1 if there is a row, 0 if there is none, or a negative code. */
static int step(sqlite3_stmt *stmt)
{
	int rc = sqlite3_step(stmt);

	return rc == SQLITE_ROW ? 1 : db_errno(rc);
}

/* Run a statement that has only numbers as parameters and gives no rows. */
static int run(struct store *s, enum statement which, const int64_t *numbers, int n)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, which, &err);
	if (!stmt)
		return err;
	for (int i = 0; i < n; i++)
		(void)sqlite3_bind_int64(stmt, i + 1, numbers[i]);
	err = step(stmt);
	s->wrote = s->wrote || (err >= 0 && !sqlite3_stmt_readonly(stmt));
	release(stmt);
	return err < 0 ? err : 0;
}

/* Read the only number that a statement gives. -ENOENT: it gives no row. */
static int ask(struct store *s, enum statement which, int64_t *out)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, which, &err);
	if (!stmt)
		return err;
	err = step(stmt);
	if (err == 1)
		*out = sqlite3_column_int64(stmt, 0);
	release(stmt);
	return err == 1 ? 0 : err ? err : -ENOENT;
}

/*
 * Open the database, and create it if it does not exist. If it cannot be written, open it for
 * reading only. After a failure the store is not used in this run.
 */
static int open_db(struct store *s)
{
	char error[DB_ERROR_SIZE] = "";
	int err = db_open(s->path, DB_WRITE, &s->db, error);

	if (err == -EACCES || err == -EROFS || err == -EPERM) {
		s->read_only = true;
		/* A database that cannot be written may still be readable. */
		if (!db_open(s->path, DB_READ, &s->db, error))
			err = 0;
	}
	if (err) {
		s->failures = FAILURES_MAX;
		s->said = true;
		log_warning("%s; unwind tables stay in memory", error[0] ? error : strerror(-err));
		return err;
	}
	/*
	 * Do not checkpoint at close: the next process to open the database would wait for it. See
	 * store_close().
	 */
	(void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	if (s->beside.wanted)
		(void)db_unmap(s->db);
	return 0;
}

/* Close all open blob handles of this connection; the next read opens them again. */
static void rest(struct store *s)
{
	for (struct reading *r = s->readings; r; r = r->next) {
		(void)sqlite3_blob_close(r->open);
		r->open = NULL;
	}
}

/* Return the stored budget in bytes. Only writers need it, so it is read at the first write. */
static uint64_t budget_of(const struct store *s)
{
	int64_t budget = db_number(s->db, "SELECT value FROM settings WHERE name = 'budget'");

	return budget > 0 ? (uint64_t)budget : STORE_BUDGET_DEFAULT;
}

/* Begin a write transaction; open or create the database first if necessary. -EROFS: read-only. */
static int begin(struct store *s)
{
	int err = s->db ? 0 : gave_up(s) ? -EIO : open_db(s);

	if (err || s->read_only)
		return err ? err : -EROFS;
	if (s->hurried)
		(void)sqlite3_busy_timeout(s->db, WORK_WAIT_MS);
	rest(s);
	if (!s->budget)
		s->budget = budget_of(s);
	return db_exec(s->db, "BEGIN IMMEDIATE");
}

/* End a transaction: commit it, or roll it back if err is set or the commit fails. */
static int end(struct store *s, int err)
{
	if (!err)
		err = db_exec(s->db, "COMMIT");
	s->wrote = s->wrote || !err;
	if (err && s->db && !sqlite3_get_autocommit(s->db))
		(void)db_exec(s->db, "ROLLBACK");
	return err;
}

/* ---- opening ---------------------------------------------------------------------- */

int store_open(const char *path, struct store **out)
{
	struct store *s = calloc(1, sizeof(*s));
	pthread_mutexattr_t kind;
	int err;

	*out = NULL;
	if (!s)
		return -ENOMEM;
	err = db_path(path, &s->path);
	/* Creating a database takes time, so that is left to the first write. */
	if (!err && (!access(s->path, F_OK) || errno != ENOENT))
		err = open_db(s);
	if (err) {
		free(s->path);
		free(s);
		return err;
	}
	/* The lock is recursive: a look-up holds it while the blob callbacks take it again. */
	pthread_mutexattr_init(&kind);
	pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&s->lock, &kind);
	pthread_mutexattr_destroy(&kind);
	pthread_mutex_init(&s->beside.lock, NULL);
	*out = s;
	return 0;
}

void store_read_beside(struct store *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->beside.wanted = true;
	if (s->db)
		(void)db_unmap(s->db);
	pthread_mutex_unlock(&s->lock);
}

/* Write the list of used and damaged rows in one transaction, unless the database is locked. */
static void mark_used(struct store *s)
{
	sqlite3_stmt *stmt;
	int err = 0;

	if (!s->n_used || s->read_only || gave_up(s))
		return;
	/* This is not worth waiting for other writers. */
	(void)sqlite3_busy_timeout(s->db, 100);
	err = begin(s);
	if (err == -EBUSY)
		return;
	for (size_t i = 0; i < s->n_used && !err; i++) {
		stmt = statement(s, s->used[i].what, &err);
		if (!stmt)
			break;
		(void)sqlite3_bind_int64(stmt, 1, s->used[i].row);
		if (s->used[i].what == MARK_USED || s->used[i].what == USED_SYMBOLS)
			(void)sqlite3_bind_int64(stmt, 2, time(NULL));
		if (s->used[i].path)
			(void)sqlite3_bind_text(stmt, 3, s->used[i].path, -1, SQLITE_STATIC);
		err = step(stmt);
		release(stmt);
	}
	err = end(s, err);
	if (err)
		(void)failed(s, "write", err);
}

/*
 * Delete this process's rows from "building" if an earlier attempt failed. Otherwise later runs
 * would take the end of this process for a crash while compiling.
 */
static void forget_building(struct store *s)
{
	const int64_t pid = getpid();
	int err;

	if (!s->left_building || !s->db || s->read_only)
		return;
	(void)sqlite3_busy_timeout(s->db, WORK_WAIT_MS);
	err = begin(s);
	if (!err)
		(void)end(s, run(s, FORGET_OWN, &pid, 1));
}

/* Release the remembered objects, symbols and lines. */
static void forget_wanted(struct store *s)
{
	for (size_t i = 0; i < s->n_wanted; i++) {
		uw_object_put(s->wanted[i].object);
		free(s->wanted[i].path);
	}
	s->n_wanted = 0;
	for (size_t i = 0; i < s->n_symbols; i++) {
		sym_table_free(s->symbols[i].table);
		sym_lines_free(s->symbols[i].lines);
		free(s->symbols[i].path);
	}
	s->n_symbols = 0;
}

/*
 * Copy the write-ahead log into the database and truncate it. Otherwise the next process to open
 * the store would read the log and check its sums first, which takes 0.03 ms for each run that
 * noted what it used. With a timeout of 0 this waits for nobody; if another process reads now, a
 * later writer does it.
 */
static void empty_log(sqlite3 *db)
{
	(void)sqlite3_busy_timeout(db, 0);
	(void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}

void store_close(struct store *s)
{
	const struct store_counters *c;

	if (!s)
		return;
	c = &s->counters;
	mark_used(s);
	forget_building(s);
	forget_wanted(s);
	rest(s);
	for (struct reading *r = s->readings; r; r = r->next)
		r->store = NULL;
	for (struct reading *r = s->beside.readings; r; r = r->next)
		r->store = NULL;
	(void)sqlite3_close(s->beside.db);
	for (size_t i = 0; i < s->n_used; i++)
		free(s->used[i].path);
	for (int i = 0; i < STATEMENTS; i++)
		(void)sqlite3_finalize(s->statements[i]);
	if (s->wrote && s->db && !s->read_only)
		empty_log(s->db);
	(void)sqlite3_close(s->db);
	log_debug("%s: %" PRIu64 " tables found, %" PRIu64 " not there; %" PRIu64
		  " compiled, %" PRIu64 " kept, %" PRIu64 " damaged, %" PRIu64 " evicted, %" PRIu64
		  " failures; call-frame information parsed %" PRIu64 " times; symbols of %" PRIu64
		  " files found, %" PRIu64 " kept; lines of %" PRIu64 " files found, %" PRIu64
		  " kept",
		  s->path, c->found, c->missing, c->built, c->kept, c->damaged, c->evicted,
		  c->failed, c->parsed, c->symbols_found, c->symbols_kept, c->lines_found,
		  c->lines_kept);
	if (c->failed > 1)
		log_warning("%s: %" PRIu64 " times something went wrong", s->path, c->failed);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->beside.lock);
	free(s->wanted);
	free(s->symbols);
	free(s->used);
	free(s->path);
	free(s);
}

void store_counters(struct store *s, struct store_counters *out)
{
	*out = (struct store_counters){ 0 };
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	*out = s->counters;
	pthread_mutex_unlock(&s->lock);
}

/* ---- look-up ------------------------------------------------------------------------ */

/*
 * Return whether a row last used at that time (seconds since 1970) is to be marked as used now. It
 * is marked at most once an hour, because a change writes pages.
 */
static bool is_stale(int64_t used)
{
	int64_t now = time(NULL);

	return used > now || now - used >= MARK_SECONDS;
}

/*
 * Look up the object by its file's inode. Give its row id, the time of its last use and the
 * identity (size and XXH64) of its unwind sections. -ENOENT: the inode is not vouched for, or not
 * known to have these contents.
 */
static int find_by_file(struct store *s, struct uw_object *object, const struct store_file *f,
			int64_t *id, int64_t *used, struct uw_identity *identity)
{
	const struct uw_build_id *build_id = uw_object_build_id(object);
	const int64_t key[] = { (int64_t)f->dev,  (int64_t)f->ino, (int64_t)f->elf_off,
				(int64_t)f->size, f->mtime_ns,	   f->ctime_ns,
				(int64_t)f->uid };
	struct uw_identity found;
	sqlite3_stmt *stmt;
	int64_t check;
	int err;

	if (!f->vouched)
		return -ENOENT;
	stmt = statement(s, FIND_FILE, &err);
	if (!stmt)
		return err;
	for (int i = 0; i < 7; i++)
		(void)sqlite3_bind_int64(stmt, i + 1, key[i]);
	err = step(stmt);
	if (err == 1) {
		*id = sqlite3_column_int64(stmt, 0);
		check = sqlite3_column_int64(stmt, 1);
		found.size = (uint64_t)sqlite3_column_int64(stmt, 2);
		found.hash = (uint64_t)sqlite3_column_int64(stmt, 3);
		*used = sqlite3_column_int64(stmt, 4);
		/* The row is damaged, or the file has another build-id now. */
		if (check != (int64_t)key_of_file(f, build_id, uw_object_machine(object), &found))
			err = 0;
	}
	release(stmt);
	if (err == 1)
		*identity = found;
	return err == 1 ? 0 : err ? err : -ENOENT;
}

/*
 * Look up the object by the SHA-256 of its unwind sections. Reading the sections is worth the time
 * only if the store has an object with the same build-id, so they are hashed at the first such row.
 */
static int find_by_contents(struct store *s, struct uw_object *object, int64_t *id,
			    struct uw_identity *identity)
{
	const struct uw_build_id *build_id = uw_object_build_id(object);
	struct identity own;
	bool asked = false;
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, FIND_SAME, &err);
	if (!stmt)
		return err;
	bind_bytes(stmt, 1, build_id->bytes, build_id->size);
	(void)sqlite3_bind_int64(stmt, 2, uw_object_machine(object));
	while ((err = step(stmt)) == 1) {
		if (!asked)
			err = identity_of_object(object, &own);
		asked = true;
		if (err < 0)
			break;
		if (sqlite3_column_bytes(stmt, 3) == IDENTITY_SIZE &&
		    !memcmp(sqlite3_column_blob(stmt, 3), own.bytes, IDENTITY_SIZE)) {
			*id = sqlite3_column_int64(stmt, 0);
			identity->size = (uint64_t)sqlite3_column_int64(stmt, 1);
			identity->hash = (uint64_t)sqlite3_column_int64(stmt, 2);
			err = 1;
			break;
		}
	}
	release(stmt);
	return err == 1 ? 0 : err ? err : -ENOENT;
}

/*
 * Fault in the pages of a buffer that is about to be filled as a whole, with one system call
 * instead of a page fault each. Kernels before 5.14 do not know MADV_POPULATE_WRITE; there nothing
 * happens.
 */
static void populate(void *memory, size_t size)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = ((uintptr_t)memory + page - 1) & ~(page - 1);
	uintptr_t end = ((uintptr_t)memory + size) & ~(page - 1);

	if (start < end && end - start >= POPULATE_MIN)
		(void)madvise((void *)start, end - start, MADV_POPULATE_WRITE);
}

/*
 * Remember a change of a row, each once; store_close() writes all of them in one transaction. path
 * is copied; NULL: none.
 */
static void remember(struct store *s, enum statement what, int64_t row, const char *path)
{
	struct used *used;

	for (size_t i = 0; i < s->n_used; i++)
		if (s->used[i].row == row && s->used[i].what == what)
			return;
	if (array_make_room((void **)&s->used, s->n_used, &s->room_used, sizeof(*s->used)))
		return;
	used = &s->used[s->n_used];
	*used = (struct used){ .what = what, .row = row };
	if (path)
		used->path = strdup(path);
	s->n_used += !path || used->path;
}

static void close_blob(struct reading *r)
{
	(void)sqlite3_blob_close(r->open);
	r->open = NULL;
}

/*
 * Open the blob handle if it is not open. An incremental read copies straight from the database's
 * pages; a column's value would be one more copy. -EBADMSG: the size has changed.
 */
static int open_blob(sqlite3 *db, struct reading *r)
{
	int rc, size;

	if (r->open)
		return 0;
	rc = sqlite3_blob_open(db, "main", r->table, r->column, r->row, 0, &r->open);
	if (rc != SQLITE_OK) {
		close_blob(r);
		return db_errno(rc);
	}
	size = sqlite3_blob_bytes(r->open);
	if (r->size < 0)
		r->size = size;
	/* If the size differs, another blob has replaced this one. */
	return size == r->size ? 0 : -EBADMSG;
}

/* Return the lock that protects the reading's connection. */
static pthread_mutex_t *lock_of(struct reading *r)
{
	return r->beside ? &r->store->beside.lock : &r->store->lock;
}

/* Read a part of a blob (uw_kept.read). On the separate connection the handle is closed again. */
static int read_part(void *ctx, uint64_t off, void *out, size_t size)
{
	struct reading *r = ctx;
	struct store *s = r->store;
	sqlite3 *db;
	int err;

	if (!s)
		return -EIO;
	pthread_mutex_lock(lock_of(r));
	db = r->beside ? s->beside.db : gave_up(s) ? NULL : s->db;
	err = db ? open_blob(db, r) : -EIO;
	if (!err)
		err = db_errno(sqlite3_blob_read(r->open, out, (int)size, (int)off));
	if (r->beside)
		close_blob(r);
	pthread_mutex_unlock(lock_of(r));
	return err;
}

/* Count a damaged blob and remember its row for deletion (uw_kept.damaged). */
static void is_damaged(void *ctx)
{
	struct reading *r = ctx;
	struct store *s = r->store;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->counters.damaged++;
	remember(s, r->drop, r->row, NULL);
	pthread_mutex_unlock(&s->lock);
}

/* Unlink and free a reading (uw_kept.release). The store may be closed already. */
static void end_reading(void *ctx)
{
	struct reading *r = ctx;
	struct store *s = r->store;

	if (s) {
		pthread_mutex_lock(lock_of(r));
		close_blob(r);
		*r->link = r->next;
		if (r->next)
			r->next->link = r->link;
		pthread_mutex_unlock(lock_of(r));
	}
	free(r);
}

/* Open the separate read-only connection, once, without mapping the database. */
static int begin_beside(struct store *s)
{
	char error[DB_ERROR_SIZE];
	int err;

	if (s->beside.db)
		return 0;
	err = db_open(s->path, DB_READ, &s->beside.db, error);
	return err ? err : db_unmap(s->beside.db);
}

/*
 * Begin to read a blob lazily; the owner of *out releases it. Return -ENOMEM or what opening the
 * blob failed with.
 */
static int begin_reading(struct store *s, const struct reading *what, struct uw_kept *out)
{
	struct reading *r = malloc(sizeof(*r)), **list = &s->readings;
	int err = 0;

	if (!r)
		return -ENOMEM;
	*r = *what;
	r->store = s;
	r->beside = s->beside.wanted;
	r->size = -1;
	if (r->beside) {
		pthread_mutex_lock(&s->beside.lock);
		list = &s->beside.readings;
		err = begin_beside(s);
	}
	if (!err)
		err = open_blob(r->beside ? s->beside.db : s->db, r);
	if (!err) {
		r->next = *list;
		r->link = list;
		if (r->next)
			r->next->link = &r->next;
		*list = r;
	}
	if (r->beside) {
		close_blob(r);
		pthread_mutex_unlock(&s->beside.lock);
	}
	if (err) {
		free(r);
		return err;
	}
	*out = (struct uw_kept){ .size = (uint64_t)r->size,
				 .read = read_part,
				 .damaged = is_damaged,
				 .release = end_reading,
				 .ctx = r };
	return 0;
}

/*
 * Read a whole blob into memory aligned to BLOB_ALIGN; the caller frees *out. -EBADMSG: the row has
 * no such blob, or the database's pages are damaged.
 */
static int read_blob(struct store *s, const struct reading *what, void **out, size_t *size)
{
	struct reading r = *what;
	void *copy = NULL;
	int err;

	r.size = -1;
	err = open_blob(s->db, &r);
	if (!err) {
		*size = (size_t)r.size;
		copy = aligned_alloc(BLOB_ALIGN, (*size + BLOB_ALIGN) & ~(size_t)(BLOB_ALIGN - 1));
		err = copy ? 0 : -ENOMEM;
	}
	if (!err) {
		populate(copy, *size);
		err = db_errno(sqlite3_blob_read(r.open, copy, r.size, 0));
	}
	(void)sqlite3_blob_close(r.open);
	if (err)
		free(copy);
	else
		*out = copy;
	return err;
}

/* Count a damaged table and delete it at once, unless the store is read-only. */
static void drop_table(struct store *s, int64_t table)
{
	s->counters.damaged++;
	if (s->read_only)
		return;
	rest(s);
	if (run(s, DROP_TABLE, &table, 1))
		(void)failed(s, "drop a damaged table", -EIO);
}

/* How an object takes one of a table's two blobs: as a whole, or to be read as needed. */
struct part {
	const char *column;
	int (*take)(struct uw_object *object, void *blob, size_t size,
		    const struct uw_identity *known);
	int (*take_kept)(struct uw_object *object, const struct uw_kept *kept,
			 const struct uw_identity *known);
};

static const struct part rules_part = { "rules", uw_object_take, uw_object_take_kept };
static const struct part procs_part = { "procs", uw_object_take_procs, uw_object_take_kept_procs };

/* Give one blob of a table to the object, which takes ownership of it. */
static int take_part(struct store *s, const struct part *part, struct uw_object *object,
		     int64_t table, bool whole, const struct uw_identity *identity)
{
	const struct reading what = {
		.table = "tables", .column = part->column, .row = table, .drop = DROP_TABLE
	};
	struct uw_kept kept;
	size_t size;
	void *blob;
	int err;

	if (whole) {
		err = read_blob(s, &what, &blob, &size);
		return err ? err : part->take(object, blob, size, identity);
	}
	err = begin_reading(s, &what, &kept);
	return err ? err : part->take_kept(object, &kept, identity);
}

/* Return whether err is the blob's fault, and not a failure to read it. */
static bool is_bad(int err)
{
	return err == -EBADMSG || err == -ENOTSUP || err == -ENOENT || err == -EINVAL;
}

/* Give object the table of row id. A damaged table is deleted: -ENOENT. */
static int take_table(struct store *s, struct uw_object *object, int64_t id, bool whole,
		      const struct uw_identity *identity)
{
	bool has_rules, has_procs;
	sqlite3_stmt *stmt;
	int64_t table;
	int err;

	stmt = statement(s, FIND_TABLE, &err);
	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, id);
	(void)sqlite3_bind_int64(stmt, 2, TABLE_VERSION);
	(void)sqlite3_bind_int64(stmt, 3, TABLE_BUILDER);
	err = step(stmt);
	if (err != 1) {
		release(stmt);
		return err ? err : -ENOENT;
	}
	table = sqlite3_column_int64(stmt, 0);
	has_rules = sqlite3_column_int(stmt, 1);
	has_procs = sqlite3_column_int(stmt, 2);
	err = has_rules || has_procs ? 0 : -EBADMSG;
	if (has_rules)
		err = take_part(s, &rules_part, object, table, whole, identity);
	if (!err && has_procs)
		err = take_part(s, &procs_part, object, table, whole, identity);
	release(stmt);
	if (is_bad(err)) {
		drop_table(s, table);
		return -ENOENT;
	}
	return err;
}

/*
 * Store the file's inode with the object whose contents it has, if the inode is vouched for; and
 * the only user who can write the file, if there is one.
 */
static int add_file(struct store *s, int64_t id, const struct uw_object *object,
		    const struct store_file *f, const struct uw_identity *identity)
{
	const int64_t row[] = { (int64_t)f->dev,
				(int64_t)f->ino,
				(int64_t)f->elf_off,
				(int64_t)f->size,
				f->mtime_ns,
				f->ctime_ns,
				(int64_t)f->uid,
				id,
				(int64_t)key_of_file(f, uw_object_build_id(object),
						     uw_object_machine(object), identity) };
	const int64_t owner[] = { id, f->owner };
	int err = f->vouched ? run(s, ADD_FILE, row, 9) : 0;

	return !err && f->vouched && f->owner >= 0 ? run(s, VOUCH, owner, 2) : err;
}

enum how { WHOLE, IN_PARTS, AT_ONCE }; /* as in store_find, _parts, _at_once */

/* Look up the table by the file's inode, then by its contents, and give it to object. */
static int find(struct store *s, struct uw_object *object, const struct store_file *file,
		enum how how)
{
	struct uw_identity identity;
	bool by_file = true;
	int64_t id = 0, used = 0;
	int err = find_by_file(s, object, file, &id, &used, &identity);

	if (err == -ENOENT && (how != AT_ONCE || file->size <= HASH_AT_ONCE_MAX)) {
		by_file = false;
		err = find_by_contents(s, object, &id, &identity);
	}
	if (!err)
		err = take_table(s, object, id, how == WHOLE, &identity);
	if (!err && (!by_file || is_stale(used)))
		remember(s, MARK_USED, id, file->path ? file->path : "");
	/* Store the inode, so that the next run need not hash the file. */
	if (!err && !by_file && !s->read_only) {
		rest(s);
		(void)add_file(s, id, object, file, &identity);
	}
	return err;
}

/* Look up a table under the lock, and count the result. */
static int store_look(struct store *s, struct uw_object *object, const struct store_file *file,
		      enum how how)
{
	int err = -ENOENT;

	if (!s)
		return err;
	pthread_mutex_lock(&s->lock);
	if (!s->db && !gave_up(s)) {
		s->counters.missing++;
	} else if (!gave_up(s)) {
		err = find(s, object, file, how);
		if (err == -ENOENT)
			s->counters.missing++;
		else if (err)
			err = failed(s, "look a table up", err);
		else
			s->counters.found++;
		if (!err)
			s->failures = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

int store_find(struct store *s, struct uw_object *object, const struct store_file *file)
{
	return store_look(s, object, file, WHOLE);
}

int store_find_parts(struct store *s, struct uw_object *object, const struct store_file *file)
{
	return store_look(s, object, file, IN_PARTS);
}

int store_find_at_once(struct store *s, struct uw_object *object, const struct store_file *file)
{
	return store_look(s, object, file, AT_ONCE);
}

/* ---- files that no longer exist ----------------------------------------------------- */

/*
 * Make an object of the row that stmt (FIND_GONE) has stepped to. A damaged table is remembered for
 * deletion: -ENOENT.
 */
static int open_gone(struct store *s, sqlite3_stmt *stmt, struct uw_object **out)
{
	const struct uw_identity identity = { .size = (uint64_t)sqlite3_column_int64(stmt, 2),
					      .hash = (uint64_t)sqlite3_column_int64(stmt, 3) };
	const int64_t table = sqlite3_column_int64(stmt, 5);
	const struct reading what = {
		.table = "tables", .column = "rules", .row = table, .drop = DROP_TABLE
	};
	bool has_procs = sqlite3_column_int(stmt, 6);
	struct uw_object *object = NULL;
	struct uw_kept kept;
	int err = begin_reading(s, &what, &kept);

	if (!err)
		err = uw_object_open_kept(&kept, &object);
	if (!err && has_procs)
		err = take_part(s, &procs_part, object, table, false, &identity);
	if (is_bad(err)) {
		s->counters.damaged++;
		remember(s, DROP_TABLE, table, NULL);
		err = -ENOENT;
	}
	if (err) {
		uw_object_put(object);
		return err;
	}
	if (is_stale(sqlite3_column_int64(stmt, 4)))
		remember(s, MARK_USED, sqlite3_column_int64(stmt, 0),
			 (const char *)sqlite3_column_text(stmt, 7));
	*out = object;
	return 0;
}

/*
 * Try the tables of a build-id, root's first, until one of a trusted owner is sound. -EPERM: there
 * are only tables of other owners.
 */
static int find_gone(struct store *s, const struct uw_build_id *id, struct uw_object **out)
{
	bool refused = false;
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, FIND_GONE, &err);
	if (!stmt)
		return err;
	(void)sqlite3_bind_blob(stmt, 1, id->bytes, id->size, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 2, TABLE_VERSION);
	(void)sqlite3_bind_int64(stmt, 3, TABLE_BUILDER);
	while ((err = step(stmt)) == 1) {
		if (identity_is_trusted(sqlite3_column_int64(stmt, 1))) {
			err = open_gone(s, stmt, out);
			if (err != -ENOENT)
				break;
			continue;
		}
		refused = true;
	}
	if (!err && !*out)
		err = refused ? -EPERM : -ENOENT;
	release(stmt);
	return err;
}

int store_find_gone(struct store *s, const struct uw_build_id *id, struct uw_object **out)
{
	int err = -ENOENT;

	*out = NULL;
	if (!s || !id->size)
		return err;
	pthread_mutex_lock(&s->lock);
	if (s->db && !gave_up(s)) {
		err = find_gone(s, id, out);
		s->counters.found += !err;
		if (err && err != -ENOENT && err != -EPERM)
			err = failed(s, "look a table up", err);
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

/* ---- insertion ---------------------------------------------------------------------- */

/*
 * Delete the least recently used symbols and objects until the database is within budget (bytes),
 * but not the object spare. This runs in the transaction that made the database grow.
 */
static int evict(struct store *s, uint64_t budget, int64_t spare)
{
	int64_t bytes, id;
	int err = ask(s, USED_BYTES, &bytes);

	if (err || (uint64_t)bytes <= budget)
		return err;
	/* Delete a tenth more, so that not every insertion has to evict. */
	budget -= budget / 10;
	while (!err && (uint64_t)bytes > budget) {
		err = ask(s, OLDEST_SYMBOLS, &id);
		if (!err) {
			err = run(s, DROP_SYMBOLS, &id, 1);
		} else if (err == -ENOENT) {
			err = ask(s, OLDEST, &id);
			if (err || id == spare)
				break;
			err = run(s, DROP_OBJECT, &id, 1);
		}
		s->counters.evicted += !err;
		if (!err)
			err = ask(s, USED_BYTES, &bytes);
	}
	return err == -ENOENT ? 0 : err;
}

int store_shrink(struct store *s, uint64_t budget)
{
	int err;

	pthread_mutex_lock(&s->lock);
	err = begin(s);
	if (!err)
		err = end(s, evict(s, budget ? budget : s->budget, -1));
	if (!err)
		err = db_exec(s->db, "PRAGMA incremental_vacuum");
	if (!err)
		err = db_exec(s->db, "PRAGMA wal_checkpoint(TRUNCATE)");
	if (err)
		(void)failed(s, "shrink", err);
	pthread_mutex_unlock(&s->lock);
	return err;
}

struct made { /* what is to be inserted */
	struct uw_identity identity;
	struct identity contents;
	const void *rules; /* borrowed from the object; NULL: there is nothing to compile */
	size_t rules_size;
	const void *procs; /* NULL: none */
	size_t procs_size;
};

static int64_t n_procs(const struct made *made)
{
	const struct procs_header *h = made->procs;

	return h->n;
}

/* Insert the object or update the row that it has already; give the row's id. */
static int add_object(struct store *s, const struct uw_build_id *build_id, uint16_t machine,
		      const struct store_file *file, const struct made *made, int64_t *id)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, ADD_OBJECT, &err);
	if (!stmt)
		return err;
	bind_bytes(stmt, 1, build_id->bytes, build_id->size);
	(void)sqlite3_bind_int64(stmt, 2, (int64_t)made->identity.size);
	(void)sqlite3_bind_int64(stmt, 3, (int64_t)made->identity.hash);
	(void)sqlite3_bind_int64(stmt, 4, machine);
	(void)sqlite3_bind_text(stmt, 5, file->path ? file->path : "", -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 6, (int64_t)file->size);
	(void)sqlite3_bind_int64(stmt, 7, time(NULL));
	(void)sqlite3_bind_int64(stmt, 8, file->owner);
	(void)sqlite3_bind_blob(stmt, 9, made->contents.bytes, IDENTITY_SIZE, SQLITE_STATIC);
	err = step(stmt);
	if (err == 1) {
		*id = sqlite3_column_int64(stmt, 0);
		err = step(stmt);
	} else if (!err) {
		err = -EBADMSG;
	}
	release(stmt);
	return err;
}

/* Insert a table. A table that is there already stays as it is. */
static int add_table(struct store *s, int64_t object, const struct made *made)
{
	const struct table_header *h = made->rules;
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, ADD_TABLE, &err);
	if (!stmt)
		return err;
	(void)sqlite3_bind_int64(stmt, 1, object);
	(void)sqlite3_bind_int64(stmt, 2, TABLE_VERSION);
	(void)sqlite3_bind_int64(stmt, 3, TABLE_BUILDER);
	(void)sqlite3_bind_int64(stmt, 4, time(NULL));
	(void)sqlite3_bind_int64(stmt, 5, h ? h->n_rows : 0);
	(void)sqlite3_bind_int64(stmt, 6, h ? h->n_rules : 0);
	if (made->procs)
		(void)sqlite3_bind_int64(stmt, 7, n_procs(made));
	(void)sqlite3_bind_int64(stmt, 8, (int64_t)(made->rules_size + made->procs_size));
	if (made->procs)
		(void)sqlite3_bind_blob64(stmt, 9, made->procs, made->procs_size, SQLITE_STATIC);
	if (h)
		(void)sqlite3_bind_blob64(stmt, 10, made->rules, made->rules_size, SQLITE_STATIC);
	err = step(stmt);
	release(stmt);
	if (!err)
		s->counters.kept += (uint64_t)sqlite3_changes(s->db);
	return err;
}

/*
 * Bind the four parameters that identify a file in quarantine. -ENOENT: the file has no path, or
 * neither a build-id nor a known inode.
 */
static int bind_quarantine(sqlite3_stmt *stmt, const struct uw_build_id *id,
			   const struct store_file *f)
{
	static const struct uw_build_id none;
	struct identity identity;
	int64_t hash;

	id = id ? id : &none;
	if (!f->path || (!f->known && !id->size))
		return -ENOENT;
	bind_bytes(stmt, 1, id->bytes, id->size);
	(void)sqlite3_bind_text(stmt, 2, f->path, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 3, TABLE_BUILDER);
	identity_of_file(f, id, &identity);
	memcpy(&hash, identity.bytes, sizeof(hash));
	(void)sqlite3_bind_int64(stmt, 4, f->known ? hash : 0);
	return 0;
}

/*
 * Run a statement on "building" with the parameters of bind_quarantine(). If pid is not 0, also
 * bind the further parameters of BEGIN_BUILDING.
 */
static int run_building(struct store *s, enum statement which, const struct uw_build_id *id,
			const struct store_file *file, int64_t pid)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, which, &err);
	if (!stmt)
		return err;
	err = bind_quarantine(stmt, id, file);
	if (pid) {
		(void)sqlite3_bind_int64(stmt, 5, pid);
		(void)sqlite3_bind_int64(stmt, 6, (int64_t)alive_since(pid));
		(void)sqlite3_bind_int64(stmt, 7, time(NULL));
	}
	if (!err)
		err = step(stmt);
	release(stmt);
	return err;
}

/* Insert object, table and file in one transaction, delete the row of "building", and evict. */
static int insert(struct store *s, struct uw_object *object, const struct store_file *file,
		  const struct made *made)
{
	int64_t id = 0;
	int err = begin(s);

	if (err)
		return err;
	err = add_object(s, uw_object_build_id(object), uw_object_machine(object), file, made, &id);
	if (!err)
		err = add_table(s, id, made);
	if (!err)
		err = add_file(s, id, object, file, &made->identity);
	if (!err)
		err = run_building(s, BUILT, uw_object_build_id(object), file, 0);
	if (err == -ENOENT) /* nothing identifies the file, so "building" has no row either */
		err = 0;
	if (!err)
		err = evict(s, s->budget, id);
	return end(s, err);
}

/* Return whether the compilation is to stop (for uw_object_compile_unless). */
static bool is_stopped(void *ctx)
{
	const atomic_bool *stop = ctx;

	return stop && atomic_load_explicit(stop, memory_order_relaxed);
}

/* Compile object until *stop is true. stop may be NULL: nothing stops it. */
static int compile(struct uw_object *object, const atomic_bool *stop)
{
	return uw_object_compile_unless(object, is_stopped, (void *)(uintptr_t)stop);
}

/*
 * Compile the object and hash what its table is made from. This takes long, so it takes no lock.
 * The caller frees *procs. *built: the table was compiled here.
 */
static int make(struct uw_object *object, const atomic_bool *stop, struct made *made, void **procs,
		bool *built)
{
	int err = uw_object_identify(object, &made->identity), err_compile = 0;

	*built = false;
	if (!err)
		err = identity_of_object(object, &made->contents);
	if (!err && !uw_object_compiled(object, &made->rules_size)) {
		err = err_compile = compile(object, stop);
		*built = !err;
		if (err == -ENOENT || err == -ENOTSUP) /* this is worth storing, too */
			err = 0;
	}
	if (err)
		return err;
	made->rules = uw_object_compiled(object, &made->rules_size);
	/*
	 * The object has a lazily read table that turned out to be unreadable; the next run
	 * compiles another.
	 */
	if (!made->rules && !err_compile)
		return -EIO;
	err = uw_object_procs(object, procs, &made->procs_size);
	made->procs = *procs;
	if (err == -ENOTSUP && made->rules)
		return 0;
	return err;
}

/* ---- quarantine ------------------------------------------------------------------- */

/*
 * Log why a file is in quarantine: the first file of a run as a warning, others for --verbose only.
 */
static void say_quarantined(struct store *s, const char *path, sqlite3_stmt *stmt)
{
	const char *reason = (const char *)sqlite3_column_text(stmt, 0);
	const char *since = (const char *)sqlite3_column_text(stmt, 1);

	reason = reason ? reason : "nobody knows why";
	since = since ? since : "long";
	if (s->said_quarantine)
		log_debug("%s: in quarantine since %s: %s", path, since, reason);
	else
		log_warning("%s: no table is made of it, it is in quarantine since %s: %s; "
			    "offwind cache verify tells of all, with --repair lets them go",
			    path, since, reason);
	s->said_quarantine = true;
}

bool store_is_quarantined(struct store *s, const struct uw_build_id *id,
			  const struct store_file *file)
{
	sqlite3_stmt *stmt;
	int err = 0;

	if (!s)
		return false;
	pthread_mutex_lock(&s->lock);
	stmt = s->db && !gave_up(s) ? statement(s, IS_QUARANTINED, &err) : NULL;
	if (stmt) {
		err = bind_quarantine(stmt, id, file);
		if (!err)
			err = step(stmt);
		if (err == 1)
			say_quarantined(s, file->path, stmt);
		release(stmt);
	}
	s->counters.quarantined += err == 1;
	pthread_mutex_unlock(&s->lock);
	return err == 1;
}

/* Insert or update a quarantine row, and release what other versions of the builder refused. */
static int put_in_quarantine(struct store *s, const struct uw_build_id *id,
			     const struct store_file *file, const char *reason)
{
	const int64_t builder = TABLE_BUILDER;
	sqlite3_stmt *stmt;
	int err = run(s, RELEASE, &builder, 1);

	if (err)
		return err;
	stmt = statement(s, QUARANTINE, &err);
	if (!stmt)
		return err;
	err = bind_quarantine(stmt, id, file);
	(void)sqlite3_bind_text(stmt, 5, reason, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 6, time(NULL));
	if (!err)
		err = step(stmt);
	release(stmt);
	return err;
}

int store_quarantine(struct store *s, const struct uw_build_id *id, const struct store_file *file,
		     const char *reason)
{
	int err;

	if (!s)
		return -EROFS;
	pthread_mutex_lock(&s->lock);
	err = begin(s);
	if (!err)
		err = end(s, put_in_quarantine(s, id, file, reason));
	if (err && err != -ENOENT && err != -EROFS)
		(void)failed(s, "keep what was refused", err);
	pthread_mutex_unlock(&s->lock);
	return err;
}

/* Count the processes that ended while they compiled the file. */
static int count_deaths(struct store *s, const struct uw_build_id *id,
			const struct store_file *file, int64_t *n)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, BUILDING, &err);
	if (!stmt)
		return err;
	err = bind_quarantine(stmt, id, file);
	while (!err && (err = step(stmt)) == 1) {
		*n += alive_ended(sqlite3_column_int64(stmt, 0),
				  (uint64_t)sqlite3_column_int64(stmt, 1));
		err = 0;
	}
	release(stmt);
	return err;
}

/*
 * Insert a row into "building" for the time that file is being compiled: if this process crashes,
 * later processes find the row. *row is what to pass to end_building(); 0: no row was inserted,
 * which is no reason not to compile. -EPERM: DEATHS_MAX processes ended while they compiled the
 * file, and it is now in quarantine.
 */
static int begin_building(struct store *s, const struct uw_build_id *id,
			  const struct store_file *file, int64_t *row)
{
	const int64_t stale[] = { TABLE_BUILDER, time(NULL) - DEATH_SECONDS };
	char reason[96];
	int64_t deaths = 0;
	int err;

	*row = 0;
	pthread_mutex_lock(&s->lock);
	err = gave_up(s) ? -EIO : begin(s);
	if (!err) {
		err = run(s, FORGET_BUILDING, stale, 2);
		if (!err)
			err = count_deaths(s, id, file, &deaths);
		if (!err && deaths >= DEATHS_MAX) {
			(void)snprintf(reason, sizeof(reason),
				       "%" PRId64 " processes ended while they compiled it",
				       deaths);
			err = put_in_quarantine(s, id, file, reason);
			if (!err)
				err = run_building(s, BUILT, id, file, 0);
		} else if (!err) {
			err = run_building(s, BEGIN_BUILDING, id, file, getpid());
			*row = sqlite3_last_insert_rowid(s->db);
		}
		err = end(s, err);
		if (err)
			*row = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return !err && deaths >= DEATHS_MAX ? -EPERM : 0;
}

/* Delete the row of "building" that begin_building() inserted. row 0: none. */
static void end_building(struct store *s, int64_t row)
{
	int err;

	if (!row)
		return;
	pthread_mutex_lock(&s->lock);
	err = gave_up(s) ? -EIO : begin(s);
	if (!err)
		err = end(s, run(s, END_BUILDING, &row, 1));
	s->left_building = s->left_building || err;
	pthread_mutex_unlock(&s->lock);
}

/* Return whether err is a verdict on the file, so that another attempt would fail the same way. */
static bool is_refused(int err)
{
	return err == -EBADMSG || err == -ENOTSUP || err == -E2BIG || err == -EFBIG;
}

int store_keep(struct store *s, struct uw_object *object, const struct store_file *file)
{
	return store_keep_unless(s, object, file, NULL);
}

int store_keep_unless(struct store *s, struct uw_object *object, const struct store_file *file,
		      const atomic_bool *stop)
{
	const struct uw_build_id *id = uw_object_build_id(object);
	struct made made = { .rules = NULL };
	void *procs = NULL;
	int64_t row;
	bool built;
	int err;

	if (!s || s->read_only) {
		err = compile(object, stop);
		return err ? err : -EROFS;
	}
	if (store_is_quarantined(s, id, file))
		return -EPERM;
	if (begin_building(s, id, file, &row)) {
		(void)store_is_quarantined(s, id, file); /* logs why it now is in quarantine */
		return -EPERM;
	}
	err = make(object, stop, &made, &procs, &built);
	if (is_refused(err))
		(void)store_quarantine(s, id, file,
				       err == -ENOTSUP ? "no table can be made of it"
				       : err == -EFBIG ? "its table would take too long or too much"
						       : strerror(-err));
	pthread_mutex_lock(&s->lock);
	s->counters.built += built;
	if (!err && gave_up(s))
		err = -EIO;
	else if (!err && (int64_t)(made.rules_size + made.procs_size) >= BLOB_MAX)
		err = -ENOSPC;
	else if (!err) {
		err = insert(s, object, file, &made);
		if (err)
			(void)failed(s, "keep a table", err);
		else
			s->failures = 0;
	}
	pthread_mutex_unlock(&s->lock);
	if (err)
		end_building(s, row);
	free(procs);
	return err;
}

int store_import(struct store *s, const struct store_blobs *blobs, bool *kept)
{
	const struct table_header *h = blobs->rules;
	const struct procs_header *p = blobs->procs;
	/* The user who imports a table vouches for it. */
	struct store_file file = { .path = blobs->path, .owner = (int64_t)geteuid() };
	struct made made = { .rules = blobs->rules,
			     .rules_size = blobs->rules_size,
			     .procs = blobs->procs,
			     .procs_size = blobs->procs_size };
	struct uw_build_id build_id = { .size = 0 };
	struct uw_rows *rows;
	uint64_t before = s->counters.kept;
	int64_t id;
	int err = uw_rows_open(made.rules, made.rules_size, made.procs, made.procs_size, &rows);

	if (err)
		return err;
	uw_rows_free(rows);
	if (h->builder != TABLE_BUILDER)
		return -ENOTSUP;
	if (p && (p->src_size != h->src_size || p->src_hash != h->src_hash ||
		  p->blob.machine != h->blob.machine))
		return -EBADMSG;
	build_id.size = h->build_id_size;
	memcpy(build_id.bytes, h->build_id, build_id.size);
	made.identity = (struct uw_identity){ .size = h->src_size, .hash = h->src_hash };
	memcpy(made.contents.bytes, blobs->identity, IDENTITY_SIZE);
	if (s->read_only)
		return -EROFS;
	pthread_mutex_lock(&s->lock);
	err = begin(s);
	if (!err) {
		err = add_object(s, &build_id, h->blob.machine, &file, &made, &id);
		if (!err)
			err = add_table(s, id, &made);
		if (!err)
			err = evict(s, s->budget, id);
		err = end(s, err);
	}
	*kept = s->counters.kept != before;
	pthread_mutex_unlock(&s->lock);
	return err;
}

const char *store_path(const struct store *s)
{
	return s->path;
}

int store_set_budget(struct store *s, uint64_t budget)
{
	char text[128];
	int err;

	(void)snprintf(text, sizeof(text),
		       budget ? "INSERT OR REPLACE INTO settings VALUES ('budget', %" PRIu64 ")"
			      : "DELETE FROM settings WHERE name = 'budget'",
		       budget);
	pthread_mutex_lock(&s->lock);
	err = begin(s);
	if (!err)
		err = end(s, db_exec(s->db, text));
	if (!err)
		s->budget = budget ? budget : STORE_BUDGET_DEFAULT;
	pthread_mutex_unlock(&s->lock);
	return err;
}

int store_forget(struct store *s, int64_t before, uint64_t *n)
{
	int err;

	pthread_mutex_lock(&s->lock);
	err = begin(s);
	if (!err)
		err = run(s, FORGET, &before, 1);
	*n = err ? 0 : (uint64_t)sqlite3_changes(s->db);
	if (!err)
		err = run(s, FORGET_SYMBOLS, &before, 1);
	if (s->db)
		err = end(s, err);
	pthread_mutex_unlock(&s->lock);
	return err;
}

/* ---- wanted objects and symbols ----------------------------------------------------- */

static bool same_file(const struct store_file *a, const struct store_file *b)
{
	return a->known && b->known && a->dev == b->dev && a->ino == b->ino &&
	       a->elf_off == b->elf_off;
}

/* Return whether the file is wanted already, or the list is full. */
static bool is_wanted(const struct store *s, const struct store_file *file)
{
	for (size_t i = 0; i < s->n_wanted; i++)
		if (same_file(&s->wanted[i].file, file))
			return true;
	return s->n_wanted >= WANTED_MAX;
}

/* Return whether the file's symbols (or lines) are wanted already, or the list is full. */
static bool symbols_are_wanted(const struct store *s, const struct store_file *file, bool lines)
{
	for (size_t i = 0; i < s->n_symbols; i++)
		if (same_file(&s->symbols[i].file, file) && !s->symbols[i].table == lines)
			return true;
	return s->n_symbols >= WANTED_MAX;
}

/* ---- symbols ---------------------------------------------------------------------- */

static uint64_t key_of_lines(const struct store_file *f, const struct uw_build_id *id)
{
	return key_of_file(f, id, 0, &(struct uw_identity){ .size = READER_LINES });
}

/* Open a symbol table that is read as it is needed. */
static int take_symbols(struct store *s, const struct reading *what, uint64_t key,
			struct sym_table **out)
{
	struct uw_kept kept;
	int err = begin_reading(s, what, &kept);

	return err ? err : sym_table_take_kept(&kept, key, out);
}

/* Read and unpack all lines of a file. */
static int take_lines(struct store *s, const struct reading *what, uint64_t key,
		      struct sym_lines **out)
{
	size_t size;
	void *blob;
	int err = read_blob(s, what, &blob, &size);

	return err ? err : sym_lines_unpack(blob, size, key, out);
}

/* What to look up: symbols or lines. One of table and lines is NULL. */
struct search {
	const struct store_file *file; /* NULL: the file no longer exists */
	const struct store_file *beside;
	const struct uw_build_id *id;
	struct sym_table **table;
	struct sym_lines **lines;
};

/* Return the version number of the reader, which keeps symbols and lines of older readers apart. */
static int reader_of(bool lines)
{
	return lines ? (int)READER_LINES : (int)SYMBOLS_READER;
}

/*
 * Take the row's blob, whose key must be that of file f. A damaged blob is remembered for deletion:
 * -ENOENT.
 */
static int take_either(struct store *s, const struct search *w, const struct store_file *f,
		       int64_t row, int64_t used)
{
	const struct reading what = {
		.table = "symbols", .column = "symbols", .row = row, .drop = DROP_SYMBOLS
	};
	int err = w->table ? take_symbols(s, &what, key_of_symbols(f, w->id), w->table)
			   : take_lines(s, &what, key_of_lines(f, w->id), w->lines);

	if (!err && is_stale(used))
		remember(s, USED_SYMBOLS, row, NULL);
	if (err == -EBADMSG || err == -ENOTSUP) {
		s->counters.damaged++;
		remember(s, DROP_SYMBOLS, row, NULL);
		err = -ENOENT;
	}
	return err;
}

/* Look up symbols or lines by the file's inode, its build-id and the debug file beside it. */
static int find_symbols(struct store *s, const struct search *w)
{
	const struct store_file *f = w->file;
	const int64_t key[] = { (int64_t)f->dev,     (int64_t)f->ino,  (int64_t)f->elf_off,
				reader_of(w->lines), (int64_t)f->size, f->mtime_ns,
				f->ctime_ns,	     (int64_t)f->uid };
	struct identity beside;
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, FIND_SYMBOLS, &err);
	if (!stmt)
		return err;
	for (int i = 0; i < 8; i++)
		(void)sqlite3_bind_int64(stmt, i + 1, key[i]);
	bind_bytes(stmt, 9, w->id->bytes, w->id->size);
	if (w->beside)
		identity_of_file(w->beside, NULL, &beside);
	bind_bytes(stmt, 10, beside.bytes, w->beside ? IDENTITY_SIZE : 0);
	err = step(stmt);
	if (err == 1)
		err = take_either(s, w, f, sqlite3_column_int64(stmt, 0),
				  sqlite3_column_int64(stmt, 1));
	else if (!err)
		err = -ENOENT;
	release(stmt);
	return err;
}

/*
 * Look up symbols or lines by build-id alone: of the rows whose owner is trusted, the one with the
 * most symbols.
 */
static int find_gone_symbols(struct store *s, const struct search *w)
{
	int err, found = -ENOENT;
	sqlite3_stmt *stmt;

	stmt = statement(s, FIND_GONE_SYMBOLS, &err);
	if (!stmt)
		return err;
	bind_bytes(stmt, 1, w->id->bytes, w->id->size);
	(void)sqlite3_bind_int64(stmt, 2, reader_of(w->lines));
	while (found == -ENOENT && (err = step(stmt)) == 1) {
		const struct store_file f = {
			.dev = (uint64_t)sqlite3_column_int64(stmt, 3),
			.ino = (uint64_t)sqlite3_column_int64(stmt, 4),
			.elf_off = (uint64_t)sqlite3_column_int64(stmt, 5),
			.size = (uint64_t)sqlite3_column_int64(stmt, 6),
			.mtime_ns = sqlite3_column_int64(stmt, 7),
			.ctime_ns = sqlite3_column_int64(stmt, 8),
			.uid = (uint64_t)sqlite3_column_int64(stmt, 9),
		};

		if (identity_is_trusted(sqlite3_column_int64(stmt, 2)))
			found = take_either(s, w, &f, sqlite3_column_int64(stmt, 0),
					    sqlite3_column_int64(stmt, 1));
	}
	release(stmt);
	return found == -ENOENT && err < 0 ? err : found;
}

/* Look up symbols or lines under the lock, and count the result. */
static int find_either(struct store *s, const struct search *w)
{
	int err = -ENOENT;

	if (!s ||
	    (w->file ? !w->file->vouched || (w->beside && !w->beside->vouched) : !w->id->size))
		return err;
	pthread_mutex_lock(&s->lock);
	if (s->db && !gave_up(s)) {
		err = w->file ? find_symbols(s, w) : find_gone_symbols(s, w);
		if (w->table)
			s->counters.symbols_found += !err;
		else
			s->counters.lines_found += !err;
		if (err && err != -ENOENT)
			err = failed(s, "look symbols up", err);
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

int store_find_symbols(struct store *s, const struct store_file *file,
		       const struct store_file *beside, const struct uw_build_id *build_id,
		       struct sym_table **out)
{
	return find_either(
		s,
		&(struct search){ .file = file, .beside = beside, .id = build_id, .table = out });
}

int store_find_lines(struct store *s, const struct store_file *file,
		     const struct uw_build_id *build_id, struct sym_lines **out)
{
	return find_either(s, &(struct search){ .file = file, .id = build_id, .lines = out });
}

/*
 * Return who vouches for symbols made from two files: if one file is root's, the other file's
 * owner; if both are one user's, that user; else STORE_NOBODY.
 */
static int64_t common_owner(int64_t a, int64_t b)
{
	if (a == 0 || a == b)
		return b;
	return b == 0 ? a : STORE_NOBODY;
}

/* Take ownership of a symbol table or of lines: remember it for store_work(), or free it. */
static void want_either(struct store *s, const struct store_file *file,
			const struct store_file *beside, const struct uw_build_id *build_id,
			struct sym_table *table, struct sym_lines *lines)
{
	struct wanted_symbols *w;
	char *path;

	if (!s || !file->vouched || (beside && !beside->vouched)) {
		sym_table_free(table);
		sym_lines_free(lines);
		return;
	}
	path = strdup(file->path ? file->path : "");
	pthread_mutex_lock(&s->lock);
	if (path && !s->read_only && !gave_up(s) && !symbols_are_wanted(s, file, !table) &&
	    !array_make_room((void **)&s->symbols, s->n_symbols, &s->room_symbols,
			     sizeof(*s->symbols))) {
		w = &s->symbols[s->n_symbols++];
		*w = (struct wanted_symbols){ .table = table,
					      .lines = lines,
					      .file = *file,
					      .path = path,
					      .build_id = *build_id };
		w->file.path = path;
		if (beside) {
			w->has_beside = true;
			identity_of_file(beside, NULL, &w->beside);
			w->file.owner = common_owner(file->owner, beside->owner);
		}
		table = NULL;
		lines = NULL;
		path = NULL;
	}
	pthread_mutex_unlock(&s->lock);
	sym_table_free(table);
	sym_lines_free(lines);
	free(path);
}

void store_want_symbols(struct store *s, const struct store_file *file,
			const struct store_file *beside, const struct uw_build_id *build_id,
			struct sym_table *table)
{
	want_either(s, file, beside, build_id, table, NULL);
}

void store_want_lines(struct store *s, const struct store_file *file,
		      const struct uw_build_id *build_id, struct sym_lines *lines)
{
	want_either(s, file, NULL, build_id, NULL, lines);
}

/* Insert the packed symbols or lines of a file. */
static int add_symbols(struct store *s, const struct wanted_symbols *w, const void *blob,
		       size_t size)
{
	const struct store_file *f = &w->file;
	const int64_t numbers[] = { (int64_t)f->dev,	  (int64_t)f->ino,  (int64_t)f->elf_off,
				    reader_of(!w->table), (int64_t)f->size, f->mtime_ns,
				    f->ctime_ns,	  (int64_t)f->uid };
	size_t n = w->table ? sym_table_size(w->table) : sym_lines_size(w->lines);
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, ADD_SYMBOLS, &err);
	if (!stmt)
		return err;
	for (int i = 0; i < 8; i++)
		(void)sqlite3_bind_int64(stmt, i + 1, numbers[i]);
	bind_bytes(stmt, 9, w->build_id.bytes, w->build_id.size);
	bind_bytes(stmt, 10, w->beside.bytes, w->has_beside ? IDENTITY_SIZE : 0);
	(void)sqlite3_bind_text(stmt, 11, w->path, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 12, time(NULL));
	(void)sqlite3_bind_int64(stmt, 13, (int64_t)n);
	(void)sqlite3_bind_int64(stmt, 14, (int64_t)size);
	(void)sqlite3_bind_blob64(stmt, 15, blob, size, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 16, f->owner);
	err = step(stmt);
	release(stmt);
	return err;
}

/* Pack and insert the symbols or lines of a file, and evict. Failures are counted. */
static void keep_symbols(struct store *s, const struct wanted_symbols *w)
{
	size_t size;
	void *blob;
	int err = w->table ? sym_table_pack(w->table, key_of_symbols(&w->file, &w->build_id), &blob,
					    &size)
			   : sym_lines_pack(w->lines, key_of_lines(&w->file, &w->build_id), &blob,
					    &size);

	if (err || (int64_t)size >= BLOB_MAX) {
		if (!err)
			free(blob);
		return;
	}
	pthread_mutex_lock(&s->lock);
	err = begin(s);
	if (!err) {
		err = add_symbols(s, w, blob, size);
		if (!err)
			err = evict(s, s->budget, -1);
		err = end(s, err);
	}
	if (err)
		(void)failed(s, "keep symbols", err);
	else if (w->table)
		s->counters.symbols_kept++;
	else
		s->counters.lines_kept++;
	pthread_mutex_unlock(&s->lock);
	free(blob);
}

/* ---- build-ids that no debuginfod server has --------------------------------------- */

#define MISSING_SECONDS (24 * 3600)

/* Run a statement with a build-id and a time as parameters. Return 1 if it gave a row. */
static int ask_missing(struct store *s, enum statement which, const struct uw_build_id *id,
		       int64_t time)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = statement(s, which, &err);
	if (!stmt)
		return err;
	(void)sqlite3_bind_blob(stmt, 1, id->bytes, id->size, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 2, time);
	err = step(stmt);
	release(stmt);
	return err;
}

bool store_is_missing(struct store *s, const struct uw_build_id *id)
{
	int err = 0;

	if (!s || !id->size)
		return false;
	pthread_mutex_lock(&s->lock);
	if (s->db && !gave_up(s))
		err = ask_missing(s, FIND_MISSING, id, time(NULL) - MISSING_SECONDS);
	pthread_mutex_unlock(&s->lock);
	return err == 1;
}

void store_missing(struct store *s, const struct uw_build_id *id)
{
	int64_t before = time(NULL) - MISSING_SECONDS;
	int err;

	if (!s || !id->size)
		return;
	pthread_mutex_lock(&s->lock);
	err = s->read_only || gave_up(s) ? -EROFS : begin(s);
	if (!err) {
		err = ask_missing(s, ADD_MISSING, id, time(NULL));
		if (err >= 0)
			err = run(s, DROP_MISSING, &before, 1);
		err = end(s, err);
		if (err)
			(void)failed(s, "write", err);
	}
	pthread_mutex_unlock(&s->lock);
}

/* ---- deferred work ------------------------------------------------------------------ */

void store_parsed(struct store *s, const struct uw_object *object)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->counters.parsed += uw_object_parsed(object);
	pthread_mutex_unlock(&s->lock);
}

void store_want(struct store *s, struct uw_object *object, const struct store_file *file)
{
	struct wanted *w;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	if (!s->read_only && !gave_up(s) && uw_object_parsed(object) && !is_wanted(s, file) &&
	    !array_make_room((void **)&s->wanted, s->n_wanted, &s->room_wanted,
			     sizeof(*s->wanted))) {
		w = &s->wanted[s->n_wanted];
		w->file = *file;
		w->file.path = w->path = strdup(file->path ? file->path : "");
		if (w->path) {
			w->object = uw_object_get(object);
			s->n_wanted++;
		}
	}
	pthread_mutex_unlock(&s->lock);
}

/* Compare for qsort(3): objects whose call-frame information was read most often come first. */
static int by_parsed(const void *a, const void *b)
{
	const struct wanted *x = a, *y = b;
	uint64_t m = uw_object_parsed(x->object), n = uw_object_parsed(y->object);

	return m < n ? 1 : m > n ? -1 : 0;
}

/*
 * If the store has a table of the same contents, store the file's inode with it. Return whether it
 * has.
 */
static bool is_there(struct store *s, const struct wanted *w)
{
	struct uw_identity identity;
	sqlite3_stmt *stmt = NULL;
	bool there = false;
	int64_t id;
	int err;

	pthread_mutex_lock(&s->lock);
	err = s->db && !gave_up(s) ? find_by_contents(s, w->object, &id, &identity) : -ENOENT;
	if (!err)
		stmt = statement(s, FIND_TABLE, &err);
	if (stmt) {
		(void)sqlite3_bind_int64(stmt, 1, id);
		(void)sqlite3_bind_int64(stmt, 2, TABLE_VERSION);
		(void)sqlite3_bind_int64(stmt, 3, TABLE_BUILDER);
		there = step(stmt) == 1;
		release(stmt);
	}
	if (there) {
		rest(s);
		(void)add_file(s, id, w->object, &w->file, &identity);
	}
	pthread_mutex_unlock(&s->lock);
	return there;
}

void store_work(struct store *s, uint64_t limit_ns)
{
	uint64_t last = now_ns() + limit_ns;

	if (!s)
		return;
	/* A user may be waiting for this process to end. */
	s->hurried = true;
	if (s->n_wanted)
		qsort(s->wanted, s->n_wanted, sizeof(*s->wanted), by_parsed);
	for (size_t i = 0; i < s->n_wanted && !gave_up(s) && now_ns() < last; i++)
		if (!is_there(s, &s->wanted[i]))
			(void)store_keep(s, s->wanted[i].object, &s->wanted[i].file);
	for (size_t i = 0; i < s->n_symbols && !gave_up(s) && now_ns() < last; i++)
		keep_symbols(s, &s->symbols[i]);
	forget_wanted(s);
}

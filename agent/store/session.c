/*
 * agent/store/session.c: the store's connection to its database: the SQL of all statements,
 * transactions, failures, and changes that are written when the store is closed.
 */
#include "agent/store/session.h"

#include "agent/array.h"
#include "agent/log.h"
#include "agent/store/change.h"
#include "agent/store/parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* After this many failures in a row, the rest of the run works without the store. */
#define FAILURES_MAX 3
/* The time of the last use has a resolution of one hour, so that most runs write nothing. */
#define MARK_SECONDS 3600

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
	/* Its row stays the same one: other processes may be reading it. */
	[ADD_SYMBOLS] =
		"INSERT INTO symbols (dev, ino, elf_off, reader, file_size,"
		" mtime_ns, ctime_ns, uid, build_id, beside, path, last_used, n, size, symbols,"
		" owner) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,"
		" ?16) ON CONFLICT DO UPDATE SET file_size = ?5, mtime_ns = ?6, ctime_ns = ?7,"
		" uid = ?8, beside = ?10, path = ?11, last_used = ?12, n = ?13, size = ?14,"
		" symbols = ?15, owner = ?16",
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
		       " file = ?4, reason = ?5, since = ?6, size = 0, contents = x''",
	[ADD_CONTENTS] = "UPDATE quarantine SET size = ?5, contents = ?6 WHERE build_id = ?1"
			 " AND path = ?2 AND builder = ?3 AND file = ?4",
	[REFUSED] = "SELECT path, file, size, contents, reason, date(since, 'unixepoch')"
		    " FROM quarantine WHERE builder = ?1 AND build_id = x''",
	[RELEASE] = "DELETE FROM quarantine WHERE builder != ?1",
	[DROP_OBJECT] = "DELETE FROM objects WHERE id = ?1",
};

/* ---- statements ------------------------------------------------------------------- */

int session_failed(struct store *s, const char *doing, int err)
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
	if (session_gave_up(s))
		s->blobs.db = NULL;
	return err;
}

bool session_gave_up(const struct store *s)
{
	return s->failures >= FAILURES_MAX;
}

sqlite3_stmt *session_statement(struct store *s, enum statement which, int *err)
{
	int rc = SQLITE_OK;

	if (!s->statements[which])
		rc = sqlite3_prepare_v3(s->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT,
					&s->statements[which], NULL);
	*err = db_errno(rc);
	return s->statements[which];
}

int session_run(struct store *s, enum statement which, const int64_t *numbers, int n)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = session_statement(s, which, &err);
	if (!stmt)
		return err;
	db_bind_numbers(stmt, numbers, n);
	err = db_step(stmt);
	s->wrote = s->wrote || (err >= 0 && !sqlite3_stmt_readonly(stmt));
	db_release(stmt);
	return err < 0 ? err : 0;
}

int session_ask(struct store *s, enum statement which, int64_t *out)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = session_statement(s, which, &err);
	if (!stmt)
		return err;
	err = db_step(stmt);
	if (err == 1)
		*out = sqlite3_column_int64(stmt, 0);
	db_release(stmt);
	return err == 1 ? 0 : err ? err : -ENOENT;
}

/* ---- transactions ----------------------------------------------------------------- */

/*
 * Open the database for reading, with no descriptor through which it can be written. If that fails,
 * it may have to be created or upgraded first, or the files beside it may have to be made.
 */
static int open_for_reading(struct store *s, char error[DB_ERROR_SIZE])
{
	int err;

	db_write_nothing(true);
	err = db_open(s->path, &db_store, DB_READ, &s->db, error);
	if (err) {
		db_write_nothing(false);
		err = db_make_files(s->path, &db_store, error);
		if (err)
			return err;
		db_write_nothing(true);
		err = db_open(s->path, &db_store, DB_READ, &s->db, error);
	}
	s->read_only = faccessat(AT_FDCWD, s->path, W_OK, AT_EACCESS) != 0;
	return err;
}

int session_open(struct store *s)
{
	char error[DB_ERROR_SIZE] = "";
	int err = change_is_asked_for() ? open_for_reading(s, error)
					: db_open(s->path, &db_store, DB_WRITE, &s->db, error);

	if (err == -EACCES || err == -EROFS || err == -EPERM) {
		s->read_only = true;
		/* A database that cannot be written may still be readable. */
		if (!db_open(s->path, &db_store, DB_READ, &s->db, error))
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
	if (s->reads_beside)
		(void)db_unmap(s->db);
	s->blobs.db = s->db;
	return 0;
}

/* Return the stored budget in bytes. Only writers need it, so it is read at the first write. */
static uint64_t budget_of(const struct store *s)
{
	int64_t budget = db_number(s->db, "SELECT value FROM settings WHERE name = 'budget'");

	return budget > 0 ? (uint64_t)budget : STORE_BUDGET_DEFAULT;
}

int session_begin(struct store *s)
{
	int err = s->db ? 0 : session_gave_up(s) ? -EIO : session_open(s);

	if (err || s->read_only)
		return err ? err : -EROFS;
	if (s->hurried)
		(void)sqlite3_busy_timeout(s->db, WORK_WAIT_MS);
	blob_reader_rest(&s->blobs);
	if (!s->budget)
		s->budget = budget_of(s);
	return db_exec(s->db, "BEGIN IMMEDIATE");
}

int session_end(struct store *s, int err)
{
	if (!err)
		err = db_exec(s->db, "COMMIT");
	s->wrote = s->wrote || !err;
	if (err && s->db && !sqlite3_get_autocommit(s->db))
		(void)db_exec(s->db, "ROLLBACK");
	return err;
}

/* ---- changes that can wait -------------------------------------------------------- */

bool session_is_stale(int64_t used)
{
	int64_t now = time(NULL);

	return used > now || used <= now - MARK_SECONDS;
}

void session_remember(struct store *s, enum statement what, int64_t row, const char *path)
{
	struct used *used;

	for (size_t i = 0; i < s->n_used; i++)
		if (s->used[i].row == row && s->used[i].what == what)
			return;
	if (array_grow(s->used, s->n_used, s->room_used))
		return;
	used = &s->used[s->n_used];
	*used = (struct used){ .what = what, .row = row };
	if (path)
		used->path = strdup(path);
	s->n_used += !path || used->path;
}

/* Run the statements of all rows in one transaction. */
static int write_rows(struct store *s)
{
	sqlite3_stmt *stmt;
	int err;

	/* This is not worth waiting for other writers. */
	(void)sqlite3_busy_timeout(s->db, 100);
	err = session_begin(s);
	if (err)
		return err;
	for (size_t i = 0; i < s->n_used && !err; i++) {
		stmt = session_statement(s, s->used[i].what, &err);
		if (!stmt)
			break;
		(void)sqlite3_bind_int64(stmt, 1, s->used[i].row);
		if (s->used[i].what == MARK_USED || s->used[i].what == USED_SYMBOLS)
			(void)sqlite3_bind_int64(stmt, 2, time(NULL));
		if (s->used[i].path)
			(void)sqlite3_bind_text(stmt, 3, s->used[i].path, -1, SQLITE_STATIC);
		err = db_step(stmt);
		db_release(stmt);
	}
	err = session_end(s, err);
	/* A store process goes on after this. */
	(void)sqlite3_busy_timeout(s->db, DB_WRITE_WAIT_MS);
	return err;
}

int session_write_used(struct store *s)
{
	int err = 0;

	if (s->n_used && !s->read_only && !session_gave_up(s))
		err = change_is_asked_for() ? change_rows(s) : write_rows(s);
	for (size_t i = 0; i < s->n_used; i++)
		free(s->used[i].path);
	s->n_used = 0;
	return err && err != -EBUSY ? session_failed(s, "write", err) : err;
}

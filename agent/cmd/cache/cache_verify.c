/* agent/cmd/cache/cache_verify.c: cache verify: checks what the store holds and drops what is damaged. */
#include "agent/array.h"
#include "agent/cmd/cache/cache.h"
#include "agent/cmd/cmd.h"
#include "agent/log.h"
#include "agent/store/alive.h"
#include "agent/store/key.h"
#include "agent/store/store.h"
#include "schema/procs_blob.h"
#include "schema/symbols_blob.h"
#include "schema/table_blob.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Run SQLite's integrity check and print what it finds. Return the number of faults. */
static uint64_t check_structure(sqlite3 *db)
{
	sqlite3_stmt *s = NULL;
	uint64_t n = 0;
	int rc = sqlite3_prepare_v2(db, "PRAGMA integrity_check(20)", -1, &s, NULL);

	while (rc == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
		const char *line = (const char *)sqlite3_column_text(s, 0);

		if (!line || !strcmp(line, "ok"))
			continue;
		cache_say("database: %s", line);
		n++;
	}
	if (sqlite3_finalize(s) != SQLITE_OK || rc != SQLITE_OK) {
		cache_say("database: %s", sqlite3_errmsg(db));
		n++;
	}
	return n;
}

/*
 * Check that the row's table is sound and belongs to the row's object. The columns are those of
 * verify_tables. Return 0, -EBADMSG if it is damaged, -ENOTSUP if it has another version, or
 * -ENOMEM.
 */
static int check_table(sqlite3_stmt *s)
{
	const struct table_header *h;
	const struct procs_header *p;
	size_t size = (size_t)sqlite3_column_bytes(s, 4), procs_size;
	void *rules = NULL, *procs = NULL;
	struct uw_rows *rows = NULL;
	bool has = sqlite3_column_type(s, 4) != SQLITE_NULL;
	bool has_procs = sqlite3_column_type(s, 5) != SQLITE_NULL;
	int err = 0;

	procs_size = (size_t)sqlite3_column_bytes(s, 5);
	if (has)
		rules = malloc(size + 1);
	if (has_procs)
		procs = malloc(procs_size + 1);
	if ((has && !rules) || (has_procs && !procs))
		err = -ENOMEM;
	else if (!has && !has_procs)
		err = -EBADMSG;
	if (!err && size && has)
		memcpy(rules, sqlite3_column_blob(s, 4), size);
	if (!err && procs_size && has_procs)
		memcpy(procs, sqlite3_column_blob(s, 5), procs_size);
	if (!err)
		err = uw_rows_open(rules, size, procs, procs_size, &rows);
	h = rules;
	p = procs;
	if (!err && h &&
	    (h->src_size != (uint64_t)sqlite3_column_int64(s, 2) ||
	     h->src_hash != (uint64_t)sqlite3_column_int64(s, 3) ||
	     h->build_id_size != sqlite3_column_bytes(s, 1) ||
	     (h->build_id_size &&
	      memcmp(h->build_id, sqlite3_column_blob(s, 1), h->build_id_size))))
		err = -EBADMSG;
	if (!err && p &&
	    (p->src_size != (uint64_t)sqlite3_column_int64(s, 2) ||
	     p->src_hash != (uint64_t)sqlite3_column_int64(s, 3)))
		err = -EBADMSG;
	uw_rows_free(rows);
	free(rules);
	free(procs);
	return err;
}

/* The ids of damaged rows. Begin with zeros; release with free(ids). */
struct damaged {
	int64_t *ids;
	size_t n, room;
};

/* Remember the row of s, whose first column is its id. Return 0 or -ENOMEM. */
static int add_damaged(struct damaged *d, sqlite3_stmt *s)
{
	int err = array_grow(d->ids, d->n, d->room);

	if (!err)
		d->ids[d->n++] = sqlite3_column_int64(s, 0);
	return err;
}

/* Delete the rows from the table. Return 0 or a negative code. */
static int drop_damaged(sqlite3 *db, const char *table, const struct damaged *d)
{
	int err = 0;

	for (size_t i = 0; !err && i < d->n; i++) {
		char sql[64];

		(void)snprintf(sql, sizeof(sql), "DELETE FROM %s WHERE id = %" PRId64, table,
			       d->ids[i]);
		err = db_exec(db, sql);
	}
	return err;
}

/*
 * Check all tables of this version. *n and *bad count them and those that are not sound, which are
 * printed and, with repair, deleted. Return 0 or a negative code.
 */
static int verify_tables(sqlite3 *db, bool repair, uint64_t *n, uint64_t *bad)
{
	sqlite3_stmt *s = NULL;
	struct damaged damaged = { .n = 0 };
	int rc = sqlite3_prepare_v2(db,
				    "SELECT t.id, o.build_id, o.src_size, o.src_hash, t.rules,"
				    " t.procs, o.path FROM tables AS t JOIN objects AS o"
				    " ON o.id = t.object WHERE t.version = ?1",
				    -1, &s, NULL);
	int err = db_errno(rc);

	if (!err)
		(void)sqlite3_bind_int64(s, 1, TABLE_VERSION);
	while (!err && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		(*n)++;
		err = check_table(s);
		if (err == -ENOMEM)
			break;
		if (!err)
			continue;
		(*bad)++;
		cache_say("%s: %s", (const char *)sqlite3_column_text(s, 6),
			  err == -ENOTSUP ? "its table is of another version"
					  : "its table is damaged");
		err = add_damaged(&damaged, s);
	}
	if (!err && rc != SQLITE_DONE) {
		cache_say("tables: %s", sqlite3_errmsg(db));
		(*bad)++;
	}
	(void)sqlite3_finalize(s);
	if (!err && repair)
		err = drop_damaged(db, "tables", &damaged);
	free(damaged.ids);
	return err;
}

/*
 * Check that the row's symbols are sound and belong to the file that the row describes. The
 * columns are those of verify_symbols. Return 0 or a negative code.
 */
static int check_symbols(sqlite3_stmt *s)
{
	struct store_file f = { .known = true,
				.dev = (uint64_t)sqlite3_column_int64(s, 1),
				.ino = (uint64_t)sqlite3_column_int64(s, 2),
				.elf_off = (uint64_t)sqlite3_column_int64(s, 3),
				.size = (uint64_t)sqlite3_column_int64(s, 4),
				.mtime_ns = sqlite3_column_int64(s, 5),
				.ctime_ns = sqlite3_column_int64(s, 6),
				.uid = (uint64_t)sqlite3_column_int64(s, 10) };
	const void *blob = sqlite3_column_blob(s, 8), *id = sqlite3_column_blob(s, 7);
	size_t size = (size_t)sqlite3_column_bytes(s, 8);
	int id_size = sqlite3_column_bytes(s, 7), err;
	struct uw_build_id build_id = { .size = 0 };
	struct sym_table *table = NULL;
	void *copy = malloc(size + 1);

	if (!copy)
		return -ENOMEM;
	if (size)
		memcpy(copy, blob, size);
	if (id && id_size > 0 && id_size <= UW_BUILD_ID_MAX) {
		build_id.size = (uint8_t)id_size;
		memcpy(build_id.bytes, id, (size_t)id_size);
	}
	err = sym_table_unpack(copy, size, key_of_symbols(&f, &build_id), &table);
	if (!err)
		sym_table_free(table);
	return err;
}

/* Check all symbol tables, as verify_tables does. */
static int verify_symbols(sqlite3 *db, bool repair, uint64_t *n, uint64_t *bad)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(db,
				    "SELECT id, dev, ino, elf_off, file_size, mtime_ns, ctime_ns,"
				    " build_id, symbols, path, uid FROM symbols WHERE reader = ?1",
				    -1, &s, NULL);
	struct damaged damaged = { .n = 0 };
	int err = db_errno(rc);

	if (!err)
		(void)sqlite3_bind_int64(s, 1, SYMBOLS_READER);
	while (!err && (rc = sqlite3_step(s)) == SQLITE_ROW) {
		(*n)++;
		err = check_symbols(s);
		/*
		 * A table of another layout is no damage: the next run that needs it replaces it.
		 */
		if (!err || err == -ENOMEM || err == -ENOTSUP) {
			err = err == -ENOMEM ? err : 0;
			continue;
		}
		(*bad)++;
		cache_say("%s: its symbols are damaged", (const char *)sqlite3_column_text(s, 9));
		err = add_damaged(&damaged, s);
	}
	if (!err && rc != SQLITE_DONE) {
		cache_say("symbols: %s", sqlite3_errmsg(db));
		(*bad)++;
	}
	(void)sqlite3_finalize(s);
	if (!err && repair)
		err = drop_damaged(db, "symbols", &damaged);
	free(damaged.ids);
	return err;
}

/*
 * Print what is in quarantine, and why. Return the number of objects. With repair, empty the
 * quarantine.
 */
static uint64_t show_quarantine(sqlite3 *db, bool repair)
{
	sqlite3_stmt *s = NULL;
	uint64_t n = 0;

	if (sqlite3_prepare_v2(db,
			       "SELECT path, reason, date(since, 'unixepoch') FROM quarantine"
			       " WHERE builder = ?1 ORDER BY path",
			       -1, &s, NULL) == SQLITE_OK) {
		(void)sqlite3_bind_int64(s, 1, TABLE_BUILDER);
		for (; sqlite3_step(s) == SQLITE_ROW; n++)
			cache_say("%s: in quarantine since %s: %s",
				  (const char *)sqlite3_column_text(s, 0),
				  (const char *)sqlite3_column_text(s, 2),
				  (const char *)sqlite3_column_text(s, 1));
	}
	(void)sqlite3_finalize(s);
	if (repair)
		(void)db_exec(db, "DELETE FROM quarantine; DELETE FROM building");
	return n;
}

/*
 * Print the files that a process was compiling when it ended. If that happens several times, the
 * file goes into quarantine (DEATHS_MAX in quarantine.c).
 */
static void show_ended(sqlite3 *db)
{
	sqlite3_stmt *s = NULL;

	if (sqlite3_prepare_v2(db,
			       "SELECT path, date(since, 'unixepoch'), pid, begun FROM building"
			       " WHERE builder = ?1 ORDER BY path, id",
			       -1, &s, NULL) == SQLITE_OK) {
		(void)sqlite3_bind_int64(s, 1, TABLE_BUILDER);
		while (sqlite3_step(s) == SQLITE_ROW)
			if (alive_ended(sqlite3_column_int64(s, 2),
					(uint64_t)sqlite3_column_int64(s, 3)))
				cache_say("%s: a process ended while it compiled this file, on %s",
					  (const char *)sqlite3_column_text(s, 0),
					  (const char *)sqlite3_column_text(s, 1));
	}
	(void)sqlite3_finalize(s);
}

/*
 * With --repair a store that does not exist is an error; without it the database is opened for
 * reading only.
 */
int cache_verify(const struct cache_options *o)
{
	char error[DB_ERROR_SIZE] = "", *path;
	uint64_t n = 0, bad = 0, n_symbols = 0, bad_symbols = 0, structure, held;
	sqlite3 *db;
	int err = db_path(o->db, &path);

	if (err) {
		log_error("no store: give one with --db");
		return CMD_FAILED;
	}
	err = o->repair && access(path, F_OK)
		      ? -ENOENT
		      : db_open(path, &db_store, o->repair ? DB_WRITE : DB_READ, &db, error);
	if (err) {
		log_error("%s", error[0] ? error : strerror(-err));
		free(path);
		return CMD_FAILED;
	}
	structure = check_structure(db);
	show_ended(db);
	held = show_quarantine(db, o->repair);
	err = verify_tables(db, o->repair, &n, &bad);
	if (!err)
		err = verify_symbols(db, o->repair, &n_symbols, &bad_symbols);
	if (err)
		log_error("%s: %s", path, strerror(-err));
	else if (structure)
		log_error("%s: is damaged; remove it, and the next run creates a new one", path);
	else
		log_info("%s: %" PRIu64 " tables, %" PRIu64 " damaged%s; %" PRIu64
			 " symbol tables, %" PRIu64 " damaged%s; %" PRIu64 " in quarantine%s",
			 path, n, bad, bad && o->repair ? " and deleted" : "", n_symbols,
			 bad_symbols, bad_symbols && o->repair ? " and deleted" : "", held,
			 held && o->repair ? ", released" : "");
	(void)sqlite3_close(db);
	free(path);
	return err ? CMD_FAILED : structure || bad || bad_symbols ? CMD_PARTLY : CMD_DONE;
}

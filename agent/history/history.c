/* agent/history/history.c: opens the database of the history, and has the SQL of its statements. */
#include "agent/history/history.h"

#include "agent/history/history_internal.h"
#include "agent/history/history_sweep.h"
#include "agent/history/vtab.h"
#include "agent/io.h"
#include "agent/log.h"
#include "schema/history_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct db_kind history_kind = { .id = 0x4f574849, /* "OWHI" */
				      .steps = history_sql,
				      .n_steps = sizeof(history_sql) / sizeof(history_sql[0]),
				      .prepare = history_prepare_upgrade };

#define STEP_NS	     20000000
#define READ_KIB     16384		 /* of the database's pages in memory */
#define WRITE_KIB    4096		 /* a process that writes runs for months */
#define SUMS_MAX     4194304		 /* about 1 GiB */
#define THREAD_AFTER (UINT64_C(1) << 17) /* 8 ms: to begin a thread takes far less */

#define TEXT_OF(x) #x
#define TEXT(x)	   TEXT_OF(x)

/* Pages that nodes can refer to, by ids of 32 bits; others are damage. */
#define FRAME_PAGES "id BETWEEN 0 AND 0x3ffffff"

/* Add to a sum that there is. It is not changed if the new one would be too large: SQLite would make a real number of it. */
#define ADD_UP                                                         \
	" ON CONFLICT DO UPDATE SET n = n + excluded.n WHERE typeof(n" \
	" + excluded.n) = 'integer'"

static const char *const sql[HISTORY_STATEMENTS] = {
	[FIND_MODULE] = "SELECT id, start, \"limit\" FROM modules WHERE path = ?1"
			" AND build_id = ?2 AND off = ?3",
	[ADD_MODULE] = "INSERT INTO modules (path, build_id, off, start, \"limit\")"
		       " VALUES (?1, ?2, ?3, ?4, ?5)",
	[WIDEN_MODULE] = "UPDATE modules SET start = ?2, \"limit\" = ?3 WHERE id = ?1",
	[FIND_FUNCTION] = "SELECT id FROM functions WHERE hash = ?6 AND name = ?1 AND file = ?2"
			  " AND start_line = ?3 AND system_name = ?4 AND placed = ?5",
	[ADD_FUNCTION] = "INSERT INTO functions (name, file, start_line, system_name, placed,"
			 " hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
	[FIND_FRAMES] =
		"SELECT frame FROM frame_index WHERE hash = ?1 ORDER BY frame DESC LIMIT ?2",
	[INDEX_FRAME] = "INSERT OR IGNORE INTO frame_index (hash, frame) VALUES (?1, ?2)",
	[UNINDEX_FRAME] = "DELETE FROM frame_index WHERE hash = ?1 AND frame = ?2",
	[LAST_FRAME_PAGE] = "SELECT coalesce(max(id), -1) FROM frame_pages WHERE " FRAME_PAGES,
	[WRITE_FRAMES] = "INSERT OR REPLACE INTO frame_pages (id, frames) VALUES (?1, ?2)",
	[DELETE_FRAMES] = "DELETE FROM frame_pages WHERE id = ?1",
	[LAST_NODE_PAGE] = "SELECT coalesce(max(id), -1) FROM node_pages",
	[WRITE_NODES] = "INSERT OR REPLACE INTO node_pages (id, nodes) VALUES (?1, ?2)",
	[DELETE_NODES] = "DELETE FROM node_pages WHERE id = ?1",
	[FIND_LABELS] = "SELECT id FROM labels WHERE hash = ?2 AND labels = ?1",
	[ADD_LABELS] = "INSERT INTO labels (labels, hash) VALUES (?1, ?2)",
	[FIND_TYPE] = "SELECT id FROM types WHERE type = ?1 AND unit = ?2",
	[ADD_TYPE] = "INSERT INTO types (type, unit) VALUES (?1, ?2)",
	[ADD_WINDOW] = "INSERT INTO windows (start_ns, end_ns, level, n_samples, samples)"
		       " VALUES (?1, ?2, ?3, ?4, ?5)",
	[ADD_COUNTER] =
		"INSERT INTO counters (window, what, reason, n) VALUES (?1, ?2, ?3, ?4)" ADD_UP,
	[ADD_TOTAL] = "INSERT INTO totals (what, reason, n) VALUES (?1, ?2, ?3)" ADD_UP,
	[READ_TOTALS] = "SELECT what, reason, n FROM totals ORDER BY what, reason",
	[READ_WINDOWS] = "SELECT start_ns, end_ns, n_samples, samples, id FROM windows"
			 " WHERE end_ns > ?1 AND start_ns < ?2 ORDER BY end_ns",
	[READ_NODES] = "SELECT nodes FROM node_pages WHERE id = ?1",
	[READ_FRAMES] = "SELECT frames FROM frame_pages WHERE id = ?1",
	[READ_ALL_FRAMES] = "SELECT id, frames FROM frame_pages WHERE " FRAME_PAGES " ORDER BY id",
	[READ_MODULE] = "SELECT path, build_id, off, start, \"limit\" FROM modules WHERE id = ?1",
	[READ_FUNCTIONS] = "SELECT id, name, iif(system_name = '', name, system_name), file,"
			   " start_line, placed FROM functions WHERE id BETWEEN ?1 AND ?2",
	/* Files whose addresses have lasting names (history_write.c). */
	[READ_FILES] = "SELECT id, path, build_id, off, start, \"limit\" FROM modules WHERE"
		       " build_id <> '' AND path NOT LIKE '[%' ORDER BY build_id, path, off",
	[READ_LABELS] = "SELECT key, value, type FROM json_each((SELECT labels FROM labels"
			" WHERE id = ?1))",
	/* By default CPU time, else the second type, as history_load_types has it: the first is how many samples there are. */
	[READ_TYPE] =
		"SELECT id, type, unit FROM types WHERE type = ?1 OR (?1 IS NULL AND"
		" type <> 'samples') ORDER BY type <> 'cpu', id = (SELECT min(id) FROM types),"
		" id LIMIT 1",
	[LAST_TYPE] = "SELECT coalesce(max(id), 0) FROM types",
	[READ_LABEL] = "SELECT value FROM json_each((SELECT labels FROM labels WHERE id = ?1))"
		       " WHERE key = ?2",
	[CHECK_LABELS] = "SELECT json_valid(labels) FROM labels WHERE id = ?1",
	[READ_LABEL_KEYS] =
		"SELECT DISTINCT key FROM (SELECT labels FROM labels ORDER BY id DESC LIMIT 20000)"
		" AS newest, json_each(iif(json_valid(newest.labels), newest.labels, '{}'))"
		" ORDER BY key",
	[READ_COUNTERS] = "SELECT what, reason, sum(n) FROM counters WHERE window IN"
			  " (SELECT id FROM windows WHERE end_ns > ?1 AND start_ns < ?2)"
			  " GROUP BY what, reason",
	/* The one that was added last: after the clock was set back, others end later. */
	[READ_NEWEST] =
		"SELECT coalesce((SELECT end_ns FROM windows WHERE level = 0 ORDER BY id DESC"
		" LIMIT 1), (SELECT max(end_ns) FROM windows))",
	[NEXT_WINDOW] = "SELECT id, start_ns, end_ns, n_samples, level FROM windows"
			" WHERE id > ?1 AND level = 0 ORDER BY id LIMIT 1",
	[NEXT_MERGED] = "SELECT id, start_ns, end_ns, n_samples, level FROM windows"
			" WHERE end_ns > ?2 ORDER BY end_ns LIMIT 1",
	[PASSED] = "SELECT coalesce((SELECT sum(n) FROM totals WHERE what = 'unwound'), 0) -"
		   " coalesce((SELECT sum(counters.n) FROM windows JOIN counters ON"
		   " counters.window = windows.id WHERE what = 'unwound' AND"
		   " CASE level WHEN 0 THEN windows.id > ?1 ELSE end_ns > ?2 END), 0)",
	[WINDOW_COUNTERS] =
		"SELECT what, reason, n FROM counters WHERE window = ?1 ORDER BY what, reason",
	[LAST_WINDOW] = "SELECT coalesce(max(id), 0), coalesce(max(end_ns), 0) FROM windows",
	[READ_TYPES] = "SELECT id, type, unit FROM types ORDER BY id",
	[READ_SETTING] = "SELECT CAST(value AS INTEGER) FROM settings WHERE name = ?1",
	[SET_SETTING] = "INSERT OR REPLACE INTO settings (name, value) VALUES (?1, ?2)",
	[DELETE_SETTING] = "DELETE FROM settings WHERE name = ?1",
	[STEADY_END] = "SELECT end_ns FROM windows ORDER BY end_ns DESC LIMIT 1 OFFSET 89",
	[FIRST_END] = "SELECT end_ns FROM windows ORDER BY end_ns LIMIT 1",
	[DELETE_WINDOWS] = "DELETE FROM windows WHERE id IN (SELECT id FROM windows WHERE"
			   " end_ns < ?1 ORDER BY end_ns LIMIT ?2)",
	[DELETE_WINDOW] = "DELETE FROM windows WHERE id = ?1",
	[WINDOW_BYTES] = "SELECT sum(length(samples)) FROM windows",
	[WINDOW_SIZES] = "SELECT end_ns, length(samples) FROM windows ORDER BY end_ns",
	[USED_BYTES] = "SELECT (page_count - freelist_count) * page_size"
		       " FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
	[UNUSED_PAGES] = "PRAGMA freelist_count",
	[ALL_PAGES] = "PRAGMA page_count",
	[FIRST_BELOW] = "SELECT start_ns FROM windows WHERE level < ?1 ORDER BY end_ns LIMIT 1",
	[MERGE_WINDOWS] = "SELECT id, start_ns, end_ns, n_samples, samples FROM windows"
			  " WHERE end_ns >= ?1 AND start_ns >= ?1 AND start_ns < ?2"
			  " AND level <= ?3",
	[MERGE_COUNTERS] = "INSERT INTO counters (window, what, reason, n)"
			   " SELECT ?1, what, reason, n FROM counters WHERE window = ?2" ADD_UP,
	[SWEEP_WINDOWS] = "SELECT id, samples FROM windows WHERE id > ?1 ORDER BY id",
	[SWEEP_NODES] = "SELECT id, nodes FROM node_pages WHERE id > ?1 ORDER BY id LIMIT 1",
	[SWEEP_NEW_NODES] = "SELECT id, nodes FROM node_pages WHERE id >= ?1",
	[SWEEP_MODULES] = "SELECT id FROM modules",
	[SWEEP_FUNCTIONS] = "SELECT id FROM functions",
	[SWEEP_LABELS] = "SELECT id FROM labels",
	[SWEEP_MODULE] = "DELETE FROM modules WHERE id = ?1",
	[SWEEP_FUNCTION] = "DELETE FROM functions WHERE id = ?1",
	[SWEEP_LABEL] = "DELETE FROM labels WHERE id = ?1",
};

int history_failed(const struct history *h, const char *doing, int err)
{
	const char *why =
		sqlite3_errcode(h->db) != SQLITE_OK ? sqlite3_errmsg(h->db) : "it is damaged";

	if (err)
		log_error("%s: cannot %s: %s", h->path, doing,
			  err == -EBADMSG ? why : strerror(-err));
	return err;
}

sqlite3_stmt *history_statement(struct history *h, enum history_statement which, int *err)
{
	int rc = SQLITE_OK;

	if (!h->statements[which])
		rc = sqlite3_prepare_v3(h->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT,
					&h->statements[which], NULL);
	*err = db_errno(rc);
	return h->statements[which];
}

int history_end(struct history *h, int err)
{
	int failed = err < 0 ? err : db_exec(h->db, "COMMIT");

	if (failed && !sqlite3_get_autocommit(h->db))
		(void)db_exec(h->db, "ROLLBACK");
	return failed ? failed : err;
}

int history_value(struct history *h, enum history_statement which, int64_t *out)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, which, &err);

	if (!stmt)
		return err;
	err = db_step(stmt);
	if (err == 1)
		*out = sqlite3_column_int64(stmt, 0);
	db_release(stmt);
	return err == 1 ? 0 : err ? err : -ENOENT;
}

int history_number(struct history *h, const char *name, int64_t *out)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, READ_SETTING, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
	err = db_step(stmt);
	if (err == 1)
		*out = sqlite3_column_int64(stmt, 0);
	db_release(stmt);
	return err < 0 ? err : 0;
}

int history_set_number(struct history *h, const char *name, int64_t value)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, value ? SET_SETTING : DELETE_SETTING, &err);

	if (!stmt)
		return err;
	(void)sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
	if (value) {
		char text[32];

		(void)snprintf(text, sizeof(text), "%lld", (long long)value);
		(void)sqlite3_bind_text(stmt, 2, text, -1, SQLITE_TRANSIENT);
	}
	err = db_step(stmt);
	db_release(stmt);
	return err < 0 ? err : 0;
}

int history_add_window(struct history *h, const struct history_row *row, int64_t *id)
{
	int err;
	sqlite3_stmt *stmt = history_statement(h, ADD_WINDOW, &err);

	if (!stmt)
		return err;
	db_bind_numbers(stmt,
			(const int64_t[]){ row->start_ns, row->end_ns, row->level, row->n_samples },
			4);
	db_bind_bytes(stmt, 5, row->samples->bytes, row->samples->size);
	err = db_step(stmt);
	db_release(stmt);
	*id = sqlite3_last_insert_rowid(h->db);
	return err < 0 ? err : 0;
}

int history_write_nothing(const char *path, const char *store)
{
	char error[DB_ERROR_SIZE] = "";
	int err = db_make_files(path, &history_kind, error);

	if (!err && store)
		err = db_make_files(store, &db_store, error);
	if (err)
		log_error("%s", error[0] ? error : strerror(-err));
	db_write_nothing(true);
	return err;
}

/*
 * Upgrade a history that an older version made, so that it can be read, unless a daemon has it. What cannot be done is
 * reported, but for what opening it says again.
 */
static void upgrade(const char *path)
{
	char error[DB_ERROR_SIZE];
	int lock;

	if (history_lock(path, 0, &lock))
		return;
	(void)db_make_files(path, &history_kind, error);
	(void)close(lock);
}

/* Open the database of a history. */
static int connect_to(const char *path, bool write, sqlite3 **db, char error[DB_ERROR_SIZE])
{
	int err = db_open(path, &history_kind, write ? DB_WRITE : DB_READ, db, error);

	if (err != -ENOTSUP || write)
		return err;
	upgrade(path);
	return db_open(path, &history_kind, DB_READ, db, error);
}

int history_open(const char *path, bool write, struct history **out)
{
	struct history *h = calloc(1, sizeof(*h));
	char error[DB_ERROR_SIZE] = "";
	int err = h ? 0 : -ENOMEM;

	if (!err) {
		h->step_ns = STEP_NS;
		h->sums_max = SUMS_MAX;
		h->thread_after = THREAD_AFTER;
		h->path = strdup(path);
		err = h->path ? connect_to(path, write, &h->db, error) : -ENOMEM;
	}
	if (err) {
		log_error("%s", error[0] ? error : strerror(-err));
		history_close(h);
		return err;
	}
	/*
	 * Rows are read here and there: a page of a mapped file would be checked again for each of
	 * them, a cached one is checked once.
	 */
	(void)db_exec(h->db, "PRAGMA mmap_size = 0");
	(void)db_exec(h->db, write ? "PRAGMA cache_size = -" TEXT(WRITE_KIB)
				   : "PRAGMA cache_size = -" TEXT(READ_KIB));
	/* The files of its write-ahead log are opened by the first statement. */
	(void)db_number(h->db, "SELECT count(*) FROM types");
	err = write ? 0 : history_register(h, h->db, "main");
	if (err) {
		(void)history_failed(h, "be opened", err);
		history_close(h);
		return err;
	}
	*out = h;
	return 0;
}

void history_close(struct history *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < HISTORY_STATEMENTS; i++)
		(void)sqlite3_finalize(h->statements[i]);
	(void)sqlite3_close(h->db);
	history_clear_nodes(h);
	history_clear_names(h);
	history_nodes_forget(h);
	history_sweep_free(h->sweep);
	history_merge_free(h->merge);
	free(h->path);
	free(h);
}

/* https://sqlite.org/fileformat.html, "The Database Header": the application id is at byte 68. */
bool history_is(const char *path)
{
	static const char magic[16] = "SQLite format 3";
	uint8_t head[72];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	bool is = fd >= 0 && !io_read_at(fd, 0, head, sizeof(head)) &&
		  !memcmp(head, magic, sizeof(magic)) &&
		  ((uint32_t)head[68] << 24 | (uint32_t)head[69] << 16 | (uint32_t)head[70] << 8 |
		   head[71]) == (uint32_t)history_kind.id;

	if (fd >= 0)
		(void)close(fd);
	return is;
}

sqlite3 *history_connection(struct history *h)
{
	return h->db;
}

char *history_path(const char *store_path)
{
	size_t n = strlen(store_path);
	char *path;

	if (n > 3 && !strcmp(store_path + n - 3, ".db"))
		n -= 3;
	return asprintf(&path, "%.*s-history.db", (int)n, store_path) < 0 ? NULL : path;
}

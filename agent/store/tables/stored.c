/*
 * agent/store/tables/stored.c: finds a stored object by name, opens its table for lazy reads, and finds
 * symbols for it.
 */
#include "agent/store/tables/stored.h"

#include "agent/store/key.h"
#include "schema/symbols_blob.h"
#include "schema/table_blob.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SQLITE_EXTENSION_INIT3

/* After <sqlite3ext.h>: its functions are to call SQLite as this file does. */
#include "agent/store/blob_reader.h"

/* Texts shorter than this are not taken for the beginning of a build-id. */
#define PREFIX_MIN 4

/* Step to the first row, give its id, and finalize the statement. -ENOENT: there is no row. */
static int first_id(sqlite3_stmt *stmt, int64_t *id)
{
	int rc = sqlite3_step(stmt), err = -EIO;

	if (rc == SQLITE_ROW) {
		*id = sqlite3_column_int64(stmt, 0);
		err = 0;
	} else if (rc == SQLITE_DONE) {
		err = -ENOENT;
	}
	(void)sqlite3_finalize(stmt);
	return err;
}

/*
 * Find the object used last that fulfils a condition on ?1, which is key or, if key is NULL, text.
 */
static int find_where(sqlite3 *db, const char *where, sqlite3_value *key, const char *text,
		      int64_t *id)
{
	sqlite3_stmt *stmt = NULL;
	char *sql = sqlite3_mprintf("SELECT id FROM main.objects WHERE %s"
				    " ORDER BY last_used DESC, id DESC LIMIT 1",
				    where);
	int rc = sql ? sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) : SQLITE_NOMEM;

	sqlite3_free(sql);
	if (rc != SQLITE_OK)
		return rc == SQLITE_NOMEM ? -ENOMEM : -EBADMSG;
	if (key)
		(void)sqlite3_bind_value(stmt, 1, key);
	else
		(void)sqlite3_bind_text(stmt, 1, text, -1, SQLITE_TRANSIENT);
	return first_id(stmt, id);
}

int stored_find_text(sqlite3 *db, const char *key, int64_t *object)
{
	size_t n = strlen(key);
	int err = -ENOENT;

	if (strchr(key, '/'))
		return find_where(db, "path = ?1", NULL, key, object);
	if (n >= PREFIX_MIN && strspn(key, "0123456789abcdefABCDEF") == n)
		err = find_where(db, "substr(lower(hex(build_id)), 1, length(?1)) = lower(?1)",
				 NULL, key, object);
	/* A base name, or the part of one before a dot or dash, as in "libcrypto" and "libLLVM". */
	if (err == -ENOENT)
		err = find_where(db, "substr(path, -length(?1) - 1) = '/' || ?1", NULL, key,
				 object);
	if (err == -ENOENT)
		err = find_where(db, "instr(path, '/' || ?1 || '.')", NULL, key, object);
	if (err == -ENOENT)
		err = find_where(db, "instr(path, '/' || ?1 || '-')", NULL, key, object);
	return err;
}

int stored_find(sqlite3 *db, sqlite3_value *key, int64_t *object)
{
	switch (sqlite3_value_type(key)) {
	case SQLITE_INTEGER:
		return find_where(db, "id = ?1", key, NULL, object);
	case SQLITE_BLOB:
		return find_where(db, "build_id = ?1", key, NULL, object);
	case SQLITE_TEXT:
		return stored_find_text(db, (const char *)sqlite3_value_text(key), object);
	default:
		return -ENOENT;
	}
}

/* ---- tables ----------------------------------------------------------------------------- */

/* Open the blobs of a table row and replace *out by the new object. */
static int load_row(sqlite3 *db, int64_t object, int64_t table, bool has_rules, bool has_procs,
		    struct stored **out)
{
	struct {
		struct stored stored; /* first: stored_put() frees it */
		struct blob_reader blobs;
	} *both = calloc(1, sizeof(*both));
	struct uw_blob_source rules, procs;
	struct stored *stored;
	int err = 0;

	if (!both)
		return -ENOMEM;
	stored = &both->stored;
	stored->refs = 1;
	stored->object = object;
	stored->table = table;
	stored->db = both->blobs.db = db;
	stored->blobs = &both->blobs;
	if (has_rules)
		err = blob_begin(stored->blobs, &(struct blob_place){ "tables", "rules", table },
				 &rules);
	if (!err && has_procs) {
		err = blob_begin(stored->blobs, &(struct blob_place){ "tables", "procs", table },
				 &procs);
		if (err && has_rules)
			blob_end(rules.ctx);
	}
	if (!err)
		err = uw_rows_open_stored(has_rules ? &rules : NULL, has_procs ? &procs : NULL,
					  &stored->rows);
	if (err) {
		free(both); /* uw_rows_open_stored released the readings */
		return err;
	}
	stored->rules = uw_rows_table(stored->rows, &stored->rules_size);
	stored->procs = uw_rows_ranges(stored->rows, &stored->procs_size);
	stored_put(*out);
	*out = stored;
	return 0;
}

int stored_load(sqlite3 *db, int64_t object, struct stored **out)
{
	sqlite3_stmt *stmt = NULL;
	int64_t table;
	bool rules, procs;
	int rc, err;

	/* Prefer the table of this version's builder to those of other builders. */
	rc = sqlite3_prepare_v2(db,
				"SELECT id, typeof(rules) = 'blob', typeof(procs) = 'blob'"
				" FROM main.tables WHERE object = ?1 AND version = ?2"
				" ORDER BY builder = ?3 DESC, built DESC LIMIT 1",
				-1, &stmt, NULL);
	if (rc != SQLITE_OK)
		return rc == SQLITE_NOMEM ? -ENOMEM : -EBADMSG;
	(void)sqlite3_bind_int64(stmt, 1, object);
	(void)sqlite3_bind_int64(stmt, 2, TABLE_VERSION);
	(void)sqlite3_bind_int64(stmt, 3, TABLE_BUILDER);
	rc = sqlite3_step(stmt);
	table = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
	rules = rc == SQLITE_ROW && sqlite3_column_int(stmt, 1);
	procs = rc == SQLITE_ROW && sqlite3_column_int(stmt, 2);
	(void)sqlite3_finalize(stmt);
	if (rc != SQLITE_ROW)
		return rc == SQLITE_DONE ? -ENOENT : -EIO;
	if (*out && (*out)->object == object && (*out)->table == table)
		err = 0;
	else
		err = load_row(db, object, table, rules, procs, out);
	return err;
}

/* ---- symbols ---------------------------------------------------------------------------- */

/* Read a build-id from a column; size 0 if it is empty or too long. */
static void take_build_id(sqlite3_stmt *stmt, int column, struct uw_build_id *out)
{
	int n = sqlite3_column_bytes(stmt, column);
	const void *bytes = sqlite3_column_blob(stmt, column);

	*out = (struct uw_build_id){ .size = 0 };
	if (bytes && n > 0 && n <= UW_BUILD_ID_MAX) {
		out->size = (uint8_t)n;
		memcpy(out->bytes, bytes, (size_t)n);
	}
}

/*
 * Open the stored symbols of the row that stmt has stepped to. NULL: they cannot be read, or their
 * key does not match the row.
 */
static struct sym_table *read_symbols(struct stored *stored, sqlite3_stmt *stmt)
{
	struct store_file f = { .known = true };
	struct sym_table *table = NULL;
	struct uw_build_id id;
	struct blob_place place = { "symbols", "symbols", 0 };
	struct uw_blob_source symbols;

	f.dev = (uint64_t)sqlite3_column_int64(stmt, 1);
	f.ino = (uint64_t)sqlite3_column_int64(stmt, 2);
	f.elf_off = (uint64_t)sqlite3_column_int64(stmt, 3);
	f.size = (uint64_t)sqlite3_column_int64(stmt, 4);
	f.mtime_ns = sqlite3_column_int64(stmt, 5);
	f.ctime_ns = sqlite3_column_int64(stmt, 6);
	take_build_id(stmt, 7, &id);
	f.uid = (uint64_t)sqlite3_column_int64(stmt, 8);
	place.row = sqlite3_column_int64(stmt, 0);
	if (blob_begin(stored->blobs, &place, &symbols) ||
	    sym_table_take_stored(&symbols, key_of_symbols(&f, &id), &table))
		return NULL;
	return table;
}

/*
 * Read the symbols of the file at path, if it has that build-id. The file may lie anywhere, even be
 * a pipe or a device: O_NONBLOCK and O_NOCTTY make sure that opening it has no effect and does not
 * wait.
 */
static struct sym_table *symbols_of_file(const char *path, const struct uw_build_id *id)
{
	int fd = path && id->size ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
	struct uw_object *object = NULL;
	struct sym_table *table = NULL;

	if (fd < 0)
		return NULL;
	if (!uw_object_open(fd, 0, &object) &&
	    (!uw_build_id_equal(uw_object_build_id(object), id) || sym_table_open(fd, 0, &table)))
		table = NULL;
	uw_object_put(object);
	(void)close(fd);
	return table;
}

/*
 * Try each row that sql gives until one of them has symbols. from_store: rows of "symbols", else of
 * "objects".
 */
static struct sym_table *find_symbols(struct stored *stored, const char *sql, bool from_store)
{
	sqlite3_stmt *stmt = NULL;
	struct sym_table *table = NULL;
	struct uw_build_id id;

	if (sqlite3_prepare_v2(stored->db, sql, -1, &stmt, NULL) == SQLITE_OK) {
		(void)sqlite3_bind_int64(stmt, 1, stored->object);
		(void)sqlite3_bind_int64(stmt, 2, SYMBOLS_READER);
		while (!table && sqlite3_step(stmt) == SQLITE_ROW) {
			if (from_store) {
				table = read_symbols(stored, stmt);
				continue;
			}
			take_build_id(stmt, 1, &id);
			table = symbols_of_file((const char *)sqlite3_column_text(stmt, 0), &id);
		}
	}
	(void)sqlite3_finalize(stmt);
	return table;
}

const struct sym_table *stored_symbols(struct stored *stored)
{
	if (stored->named)
		return stored->symbols;
	stored->named = true;
	/*
	 * Files with the same build-id have the same code; use the stored table with the most
	 * symbols.
	 */
	stored->symbols = find_symbols(
		stored,
		"SELECT s.id, s.dev, s.ino, s.elf_off, s.file_size, s.mtime_ns, s.ctime_ns,"
		" s.build_id, s.uid FROM main.symbols AS s JOIN main.objects AS o ON o.id = ?1"
		" WHERE s.reader = ?2 AND s.build_id = o.build_id AND length(s.build_id)"
		" ORDER BY s.n DESC",
		true);
	if (!stored->symbols)
		stored->symbols = find_symbols(
			stored, "SELECT path, build_id, ?2 FROM main.objects WHERE id = ?1", false);
	return stored->symbols;
}

int stored_whole(struct stored *stored)
{
	return uw_rows_whole(stored->rows);
}

void stored_rest(struct stored *stored)
{
	blob_reader_rest(stored->blobs);
}

void stored_put(struct stored *stored)
{
	if (!stored || --stored->refs)
		return;
	sym_table_free(stored->symbols);
	uw_rows_free(stored->rows);
	free(stored);
}

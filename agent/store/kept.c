/*
 * agent/store/kept.c: finds a stored object by name, opens its table for lazy reads, and finds
 * symbols for it.
 */
#include "agent/store/kept.h"

#include "agent/store/key.h"
#include "schema/symbols.h"
#include "schema/table.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SQLITE_EXTENSION_INIT3

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

int kept_find_text(sqlite3 *db, const char *key, int64_t *object)
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

int kept_find(sqlite3 *db, sqlite3_value *key, int64_t *object)
{
	switch (sqlite3_value_type(key)) {
	case SQLITE_INTEGER:
		return find_where(db, "id = ?1", key, NULL, object);
	case SQLITE_BLOB:
		return find_where(db, "build_id = ?1", key, NULL, object);
	case SQLITE_TEXT:
		return kept_find_text(db, (const char *)sqlite3_value_text(key), object);
	default:
		return -ENOENT;
	}
}

/* ---- blobs, read as they are needed ------------------------------------------------- */

struct kept_reading {
	sqlite3 *db;
	const char *table, *column;
	int64_t row;
	sqlite3_blob *open; /* NULL: no handle is open now */
	int size;
};

/* Open the blob handle if it is not open. -EBADMSG: the size has changed. */
static int open_blob(struct kept_reading *r)
{
	int size;

	if (r->open)
		return 0;
	if (sqlite3_blob_open(r->db, "main", r->table, r->column, r->row, 0, &r->open) !=
	    SQLITE_OK) {
		(void)sqlite3_blob_close(r->open);
		r->open = NULL;
		return -EIO;
	}
	size = sqlite3_blob_bytes(r->open);
	if (r->size < 0)
		r->size = size;
	/* If the size differs, another blob has replaced this one. */
	return size == r->size ? 0 : -EBADMSG;
}

/* Read a part of the blob (uw_kept.read). */
static int read_part(void *ctx, uint64_t off, void *out, size_t size)
{
	struct kept_reading *r = ctx;
	int err = open_blob(r);

	if (!err && sqlite3_blob_read(r->open, out, (int)size, (int)off) != SQLITE_OK)
		err = -EIO;
	return err;
}

/* Close the handle and free the reading (uw_kept.release). */
static void end_reading(void *ctx)
{
	struct kept_reading *r = ctx;

	(void)sqlite3_blob_close(r->open);
	free(r);
}

/* Begin to read a blob lazily. The owner of *kept frees *out by kept->release. */
static int begin_reading(sqlite3 *db, const char *table, const char *column, int64_t row,
			 struct kept_reading **out, struct uw_kept *kept)
{
	struct kept_reading *r = malloc(sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	*r = (struct kept_reading){
		.db = db, .table = table, .column = column, .row = row, .size = -1
	};
	err = open_blob(r);
	if (err) {
		free(r);
		return err;
	}
	*kept = (struct uw_kept){
		.size = (uint64_t)r->size, .read = read_part, .release = end_reading, .ctx = r
	};
	*out = r;
	return 0;
}

/* Open the blobs of a table row and replace *out by the new object. */
static int load_row(sqlite3 *db, int64_t object, int64_t table, bool has_rules, bool has_procs,
		    struct kept **out)
{
	struct kept *kept = calloc(1, sizeof(*kept));
	struct uw_kept rules, procs;
	int err;

	if (!kept)
		return -ENOMEM;
	kept->refs = 1;
	kept->object = object;
	kept->table = table;
	kept->db = db;
	err = has_rules ? begin_reading(db, "tables", "rules", table, &kept->readings[0], &rules)
			: 0;
	if (!err && has_procs) {
		err = begin_reading(db, "tables", "procs", table, &kept->readings[1], &procs);
		if (err && has_rules)
			end_reading(kept->readings[0]);
	}
	if (!err)
		err = uw_rows_open_kept(has_rules ? &rules : NULL, has_procs ? &procs : NULL,
					&kept->rows);
	if (err) {
		free(kept); /* uw_rows_open_kept released the readings */
		return err;
	}
	kept->rules = uw_rows_table(kept->rows, &kept->rules_size);
	kept->procs = uw_rows_ranges(kept->rows, &kept->procs_size);
	kept_put(*out);
	*out = kept;
	return 0;
}

int kept_load(sqlite3 *db, int64_t object, struct kept **out)
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
static struct sym_table *stored_symbols(struct kept *kept, sqlite3_stmt *stmt)
{
	struct store_file f = { .known = true };
	struct sym_table *table = NULL;
	struct uw_build_id id;
	struct uw_kept symbols;

	f.dev = (uint64_t)sqlite3_column_int64(stmt, 1);
	f.ino = (uint64_t)sqlite3_column_int64(stmt, 2);
	f.elf_off = (uint64_t)sqlite3_column_int64(stmt, 3);
	f.size = (uint64_t)sqlite3_column_int64(stmt, 4);
	f.mtime_ns = sqlite3_column_int64(stmt, 5);
	f.ctime_ns = sqlite3_column_int64(stmt, 6);
	take_build_id(stmt, 7, &id);
	f.uid = (uint64_t)sqlite3_column_int64(stmt, 8);
	if (begin_reading(kept->db, "symbols", "symbols", sqlite3_column_int64(stmt, 0),
			  &kept->readings[2], &symbols))
		return NULL;
	if (sym_table_take_kept(&symbols, key_of_symbols(&f, &id), &table)) {
		kept->readings[2] = NULL;
		return NULL;
	}
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
 * Try each row that sql gives until one of them has symbols. stored: rows of "symbols", else of
 * "objects".
 */
static struct sym_table *find_symbols(struct kept *kept, const char *sql, bool stored)
{
	sqlite3_stmt *stmt = NULL;
	struct sym_table *table = NULL;
	struct uw_build_id id;

	if (sqlite3_prepare_v2(kept->db, sql, -1, &stmt, NULL) == SQLITE_OK) {
		(void)sqlite3_bind_int64(stmt, 1, kept->object);
		(void)sqlite3_bind_int64(stmt, 2, SYMBOLS_READER);
		while (!table && sqlite3_step(stmt) == SQLITE_ROW) {
			if (stored) {
				table = stored_symbols(kept, stmt);
				continue;
			}
			take_build_id(stmt, 1, &id);
			table = symbols_of_file((const char *)sqlite3_column_text(stmt, 0), &id);
		}
	}
	(void)sqlite3_finalize(stmt);
	return table;
}

const struct sym_table *kept_symbols(struct kept *kept)
{
	if (kept->named)
		return kept->symbols;
	kept->named = true;
	/*
	 * Files with the same build-id have the same code; use the stored table with the most
	 * symbols.
	 */
	kept->symbols = find_symbols(
		kept,
		"SELECT s.id, s.dev, s.ino, s.elf_off, s.file_size, s.mtime_ns, s.ctime_ns,"
		" s.build_id, s.uid FROM main.symbols AS s JOIN main.objects AS o ON o.id = ?1"
		" WHERE s.reader = ?2 AND s.build_id = o.build_id AND length(s.build_id)"
		" ORDER BY s.n DESC",
		true);
	if (!kept->symbols)
		kept->symbols = find_symbols(
			kept, "SELECT path, build_id, ?2 FROM main.objects WHERE id = ?1", false);
	return kept->symbols;
}

int kept_whole(struct kept *kept)
{
	return uw_rows_whole(kept->rows);
}

void kept_rest(struct kept *kept)
{
	for (int i = 0; i < 3; i++) {
		if (!kept->readings[i])
			continue;
		(void)sqlite3_blob_close(kept->readings[i]->open);
		kept->readings[i]->open = NULL;
	}
}

void kept_put(struct kept *kept)
{
	if (!kept || --kept->refs)
		return;
	sym_table_free(kept->symbols);
	uw_rows_free(kept->rows);
	free(kept);
}

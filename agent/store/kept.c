#include "agent/store/kept.h"

#include "schema/table.h"

#include <errno.h>
#include <sqlite3ext.h>
#include <stdlib.h>
#include <string.h>

SQLITE_EXTENSION_INIT3

#define PREFIX_MIN 4

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
	/* A base name, or, as in "libcrypto", how it begins before a dot. */
	if (err == -ENOENT)
		err = find_where(db, "substr(path, -length(?1) - 1) = '/' || ?1", NULL, key,
				 object);
	if (err == -ENOENT)
		err = find_where(db, "instr(path, '/' || ?1 || '.')", NULL, key, object);
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

/* The column's bytes where a table may lie. */
static int copy(sqlite3_stmt *stmt, int column, void **out, size_t *size)
{
	const void *bytes = sqlite3_column_blob(stmt, column);
	int n = sqlite3_column_bytes(stmt, column);

	*size = bytes && n > 0 ? (size_t)n : 0;
	if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
		return 0;
	*out = malloc(*size ? *size : 1); /* aligned for everything, so for 8 */
	if (!*out)
		return -ENOMEM;
	if (*size)
		memcpy(*out, bytes, *size);
	return 0;
}

static int load_row(sqlite3_stmt *stmt, int64_t object, struct kept **out)
{
	struct kept *kept = calloc(1, sizeof(*kept));
	int err;

	if (!kept)
		return -ENOMEM;
	kept->refs = 1;
	kept->object = object;
	kept->table = sqlite3_column_int64(stmt, 0);
	err = copy(stmt, 1, &kept->blobs[0], &kept->rules_size);
	if (!err)
		err = copy(stmt, 2, &kept->blobs[1], &kept->procs_size);
	kept->rules = kept->blobs[0];
	kept->procs = kept->blobs[1];
	if (!err)
		err = uw_rows_open(kept->rules, kept->rules_size, kept->procs, kept->procs_size,
				   &kept->rows);
	if (err) {
		kept_put(kept);
		return err;
	}
	kept_put(*out);
	*out = kept;
	return 0;
}

int kept_load(sqlite3 *db, int64_t object, struct kept **out)
{
	sqlite3_stmt *stmt = NULL;
	int rc, err;

	/* Its own builder's before others'. */
	rc = sqlite3_prepare_v2(db,
				"SELECT id, rules, procs FROM main.tables WHERE object = ?1"
				" AND version = ?2 ORDER BY builder = ?3 DESC, built DESC LIMIT 1",
				-1, &stmt, NULL);
	if (rc != SQLITE_OK)
		return rc == SQLITE_NOMEM ? -ENOMEM : -EBADMSG;
	(void)sqlite3_bind_int64(stmt, 1, object);
	(void)sqlite3_bind_int64(stmt, 2, TABLE_VERSION);
	(void)sqlite3_bind_int64(stmt, 3, TABLE_BUILDER);
	rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW && *out && (*out)->object == object &&
	    (*out)->table == sqlite3_column_int64(stmt, 0))
		err = 0;
	else if (rc == SQLITE_ROW)
		err = load_row(stmt, object, out);
	else
		err = rc == SQLITE_DONE ? -ENOENT : -EIO;
	(void)sqlite3_finalize(stmt);
	return err;
}

void kept_put(struct kept *kept)
{
	if (!kept || --kept->refs)
		return;
	uw_rows_free(kept->rows);
	free(kept->blobs[0]);
	free(kept->blobs[1]);
	free(kept);
}

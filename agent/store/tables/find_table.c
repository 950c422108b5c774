/*
 * agent/store/tables/find_table.c: looks up the stored table of a file, by the file's inode, by the hash
 * of its contents or, for a file that no longer exists, by its build-id.
 */
#include "agent/store/parts.h"

#include "agent/store/change.h"
#include "agent/store/identity.h"
#include "agent/store/key.h"
#include "agent/store/stored_blob.h"
#include "schema/table_blob.h"

#include <errno.h>
#include <string.h>

/* Files up to this size are hashed before their first sample is walked: 0.4 ms at most. */
#define HASH_AT_ONCE_MAX ((uint64_t)4 << 20)

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
	stmt = session_statement(s, FIND_FILE, &err);
	if (!stmt)
		return err;
	db_bind_numbers(stmt, key, 7);
	err = db_step(stmt);
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
	db_release(stmt);
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

	stmt = session_statement(s, FIND_SAME, &err);
	if (!stmt)
		return err;
	db_bind_bytes(stmt, 1, build_id->bytes, build_id->size);
	(void)sqlite3_bind_int64(stmt, 2, uw_object_machine(object));
	while ((err = db_step(stmt)) == 1) {
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
	db_release(stmt);
	return err == 1 ? 0 : err ? err : -ENOENT;
}

/* Count a damaged table and delete it at once, unless the store is read-only. */
static void drop_table(struct store *s, int64_t table)
{
	s->counters.damaged++;
	if (s->read_only)
		return;
	blob_reader_rest(&s->blobs);
	if (change_is_asked_for()) {
		session_remember(s, DROP_TABLE, table, NULL);
		(void)session_write_used(s);
	} else if (session_run(s, DROP_TABLE, &table, 1)) {
		(void)session_failed(s, "delete a damaged table", -EIO);
	}
}

/* How an object takes one of a table's two blobs: as a whole, or to be read as needed. */
struct part {
	const char *column;
	int (*take)(struct uw_object *object, void *blob, size_t size,
		    const struct uw_identity *known);
	int (*take_stored)(struct uw_object *object, const struct uw_blob_source *stored,
			   const struct uw_identity *known);
};

static const struct part rules_part = { "rules", uw_object_take, uw_object_take_stored };
static const struct part procs_part = { "procs", uw_object_take_procs,
					uw_object_take_stored_procs };

/* Give one blob of a table to the object, which takes ownership of it. */
static int take_part(struct store *s, const struct part *part, struct uw_object *object,
		     int64_t table, bool whole, const struct uw_identity *identity)
{
	const struct blob_place place = { "tables", part->column, table };
	struct uw_blob_source stored;
	size_t size;
	void *blob;
	int err;

	if (whole) {
		err = reading_whole(s, &place, &blob, &size);
		return err ? err : part->take(object, blob, size, identity);
	}
	err = reading_begin(s, &place, &stored);
	return err ? err : part->take_stored(object, &stored, identity);
}

/* Return whether err is the blob's fault, and not a failure to read it. */
static bool is_bad(int err)
{
	return err == -EBADMSG || err == -ENOTSUP || err == -ENOENT || err == -EINVAL;
}

/*
 * Step to the row of "tables" with the table of object id; the caller releases the statement. NULL:
 * *err is -ENOENT if there is none, or another code.
 */
static sqlite3_stmt *step_to_table(struct store *s, int64_t id, int *err)
{
	const int64_t key[] = { id, TABLE_VERSION, TABLE_BUILDER };
	sqlite3_stmt *stmt = session_statement(s, FIND_TABLE, err);

	if (!stmt)
		return NULL;
	db_bind_numbers(stmt, key, 3);
	*err = db_step(stmt);
	if (*err == 1)
		return stmt;
	*err = *err ? *err : -ENOENT;
	db_release(stmt);
	return NULL;
}

/* Give object the table of row id. A damaged table is deleted: -ENOENT. */
static int take_table(struct store *s, struct uw_object *object, int64_t id, bool whole,
		      const struct uw_identity *identity)
{
	bool has_rules, has_procs;
	sqlite3_stmt *stmt;
	int64_t table;
	int err;

	stmt = step_to_table(s, id, &err);
	if (!stmt)
		return err;
	table = sqlite3_column_int64(stmt, 0);
	has_rules = sqlite3_column_int(stmt, 1);
	has_procs = sqlite3_column_int(stmt, 2);
	err = has_rules || has_procs ? 0 : -EBADMSG;
	if (has_rules)
		err = take_part(s, &rules_part, object, table, whole, identity);
	if (!err && has_procs)
		err = take_part(s, &procs_part, object, table, whole, identity);
	db_release(stmt);
	if (is_bad(err)) {
		drop_table(s, table);
		return -ENOENT;
	}
	return err;
}

int table_add_file(struct store *s, const struct new_inode *new, const struct store_file *f)
{
	const int64_t id = new->object;
	const int64_t row[] = { (int64_t)f->dev,
				(int64_t)f->ino,
				(int64_t)f->elf_off,
				(int64_t)f->size,
				f->mtime_ns,
				f->ctime_ns,
				(int64_t)f->uid,
				id,
				(int64_t)key_of_file(f, new->build_id, new->machine,
						     new->identity) };
	const int64_t owner[] = { id, f->owner };
	int err = f->vouched ? session_run(s, ADD_FILE, row, 9) : 0;

	return !err && f->vouched && f->owner >= 0 ? session_run(s, VOUCH, owner, 2) : err;
}

int table_note_file(struct store *s, const struct new_inode *new, const struct store_file *f)
{
	if (!f->vouched)
		return 0;
	if (change_is_asked_for())
		return change_file(s, new, f);
	blob_reader_rest(&s->blobs);
	return table_add_file(s, new, f);
}

/* The same for an object that is open. */
static void note_file_of(struct store *s, int64_t id, const struct uw_object *object,
			 const struct store_file *f, const struct uw_identity *identity)
{
	(void)table_note_file(s,
			      &(struct new_inode){ .object = id,
						   .build_id = uw_object_build_id(object),
						   .machine = uw_object_machine(object),
						   .identity = identity },
			      f);
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
	if (!err && (!by_file || session_is_stale(used)))
		session_remember(s, MARK_USED, id, file->path ? file->path : "");
	/* Store the inode, so that the next run need not hash the file. */
	if (!err && !by_file && !s->read_only)
		note_file_of(s, id, object, file, &identity);
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
	if (!s->db && !session_gave_up(s)) {
		s->counters.missing++;
	} else if (!session_gave_up(s)) {
		err = find(s, object, file, how);
		if (err == -ENOENT)
			s->counters.missing++;
		else if (err)
			err = session_failed(s, "look up a table", err);
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

bool table_is_stored(struct store *s, struct uw_object *object, const struct store_file *file)
{
	struct uw_identity identity;
	sqlite3_stmt *stmt = NULL;
	int64_t id;
	int err;

	pthread_mutex_lock(&s->lock);
	err = s->db && !session_gave_up(s) ? find_by_contents(s, object, &id, &identity) : -ENOENT;
	if (!err)
		stmt = step_to_table(s, id, &err);
	if (stmt) {
		db_release(stmt);
		note_file_of(s, id, object, file, &identity);
	}
	pthread_mutex_unlock(&s->lock);
	return stmt != NULL;
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
	const struct blob_place place = { "tables", "rules", table };
	bool has_procs = sqlite3_column_int(stmt, 6);
	struct uw_object *object = NULL;
	struct uw_blob_source stored;
	int err = reading_begin(s, &place, &stored);

	if (!err)
		err = uw_object_open_stored(&stored, &object);
	if (!err && has_procs)
		err = take_part(s, &procs_part, object, table, false, &identity);
	if (is_bad(err)) {
		s->counters.damaged++;
		session_remember(s, DROP_TABLE, table, NULL);
		err = -ENOENT;
	}
	if (err) {
		uw_object_put(object);
		return err;
	}
	if (session_is_stale(sqlite3_column_int64(stmt, 4)))
		session_remember(s, MARK_USED, sqlite3_column_int64(stmt, 0),
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

	stmt = session_statement(s, FIND_GONE, &err);
	if (!stmt)
		return err;
	(void)sqlite3_bind_blob(stmt, 1, id->bytes, id->size, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 2, TABLE_VERSION);
	(void)sqlite3_bind_int64(stmt, 3, TABLE_BUILDER);
	while ((err = db_step(stmt)) == 1) {
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
	db_release(stmt);
	return err;
}

int store_find_gone(struct store *s, const struct uw_build_id *id, struct uw_object **out)
{
	int err = -ENOENT;

	*out = NULL;
	if (!s || !id->size)
		return err;
	pthread_mutex_lock(&s->lock);
	if (s->db && !session_gave_up(s)) {
		err = find_gone(s, id, out);
		s->counters.found += !err;
		if (err && err != -ENOENT && err != -EPERM)
			err = session_failed(s, "look up a table", err);
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

/*
 * agent/store/tables/store_symbols.c: looks up and inserts the symbols and the source lines of files.
 */
#include "agent/store/parts.h"

#include "agent/store/change.h"
#include "agent/store/identity.h"
#include "agent/store/key.h"
#include "agent/store/stored_blob.h"
#include "schema/lines_blob.h"
#include "schema/symbols_blob.h"
#include "symbolizer/symbolizer.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

/*
 * Lines are stored in the table "symbols", with a reader number of their own: both are names that a
 * file gives its code, have the same keys and are evicted together.
 */
#define READER_LINES (256 + LINES_READER)

static uint64_t key_of_lines(const struct store_file *f, const struct uw_build_id *id)
{
	return key_of_file(f, id, 0, &(struct uw_identity){ .size = READER_LINES });
}

/* Open a symbol table that is read as it is needed. */
static int take_symbols(struct store *s, const struct blob_place *place, uint64_t key,
			struct sym_table **out)
{
	struct uw_blob_source stored;
	int err = reading_begin(s, place, &stored);

	return err ? err : sym_table_take_stored(&stored, key, out);
}

/* Read and unpack all lines of a file. */
static int take_lines(struct store *s, const struct blob_place *place, uint64_t key,
		      struct sym_lines **out)
{
	size_t size;
	void *blob;
	int err = reading_whole(s, place, &blob, &size);

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
	const struct blob_place place = { "symbols", "symbols", row };
	int err = w->table ? take_symbols(s, &place, key_of_symbols(f, w->id), w->table)
			   : take_lines(s, &place, key_of_lines(f, w->id), w->lines);

	if (!err && session_is_stale(used))
		session_remember(s, USED_SYMBOLS, row, NULL);
	if (err == -EBADMSG || err == -ENOTSUP) {
		s->counters.damaged++;
		session_remember(s, DROP_SYMBOLS, row, NULL);
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

	stmt = session_statement(s, FIND_SYMBOLS, &err);
	if (!stmt)
		return err;
	db_bind_numbers(stmt, key, 8);
	db_bind_bytes(stmt, 9, w->id->bytes, w->id->size);
	if (w->beside)
		identity_of_file(w->beside, NULL, &beside);
	db_bind_bytes(stmt, 10, beside.bytes, w->beside ? IDENTITY_SIZE : 0);
	err = db_step(stmt);
	if (err == 1)
		err = take_either(s, w, f, sqlite3_column_int64(stmt, 0),
				  sqlite3_column_int64(stmt, 1));
	else if (!err)
		err = -ENOENT;
	db_release(stmt);
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

	stmt = session_statement(s, FIND_GONE_SYMBOLS, &err);
	if (!stmt)
		return err;
	db_bind_bytes(stmt, 1, w->id->bytes, w->id->size);
	(void)sqlite3_bind_int64(stmt, 2, reader_of(w->lines));
	while (found == -ENOENT && (err = db_step(stmt)) == 1) {
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
	db_release(stmt);
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
	if (s->db && !session_gave_up(s)) {
		err = w->file ? find_symbols(s, w) : find_gone_symbols(s, w);
		if (w->table)
			s->counters.symbols_found += !err;
		else
			s->counters.lines_found += !err;
		if (err && err != -ENOENT)
			err = session_failed(s, "look up symbols", err);
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

/* Insert the packed symbols or lines of a file. */
static int add_symbols(struct store *s, const struct new_symbols *k)
{
	const struct store_file *f = &k->file;
	const int64_t numbers[] = { (int64_t)f->dev,	 (int64_t)f->ino,  (int64_t)f->elf_off,
				    reader_of(k->lines), (int64_t)f->size, f->mtime_ns,
				    f->ctime_ns,	 (int64_t)f->uid };
	sqlite3_stmt *stmt;
	int err;

	stmt = session_statement(s, ADD_SYMBOLS, &err);
	if (!stmt)
		return err;
	db_bind_numbers(stmt, numbers, 8);
	db_bind_bytes(stmt, 9, k->build_id.bytes, k->build_id.size);
	db_bind_bytes(stmt, 10, k->beside ? k->beside->bytes : NULL, k->beside ? IDENTITY_SIZE : 0);
	(void)sqlite3_bind_text(stmt, 11, f->path ? f->path : "", -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 12, time(NULL));
	(void)sqlite3_bind_int64(stmt, 13, (int64_t)k->n);
	(void)sqlite3_bind_int64(stmt, 14, (int64_t)k->size);
	(void)sqlite3_bind_blob64(stmt, 15, k->blob, k->size, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 16, f->owner);
	err = db_step(stmt);
	db_release(stmt);
	return err;
}

int symbols_insert(struct store *s, const struct new_symbols *new)
{
	int err;

	if (change_is_asked_for())
		return change_symbols(s, new);
	err = session_begin(s);
	if (err)
		return err;
	err = add_symbols(s, new);
	if (!err)
		err = budget_evict(s, s->budget, -1);
	return session_end(s, err);
}

/* Pack before the lock is taken, because it takes long. */
void symbols_keep(struct store *s, const struct wanted_symbols *w)
{
	struct new_symbols new = { .lines = !w->table,
				   .build_id = w->build_id,
				   .file = w->file,
				   .beside = w->has_beside ? &w->beside : NULL };
	void *blob;
	int err = w->table ? sym_table_pack(w->table, key_of_symbols(&w->file, &w->build_id), &blob,
					    &new.size)
			   : sym_lines_pack(w->lines, key_of_lines(&w->file, &w->build_id), &blob,
					    &new.size);

	if (err)
		return;
	new.n = w->table ? sym_table_size(w->table) : sym_lines_size(w->lines);
	new.blob = blob;
	if ((int64_t) new.size < BLOB_MAX) {
		pthread_mutex_lock(&s->lock);
		err = symbols_insert(s, &new);
		if (err)
			(void)session_failed(s, "store symbols", err);
		else if (w->table)
			s->counters.symbols_stored++;
		else
			s->counters.lines_stored++;
		pthread_mutex_unlock(&s->lock);
	}
	free(blob);
}

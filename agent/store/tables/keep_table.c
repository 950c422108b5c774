/* agent/store/tables/keep_table.c: compiles unwind tables and inserts them, or imports them. */
#include "agent/store/parts.h"

#include "agent/role/reading.h"
#include "agent/store/change.h"
#include "agent/store/identity.h"
#include "schema/procs_blob.h"
#include "schema/table_blob.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t n_procs(const struct new_table *made)
{
	const struct procs_header *h = made->procs;

	return h->n;
}

/* Insert the object or update the row that it has already; give the row's id. */
static int add_object(struct store *s, const struct store_file *file, const struct new_table *made,
		      int64_t *id)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = session_statement(s, ADD_OBJECT, &err);
	if (!stmt)
		return err;
	db_bind_bytes(stmt, 1, made->build_id.bytes, made->build_id.size);
	(void)sqlite3_bind_int64(stmt, 2, (int64_t)made->identity.size);
	(void)sqlite3_bind_int64(stmt, 3, (int64_t)made->identity.hash);
	(void)sqlite3_bind_int64(stmt, 4, made->machine);
	(void)sqlite3_bind_text(stmt, 5, file->path ? file->path : "", -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 6, (int64_t)file->size);
	(void)sqlite3_bind_int64(stmt, 7, time(NULL));
	(void)sqlite3_bind_int64(stmt, 8, file->owner);
	(void)sqlite3_bind_blob(stmt, 9, made->contents.bytes, IDENTITY_SIZE, SQLITE_STATIC);
	err = db_step(stmt);
	if (err == 1) {
		*id = sqlite3_column_int64(stmt, 0);
		err = db_step(stmt);
	} else if (!err) {
		err = -EBADMSG;
	}
	db_release(stmt);
	return err;
}

/* Insert a table. A table that is there already stays as it is. */
static int add_table(struct store *s, int64_t object, const struct new_table *made)
{
	const struct table_header *h = made->rules;
	sqlite3_stmt *stmt;
	int err;

	stmt = session_statement(s, ADD_TABLE, &err);
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
	err = db_step(stmt);
	db_release(stmt);
	if (!err)
		s->counters.stored += (uint64_t)sqlite3_changes(s->db);
	return err;
}

int table_insert(struct store *s, const struct new_table *made, const struct store_file *file)
{
	struct new_inode of = { .build_id = &made->build_id,
				.machine = made->machine,
				.identity = &made->identity };
	int err;

	if (change_is_asked_for())
		return change_table(s, made, file);
	err = session_begin(s);
	if (err)
		return err;
	err = add_object(s, file, made, &of.object);
	if (!err)
		err = add_table(s, of.object, made);
	if (!err)
		err = table_add_file(s, &of, file);
	if (!err)
		err = quarantine_built(s, &made->build_id, file);
	if (err == -ENOENT) /* nothing identifies the file, so "building" has no row either */
		err = 0;
	if (!err)
		err = budget_evict(s, s->budget, of.object);
	return session_end(s, err);
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
 * *procs is the caller's. *built: the table was compiled here.
 */
static int make(struct uw_object *object, const atomic_bool *stop, struct new_table *made,
		void **procs, bool *built)
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

/* Return whether err is a verdict on the file, so that another attempt would fail the same way. */
static bool is_refused(int err)
{
	return err == -EBADMSG || err == -ENOTSUP || err == -E2BIG || err == -EFBIG;
}

static bool is_read_only(struct store *s)
{
	bool read_only;

	pthread_mutex_lock(&s->lock);
	read_only = s->read_only;
	pthread_mutex_unlock(&s->lock);
	return read_only;
}

/* Note what is being compiled, for the supervisor; see agent/role/reading.h. */
static int note(const struct store_file *f)
{
	struct reading_file file = { .dev = f->dev,
				     .ino = f->ino,
				     .size = f->size,
				     .mtime_ns = f->mtime_ns,
				     .ctime_ns = f->ctime_ns,
				     .uid = f->uid,
				     .elf_off = f->elf_off };

	(void)snprintf(file.path, sizeof(file.path), "%s", f->path ? f->path : "");
	return reading_note_known(&file);
}

int store_keep(struct store *s, struct uw_object *object, const struct store_file *file)
{
	return store_keep_unless(s, object, file, NULL);
}

/*
 * Compile without the lock, because it takes long. The row of quarantine_begin tells later
 * processes what was being compiled if this process crashes.
 */
int store_keep_unless(struct store *s, struct uw_object *object, const struct store_file *file,
		      const atomic_bool *stop)
{
	const struct uw_build_id *id = uw_object_build_id(object);
	struct new_table made = { .build_id = *id, .machine = uw_object_machine(object) };
	void *procs = NULL;
	int64_t row;
	bool built;
	int number, err;

	if (!s || is_read_only(s)) {
		err = compile(object, stop);
		return err ? err : -EROFS;
	}
	if (store_is_quarantined(s, id, file))
		return -EPERM;
	if (quarantine_begin(s, id, file, &row)) {
		(void)store_is_quarantined(s, id, file); /* logs why it now is in quarantine */
		return -EPERM;
	}
	number = note(file);
	err = make(object, stop, &made, &procs, &built);
	reading_noted(number);
	if (is_refused(err))
		(void)store_quarantine(s, id, file,
				       err == -ENOTSUP ? "it cannot be compiled"
				       : err == -EFBIG
					       ? "compiling it takes too long or too much memory"
					       : strerror(-err));
	pthread_mutex_lock(&s->lock);
	s->counters.built += built;
	if (!err && session_gave_up(s))
		err = -EIO;
	else if (!err && (int64_t)(made.rules_size + made.procs_size) >= BLOB_MAX)
		err = -ENOSPC;
	else if (!err) {
		err = table_insert(s, &made, file);
		if (err)
			(void)session_failed(s, "keep a table", err);
		else
			s->failures = 0;
	}
	pthread_mutex_unlock(&s->lock);
	if (err)
		quarantine_end(s, row);
	/* Walks find functions by the ranges, without reading the file. */
	if (procs)
		(void)uw_object_take_procs(object, procs, made.procs_size, &made.identity);
	return err;
}

/*
 * Open the blobs, which checks all of their contents, and compare the two: nothing else shows that
 * they are sound.
 */
int store_import(struct store *s, const struct store_blobs *blobs, bool *stored)
{
	const struct table_header *h = blobs->rules;
	const struct procs_header *p = blobs->procs;
	/* The user who imports a table vouches for it. */
	struct store_file file = { .path = blobs->path, .owner = (int64_t)geteuid() };
	struct new_table made = { .rules = blobs->rules,
				  .rules_size = blobs->rules_size,
				  .procs = blobs->procs,
				  .procs_size = blobs->procs_size };
	struct uw_rows *rows;
	uint64_t before;
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
	made.build_id.size = h->build_id_size;
	memcpy(made.build_id.bytes, h->build_id, h->build_id_size);
	made.machine = h->blob.machine;
	made.identity = (struct uw_identity){ .size = h->src_size, .hash = h->src_hash };
	memcpy(made.contents.bytes, blobs->identity, IDENTITY_SIZE);
	pthread_mutex_lock(&s->lock);
	before = s->counters.stored;
	err = s->read_only ? -EROFS : session_begin(s);
	if (!err) {
		err = add_object(s, &file, &made, &id);
		if (!err)
			err = add_table(s, id, &made);
		if (!err)
			err = budget_evict(s, s->budget, id);
		err = session_end(s, err);
	}
	*stored = s->counters.stored != before;
	pthread_mutex_unlock(&s->lock);
	return err;
}

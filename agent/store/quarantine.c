/*
 * agent/store/quarantine.c: the quarantine of files of which no table can be made, and the notes of
 * what is being compiled, by which a file that ends the process is found.
 */
#include "agent/store/parts.h"

#include "agent/log.h"
#include "agent/role/reading.h"
#include "agent/store/alive.h"
#include "agent/store/change.h"
#include "agent/store/identity.h"
#include "schema/table_blob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * One process that ended while it compiled a file proves little: it may have been killed for any
 * reason.
 */
#define DEATHS_MAX 2
/* The end of a process counts against the file for this long. */
#define DEATH_SECONDS (7 * 24 * 3600)

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
	db_bind_bytes(stmt, 1, id->bytes, id->size);
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

	stmt = session_statement(s, which, &err);
	if (!stmt)
		return err;
	err = bind_quarantine(stmt, id, file);
	if (pid) {
		(void)sqlite3_bind_int64(stmt, 5, pid);
		(void)sqlite3_bind_int64(stmt, 6, (int64_t)alive_since(pid));
		(void)sqlite3_bind_int64(stmt, 7, time(NULL));
	}
	if (!err)
		err = db_step(stmt);
	db_release(stmt);
	return err;
}

int quarantine_built(struct store *s, const struct uw_build_id *id, const struct store_file *file)
{
	return run_building(s, BUILT, id, file, 0);
}

/*
 * Log why a file is in quarantine: the first file of a run as a warning, others for --verbose only.
 */
static void say_quarantined(struct store *s, const char *path, sqlite3_stmt *stmt)
{
	const char *reason = (const char *)sqlite3_column_text(stmt, 0);
	const char *since = (const char *)sqlite3_column_text(stmt, 1);

	reason = reason ? reason : "the reason is not known";
	since = since ? since : "long";
	if (s->said_quarantine)
		log_debug("%s: in quarantine since %s: %s", path, since, reason);
	else
		log_warning("%s: not used, the file is in quarantine since %s: %s; offwind cache "
			    "verify lists all such files, --repair releases them",
			    path, since, reason);
	s->said_quarantine = true;
}

/* If the database cannot be read, the file counts as not in quarantine. */
bool store_is_quarantined(struct store *s, const struct uw_build_id *id,
			  const struct store_file *file)
{
	sqlite3_stmt *stmt;
	int err = 0;

	if (!s)
		return false;
	pthread_mutex_lock(&s->lock);
	stmt = s->db && !session_gave_up(s) ? session_statement(s, IS_QUARANTINED, &err) : NULL;
	if (stmt) {
		err = bind_quarantine(stmt, id, file);
		if (!err)
			err = db_step(stmt);
		if (err == 1)
			say_quarantined(s, file->path, stmt);
		db_release(stmt);
	}
	s->counters.quarantined += err == 1;
	pthread_mutex_unlock(&s->lock);
	return err == 1;
}

/* The supervisor puts such files in quarantine without a build-id: nobody has read one. */
bool store_refuses(struct store *s, int fd, uint64_t elf_off, const char *path)
{
	struct store_file file;

	if (reading_is_refused(fd))
		return true;
	store_file_of(fd, elf_off, path, &file);
	return store_is_quarantined(s, NULL, &file);
}

/* Insert or update a quarantine row, and release what other versions of the builder refused. */
static int put_in_quarantine(struct store *s, const struct uw_build_id *id,
			     const struct store_file *file, const char *reason)
{
	const int64_t builder = TABLE_BUILDER;
	sqlite3_stmt *stmt;
	int err = session_run(s, RELEASE, &builder, 1);

	if (err)
		return err;
	stmt = session_statement(s, QUARANTINE, &err);
	if (!stmt)
		return err;
	err = bind_quarantine(stmt, id, file);
	(void)sqlite3_bind_text(stmt, 5, reason, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 6, time(NULL));
	if (!err)
		err = db_step(stmt);
	db_release(stmt);
	return err;
}

int quarantine_insert(struct store *s, const struct uw_build_id *id, const struct store_file *file,
		      const char *reason)
{
	int err;

	if (change_is_asked_for())
		return s->read_only ? -EROFS : change_quarantine(s, id, file, reason);
	err = session_begin(s);
	return err ? err : session_end(s, put_in_quarantine(s, id, file, reason));
}

int store_quarantine(struct store *s, const struct uw_build_id *id, const struct store_file *file,
		     const char *reason)
{
	int err;

	if (!s)
		return -EROFS;
	pthread_mutex_lock(&s->lock);
	err = quarantine_insert(s, id, file, reason);
	if (err && err != -ENOENT && err != -EROFS)
		(void)session_failed(s, "store a refusal", err);
	pthread_mutex_unlock(&s->lock);
	return err;
}

/* Count the processes that ended while they compiled the file. */
static int count_deaths(struct store *s, const struct uw_build_id *id,
			const struct store_file *file, int64_t *n)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = session_statement(s, BUILDING, &err);
	if (!stmt)
		return err;
	err = bind_quarantine(stmt, id, file);
	while (!err && (err = db_step(stmt)) == 1) {
		*n += alive_ended(sqlite3_column_int64(stmt, 0),
				  (uint64_t)sqlite3_column_int64(stmt, 1));
		err = 0;
	}
	db_release(stmt);
	return err;
}

/*
 * A row of a process that ended without deleting it counts as a death. DEATHS_MAX of them put the
 * file in quarantine.
 */
int quarantine_begin(struct store *s, const struct uw_build_id *id, const struct store_file *file,
		     int64_t *row)
{
	const int64_t stale[] = { TABLE_BUILDER, time(NULL) - DEATH_SECONDS };
	char reason[96];
	int64_t deaths = 0;
	int err;

	*row = 0;
	if (change_is_asked_for())
		return 0; /* the supervisor sees this process end, and knows what it was reading */
	pthread_mutex_lock(&s->lock);
	err = session_gave_up(s) ? -EIO : session_begin(s);
	if (!err) {
		err = session_run(s, FORGET_BUILDING, stale, 2);
		if (!err)
			err = count_deaths(s, id, file, &deaths);
		if (!err && deaths >= DEATHS_MAX) {
			(void)snprintf(reason, sizeof(reason),
				       "%" PRId64 " processes ended while they compiled it",
				       deaths);
			err = put_in_quarantine(s, id, file, reason);
			if (!err)
				err = quarantine_built(s, id, file);
		} else if (!err) {
			err = run_building(s, BEGIN_BUILDING, id, file, getpid());
			*row = sqlite3_last_insert_rowid(s->db);
		}
		err = session_end(s, err);
		if (err)
			*row = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return !err && deaths >= DEATHS_MAX ? -EPERM : 0;
}

void quarantine_end(struct store *s, int64_t row)
{
	int err;

	if (!row)
		return;
	pthread_mutex_lock(&s->lock);
	err = session_gave_up(s) ? -EIO : session_begin(s);
	if (!err)
		err = session_end(s, session_run(s, END_BUILDING, &row, 1));
	s->left_building = s->left_building || err;
	pthread_mutex_unlock(&s->lock);
}

void quarantine_forget(struct store *s)
{
	const int64_t pid = getpid();
	int err;

	if (!s->left_building || !s->db || s->read_only)
		return;
	(void)sqlite3_busy_timeout(s->db, WORK_WAIT_MS);
	err = session_begin(s);
	if (!err)
		(void)session_end(s, session_run(s, FORGET_OWN, &pid, 1));
}

/*
 * agent/store/quarantine.c: the quarantine of files of which no table can be made, and the notes of
 * what is being compiled, by which a file that ends the process is found.
 */
#include "agent/store/parts.h"

#include "agent/array.h"
#include "agent/log.h"
#include "agent/role/reading.h"
#include "agent/store/alive.h"
#include "agent/store/change.h"
#include "agent/store/identity.h"
#include "schema/table_blob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/*
 * One process that ended while it compiled a file proves little: it may have been killed for any
 * reason.
 */
#define DEATHS_MAX 2
/* The end of a process counts against the file for this long. */
#define DEATH_SECONDS (7 * 24 * 3600)

/* Return a hash of what is known of a file; 0: its inode is not known. */
static int64_t hash_of_file(const struct store_file *f, const struct uw_build_id *id)
{
	struct identity identity;
	int64_t hash;

	identity_of_file(f, id, &identity);
	memcpy(&hash, identity.bytes, sizeof(hash));
	return f->known ? hash : 0;
}

/*
 * Bind the four parameters that identify a file in quarantine. -ENOENT: the file has no path, or
 * neither a build-id nor a known inode.
 */
static int bind_quarantine(sqlite3_stmt *stmt, const struct uw_build_id *id,
			   const struct store_file *f)
{
	static const struct uw_build_id none;

	id = id ? id : &none;
	if (!f->path || (!f->known && !id->size))
		return -ENOENT;
	db_bind_bytes(stmt, 1, id->bytes, id->size);
	(void)sqlite3_bind_text(stmt, 2, f->path, -1, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 3, TABLE_BUILDER);
	(void)sqlite3_bind_int64(stmt, 4, hash_of_file(f, id));
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
static void say_quarantined(struct store *s, const char *path, const char *reason,
			    const char *since)
{
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
			say_quarantined(s, file->path, (const char *)sqlite3_column_text(stmt, 0),
					(const char *)sqlite3_column_text(stmt, 1));
		db_release(stmt);
	}
	s->counters.quarantined += err == 1;
	pthread_mutex_unlock(&s->lock);
	return err == 1;
}

/* ---- files that ended their readers -------------------------------------------------------- */

/*
 * The supervisor puts such files in quarantine without a build-id: nobody has read one. There are
 * few, and no sample of a recording may wait for the database, so they are kept in memory.
 */
struct refused_file {
	int64_t file;  /* as in the database */
	uint64_t size; /* of contents; 0: nobody has hashed them */
	struct identity contents;
	char *path, *reason, *since; /* owned */
};

static char *copy_column(sqlite3_stmt *stmt, int column)
{
	const char *text = (const char *)sqlite3_column_text(stmt, column);

	return strdup(text ? text : "");
}

static void add_refused(struct store *s, sqlite3_stmt *stmt)
{
	struct refused_file *r;

	if (array_grow(s->refused, s->n_refused, s->room_refused))
		return;
	r = &s->refused[s->n_refused];
	*r = (struct refused_file){ .path = copy_column(stmt, 0),
				    .file = sqlite3_column_int64(stmt, 1),
				    .reason = copy_column(stmt, 4),
				    .since = copy_column(stmt, 5) };
	if (sqlite3_column_bytes(stmt, 3) == IDENTITY_SIZE) {
		r->size = (uint64_t)sqlite3_column_int64(stmt, 2);
		memcpy(r->contents.bytes, sqlite3_column_blob(stmt, 3), IDENTITY_SIZE);
	}
	if (r->path && r->reason && r->since) {
		s->n_refused++;
	} else {
		free(r->path);
		free(r->reason);
		free(r->since);
	}
}

void quarantine_load(struct store *s)
{
	sqlite3_stmt *stmt;
	int err;

	if (s->refused_are_known || !s->db || session_gave_up(s))
		return;
	stmt = session_statement(s, REFUSED, &err);
	if (stmt) {
		(void)sqlite3_bind_int64(stmt, 1, TABLE_BUILDER);
		while (db_step(stmt) == 1)
			add_refused(s, stmt);
		db_release(stmt);
	}
	/* Last: other threads look at the list without the lock from now on. */
	s->refused_are_known = true;
}

void quarantine_unload(struct store *s)
{
	for (size_t i = 0; i < s->n_refused; i++) {
		free(s->refused[i].path);
		free(s->refused[i].reason);
		free(s->refused[i].since);
	}
	free(s->refused);
}

int quarantine_add_contents(struct store *s, const struct store_file *file, uint64_t size,
			    const struct identity *contents)
{
	sqlite3_stmt *stmt;
	int err;

	if (change_is_asked_for())
		return s->read_only ? -EROFS : change_contents(s, file, size, contents);
	err = session_begin(s);
	if (err)
		return err;
	stmt = session_statement(s, ADD_CONTENTS, &err);
	if (stmt) {
		err = bind_quarantine(stmt, NULL, file);
		(void)sqlite3_bind_int64(stmt, 5, (int64_t)size);
		(void)sqlite3_bind_blob(stmt, 6, contents->bytes, IDENTITY_SIZE, SQLITE_STATIC);
		if (!err)
			err = db_step(stmt);
		db_release(stmt);
	}
	return session_end(s, err);
}

/* Find the file itself, by its path and inode. */
static struct refused_file *find_itself(struct store *s, const struct store_file *file)
{
	int64_t hash = hash_of_file(file, &(struct uw_build_id){ .size = 0 });

	for (size_t i = 0; file->path && i < s->n_refused; i++)
		if (s->refused[i].file == hash && !strcmp(s->refused[i].path, file->path))
			return &s->refused[i];
	return NULL;
}

/* Find a file with the same bytes. Most files have another size. */
static struct refused_file *find_same_bytes(struct store *s, int fd, uint64_t size)
{
	struct identity own;
	bool asked = false;

	for (size_t i = 0; size && i < s->n_refused; i++) {
		if (s->refused[i].size != size)
			continue;
		if (!asked && identity_of_contents(fd, &own))
			return NULL;
		asked = true;
		if (!memcmp(s->refused[i].contents.bytes, own.bytes, IDENTITY_SIZE))
			return &s->refused[i];
	}
	return NULL;
}

/* Hash a file that was found, so that copies of it are known from now on. */
static void hash_contents(struct store *s, struct refused_file *r, int fd, uint64_t size,
			  const struct store_file *file)
{
	if (r->size || !size || identity_of_contents(fd, &r->contents))
		return;
	r->size = size;
	(void)quarantine_add_contents(s, file, size, &r->contents);
}

/* The lock is taken once in a run and for files that are refused: a store that is written holds it. */
static bool is_in_quarantine(struct store *s, int fd, uint64_t elf_off, const char *path)
{
	struct refused_file *itself, *same;
	struct store_file file;
	struct stat st;

	if (!s->refused_are_known) {
		pthread_mutex_lock(&s->lock);
		quarantine_load(s);
		pthread_mutex_unlock(&s->lock);
	}
	if (!s->n_refused || fstat(fd, &st))
		return false;
	store_file_of(fd, elf_off, path, &file);
	itself = find_itself(s, &file);
	same = itself ? itself : find_same_bytes(s, fd, (uint64_t)st.st_size);
	if (!same)
		return false;
	pthread_mutex_lock(&s->lock);
	if (itself)
		hash_contents(s, itself, fd, (uint64_t)st.st_size, &file);
	say_quarantined(s, path, same->reason, same->since);
	s->counters.quarantined++;
	pthread_mutex_unlock(&s->lock);
	return true;
}

bool store_refuses(struct store *s, int fd, uint64_t elf_off, const char *path)
{
	return (s && is_in_quarantine(s, fd, elf_off, path)) || reading_is_refused(fd);
}

/* ---- changes --------------------------------------------------------------------------------- */

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

/* agent/store/store.c: opens and closes the store. */
#include "agent/store/store.h"

#include "agent/log.h"
#include "agent/store/identity.h"
#include "agent/store/parts.h"
#include "agent/store/stored_blob.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

int store_open(const char *path, struct store **out)
{
	struct store *s = calloc(1, sizeof(*s));
	pthread_mutexattr_t kind;
	int err;

	*out = NULL;
	if (!s)
		return -ENOMEM;
	identity_init();
	reading_init(s);
	err = db_path(path, &s->path);
	/* Creating a database takes time, so that is left to the first write. */
	if (!err && (!access(s->path, F_OK) || errno != ENOENT))
		err = session_open(s);
	if (err) {
		reading_fini(s);
		free(s->path);
		free(s);
		return err;
	}
	/* The lock is recursive: a look-up holds it while the blob callbacks take it again. */
	pthread_mutexattr_init(&kind);
	pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&s->lock, &kind);
	pthread_mutexattr_destroy(&kind);
	*out = s;
	return 0;
}

/* The first read opens the write-ahead log and its index, too (https://sqlite.org/wal.html). */
void store_open_files(struct store *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	if (s->db || (!session_gave_up(s) && !session_open(s)))
		(void)db_number(s->db, "SELECT count(*) FROM settings");
	if (s->db && s->reads_beside)
		reading_open_files(s);
	quarantine_load(s);
	pthread_mutex_unlock(&s->lock);
}

/*
 * Copy the write-ahead log into the database and truncate it. Otherwise the next process to open
 * the store would read the log and check its sums first, which takes 0.03 ms for each run that
 * noted what it used. With a timeout of 0 this waits for nobody; if another process reads now, a
 * later writer does it.
 */
static void empty_log(sqlite3 *db)
{
	(void)sqlite3_busy_timeout(db, 0);
	(void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}

void store_release(struct store *s)
{
	quarantine_forget(s);
	quarantine_unload(s);
	wanted_fini(&s->queue);
	reading_fini(s);
	for (int i = 0; i < STATEMENTS; i++)
		(void)sqlite3_finalize(s->statements[i]);
	if (s->wrote && s->db && !s->read_only)
		empty_log(s->db);
	(void)sqlite3_close(s->db);
	pthread_mutex_destroy(&s->lock);
	free(s->used);
	free(s->path);
	free(s);
}

void store_close(struct store *s)
{
	const struct store_counters *c;

	if (!s)
		return;
	c = &s->counters;
	(void)session_write_used(s);
	log_debug("%s: %" PRIu64 " tables found, %" PRIu64 " not there; %" PRIu64
		  " compiled, %" PRIu64 " stored, %" PRIu64 " damaged, %" PRIu64
		  " evicted, %" PRIu64 " failures; call-frame information parsed %" PRIu64
		  " times; symbols of %" PRIu64 " files found, %" PRIu64
		  " stored; lines of %" PRIu64 " files found, %" PRIu64 " stored",
		  s->path, c->found, c->missing, c->built, c->stored, c->damaged, c->evicted,
		  c->failed, c->parsed, c->symbols_found, c->symbols_stored, c->lines_found,
		  c->lines_stored);
	if (c->failed > 1)
		log_warning("%s: %" PRIu64 " operations failed", s->path, c->failed);
	store_release(s);
}

void store_counters(struct store *s, struct store_counters *out)
{
	*out = (struct store_counters){ 0 };
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	*out = s->counters;
	pthread_mutex_unlock(&s->lock);
}

const char *store_path(const struct store *s)
{
	return s->path;
}

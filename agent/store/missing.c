/* agent/store/missing.c: remembers for a day which build-ids no debuginfod server has. */
#include "agent/store/change.h"
#include "agent/store/parts.h"

#include <errno.h>
#include <time.h>

#define MISSING_SECONDS (24 * 3600)

/* Run a statement with a build-id and a time as parameters. Return 1 if it gave a row. */
static int ask_missing(struct store *s, enum statement which, const struct uw_build_id *id,
		       int64_t time)
{
	sqlite3_stmt *stmt;
	int err;

	stmt = session_statement(s, which, &err);
	if (!stmt)
		return err;
	(void)sqlite3_bind_blob(stmt, 1, id->bytes, id->size, SQLITE_STATIC);
	(void)sqlite3_bind_int64(stmt, 2, time);
	err = db_step(stmt);
	db_release(stmt);
	return err;
}

bool store_is_missing(struct store *s, const struct uw_build_id *id)
{
	int err = 0;

	if (!s || !id->size)
		return false;
	pthread_mutex_lock(&s->lock);
	if (s->db && !session_gave_up(s))
		err = ask_missing(s, FIND_MISSING, id, time(NULL) - MISSING_SECONDS);
	pthread_mutex_unlock(&s->lock);
	return err == 1;
}

int missing_insert(struct store *s, const struct uw_build_id *id)
{
	int64_t before = time(NULL) - MISSING_SECONDS;
	int err;

	if (change_is_asked_for())
		return change_missing(s, id);
	err = session_begin(s);
	if (err)
		return err;
	err = ask_missing(s, ADD_MISSING, id, time(NULL));
	if (err >= 0)
		err = session_run(s, DROP_MISSING, &before, 1);
	return session_end(s, err);
}

void store_missing(struct store *s, const struct uw_build_id *id)
{
	int err;

	if (!s || !id->size)
		return;
	pthread_mutex_lock(&s->lock);
	err = s->read_only || session_gave_up(s) ? -EROFS : missing_insert(s, id);
	if (err && err != -EROFS)
		(void)session_failed(s, "write", err);
	pthread_mutex_unlock(&s->lock);
}

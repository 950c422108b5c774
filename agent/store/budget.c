/* agent/store/budget.c: keeps the database within its budget, and deletes what is old. */
#include "agent/store/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/*
 * Symbols and objects are deleted in one order of last use: OLDEST_SYMBOLS gives no row while an
 * object was used less recently.
 */
int budget_evict(struct store *s, uint64_t budget, int64_t spare)
{
	int64_t bytes, id;
	int err = session_ask(s, USED_BYTES, &bytes);

	if (err || (uint64_t)bytes <= budget)
		return err;
	/* Delete a tenth more, so that not every insertion has to evict. */
	budget -= budget / 10;
	while (!err && (uint64_t)bytes > budget) {
		err = session_ask(s, OLDEST_SYMBOLS, &id);
		if (!err) {
			err = session_run(s, DROP_SYMBOLS, &id, 1);
		} else if (err == -ENOENT) {
			err = session_ask(s, OLDEST, &id);
			if (err || id == spare)
				break;
			err = session_run(s, DROP_OBJECT, &id, 1);
		}
		s->counters.evicted += !err;
		if (!err)
			err = session_ask(s, USED_BYTES, &bytes);
	}
	return err == -ENOENT ? 0 : err;
}

/* The vacuum gives the free pages back to the file, and the checkpoint makes the file shorter. */
int store_shrink(struct store *s, uint64_t budget)
{
	int err;

	pthread_mutex_lock(&s->lock);
	err = session_begin(s);
	if (!err)
		err = session_end(s, budget_evict(s, budget ? budget : s->budget, -1));
	if (!err)
		err = db_exec(s->db, "PRAGMA incremental_vacuum");
	if (!err)
		err = db_exec(s->db, "PRAGMA wal_checkpoint(TRUNCATE)");
	if (err)
		(void)session_failed(s, "shrink", err);
	pthread_mutex_unlock(&s->lock);
	return err;
}

int store_set_budget(struct store *s, uint64_t budget)
{
	char text[128];
	int err;

	(void)snprintf(text, sizeof(text),
		       budget ? "INSERT OR REPLACE INTO settings VALUES ('budget', %" PRIu64 ")"
			      : "DELETE FROM settings WHERE name = 'budget'",
		       budget);
	pthread_mutex_lock(&s->lock);
	err = session_begin(s);
	if (!err)
		err = session_end(s, db_exec(s->db, text));
	if (!err)
		s->budget = budget ? budget : STORE_BUDGET_DEFAULT;
	pthread_mutex_unlock(&s->lock);
	return err;
}

int store_forget(struct store *s, int64_t before, uint64_t *n)
{
	int err;

	pthread_mutex_lock(&s->lock);
	err = session_begin(s);
	if (!err)
		err = session_run(s, FORGET, &before, 1);
	*n = err ? 0 : (uint64_t)sqlite3_changes(s->db);
	if (!err)
		err = session_run(s, FORGET_SYMBOLS, &before, 1);
	if (s->db)
		err = session_end(s, err);
	pthread_mutex_unlock(&s->lock);
	return err;
}

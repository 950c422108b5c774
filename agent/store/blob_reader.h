/*
 * agent/store/blob_reader.h: reads blobs of a database piece by piece, as a table or symbols need
 * them (struct uw_blob_source).
 *
 * The store calls SQLite directly; the files of the extension call it through pointers (stored.h).
 * So the functions are in this header. They are compiled with the pointers in a file that includes
 * <sqlite3ext.h> before this header. The store includes the header in session.h, the extension in
 * stored.c.
 */
#ifndef AGENT_STORE_BLOB_READER_H
#define AGENT_STORE_BLOB_READER_H

#include "agent/store/db.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

/* Where a blob is: a column of a row. The texts live as long as the program. */
struct blob_place {
	const char *table, *column;
	int64_t row;
};

/*
 * A connection, and all blobs that are read through it. An open blob handle pins the snapshot of
 * the database that it was opened in, so call blob_reader_rest() before the connection writes.
 */
struct blob_reader {
	sqlite3 *db;	       /* NULL: nothing can be read (-EIO) */
	pthread_mutex_t *lock; /* of db and of this struct; NULL: one thread uses them */
	bool close_early; /* close each handle after each read, not only in blob_reader_rest() */
	/* Called for a blob that turned out to be damaged, without the lock. NULL: nothing. */
	void (*damaged)(void *ctx, const struct blob_place *place);
	void *ctx;
	struct blob_reading *first;
};

/* A blob that is read as it is needed. */
struct blob_reading {
	struct blob_reader *reader; /* NULL: the reader was closed */
	struct blob_place place;
	sqlite3_blob *open; /* NULL: no handle is open now */
	int size;	    /* in bytes; -1: not known yet */
	struct blob_reading *next, **link;
};

static inline void blob_lock(const struct blob_reader *reader)
{
	if (reader->lock)
		pthread_mutex_lock(reader->lock);
}

static inline void blob_unlock(const struct blob_reader *reader)
{
	if (reader->lock)
		pthread_mutex_unlock(reader->lock);
}

/* Close the blob's handle, if it is open. */
static inline void blob_close(struct blob_reading *r)
{
	(void)sqlite3_blob_close(r->open);
	r->open = NULL;
}

/*
 * Open the blob's handle if it is not open. An incremental read copies straight from the database's
 * pages; a column's value would be one more copy. -EBADMSG: the row has no such blob, or its size
 * has changed.
 */
static inline int blob_open(struct blob_reading *r)
{
	int rc, size;

	if (!r->reader->db)
		return -EIO;
	if (r->open)
		return 0;
	rc = sqlite3_blob_open(r->reader->db, "main", r->place.table, r->place.column, r->place.row,
			       0, &r->open);
	if (rc != SQLITE_OK) {
		blob_close(r);
		return db_errno(rc);
	}
	size = sqlite3_blob_bytes(r->open);
	if (r->size < 0)
		r->size = size;
	if (size == r->size)
		return 0;
	blob_close(r); /* another blob has replaced this one */
	return -EBADMSG;
}

/* Read a part of the blob (uw_blob_source.read). */
static inline int blob_read(void *ctx, uint64_t off, void *out, size_t size)
{
	struct blob_reading *r = ctx;
	int err;

	if (!r->reader)
		return -EIO;
	blob_lock(r->reader);
	err = blob_open(r);
	if (!err)
		err = db_errno(sqlite3_blob_read(r->open, out, (int)size, (int)off));
	if (r->reader->close_early)
		blob_close(r);
	blob_unlock(r->reader);
	return err;
}

/* Pass on that the blob is damaged (uw_blob_source.damaged). */
static inline void blob_damaged(void *ctx)
{
	const struct blob_reading *r = ctx;

	if (r->reader && r->reader->damaged)
		r->reader->damaged(r->reader->ctx, &r->place);
}

/* End a reading (uw_blob_source.release). Its reader may be closed already. */
static inline void blob_end(void *ctx)
{
	struct blob_reading *r = ctx;
	const struct blob_reader *reader = r->reader;

	if (reader) {
		blob_lock(reader);
		blob_close(r);
		*r->link = r->next;
		if (r->next)
			r->next->link = r->link;
		blob_unlock(reader);
	}
	free(r);
}

/*
 * Begin to read a blob; the owner of *out releases it. Return -ENOMEM or what opening the blob
 * failed with.
 */
static inline int blob_begin(struct blob_reader *reader, const struct blob_place *place,
			     struct uw_blob_source *out)
{
	struct blob_reading *r = malloc(sizeof(*r));
	int err;

	if (!r)
		return -ENOMEM;
	*r = (struct blob_reading){ .reader = reader, .place = *place, .size = -1 };
	blob_lock(reader);
	err = blob_open(r);
	if (!err) {
		r->next = reader->first;
		r->link = &reader->first;
		if (r->next)
			r->next->link = &r->next;
		reader->first = r;
	}
	if (reader->close_early)
		blob_close(r);
	blob_unlock(reader);
	if (err) {
		free(r);
		return err;
	}
	*out = (struct uw_blob_source){ .size = (uint64_t)r->size,
					.read = blob_read,
					.damaged = blob_damaged,
					.release = blob_end,
					.ctx = r };
	return 0;
}

/* Close all handles; the next reads open them again. The caller holds the reader's lock. */
static inline void blob_reader_rest(struct blob_reader *reader)
{
	for (struct blob_reading *r = reader->first; r; r = r->next)
		blob_close(r);
}

/*
 * Close all handles for good: what is read later fails with -EIO. No other thread may read any
 * more.
 */
static inline void blob_reader_close(struct blob_reader *reader)
{
	blob_reader_rest(reader);
	for (struct blob_reading *r = reader->first; r; r = r->next)
		r->reader = NULL;
}

#endif

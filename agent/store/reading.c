/*
 * agent/store/reading.c: reads blobs of the database: as a whole, or piece by piece as an object
 * or a symbol table needs them.
 */
#include "agent/store/reading.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOB_ALIGN   64
#define POPULATE_MIN 65536

/*
 * Fault in the pages of a buffer that is about to be filled as a whole, with one system call
 * instead of a page fault each. Kernels before 5.14 do not know MADV_POPULATE_WRITE; there nothing
 * happens.
 */
static void populate(void *memory, size_t size)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = ((uintptr_t)memory + page - 1) & ~(page - 1);
	uintptr_t end = ((uintptr_t)memory + size) & ~(page - 1);

	if (start < end && end - start >= POPULATE_MIN)
		(void)madvise((void *)start, end - start, MADV_POPULATE_WRITE);
}

static void close_blob(struct reading *r)
{
	(void)sqlite3_blob_close(r->open);
	r->open = NULL;
}

/*
 * Open the blob handle if it is not open. An incremental read copies straight from the database's
 * pages; a column's value would be one more copy. -EBADMSG: the size has changed.
 */
static int open_blob(sqlite3 *db, struct reading *r)
{
	int rc, size;

	if (r->open)
		return 0;
	rc = sqlite3_blob_open(db, "main", r->table, r->column, r->row, 0, &r->open);
	if (rc != SQLITE_OK) {
		close_blob(r);
		return db_errno(rc);
	}
	size = sqlite3_blob_bytes(r->open);
	if (r->size < 0)
		r->size = size;
	/* If the size differs, another blob has replaced this one. */
	return size == r->size ? 0 : -EBADMSG;
}

/* Return the lock that protects the reading's connection. */
static pthread_mutex_t *lock_of(struct reading *r)
{
	return r->beside ? &r->store->beside.lock : &r->store->lock;
}

/* Read a part of a blob (uw_kept.read). On the separate connection the handle is closed again. */
static int read_part(void *ctx, uint64_t off, void *out, size_t size)
{
	struct reading *r = ctx;
	struct store *s = r->store;
	sqlite3 *db;
	int err;

	if (!s)
		return -EIO;
	pthread_mutex_lock(lock_of(r));
	db = r->beside ? s->beside.db : session_gave_up(s) ? NULL : s->db;
	err = db ? open_blob(db, r) : -EIO;
	if (!err)
		err = db_errno(sqlite3_blob_read(r->open, out, (int)size, (int)off));
	if (r->beside)
		close_blob(r);
	pthread_mutex_unlock(lock_of(r));
	return err;
}

/* Count a damaged blob and remember its row for deletion (uw_kept.damaged). */
static void is_damaged(void *ctx)
{
	struct reading *r = ctx;
	struct store *s = r->store;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->counters.damaged++;
	session_remember(s, r->drop, r->row, NULL);
	pthread_mutex_unlock(&s->lock);
}

/* Unlink and free a reading (uw_kept.release). The store may be closed already. */
static void end_reading(void *ctx)
{
	struct reading *r = ctx;
	struct store *s = r->store;

	if (s) {
		pthread_mutex_lock(lock_of(r));
		close_blob(r);
		*r->link = r->next;
		if (r->next)
			r->next->link = r->link;
		pthread_mutex_unlock(lock_of(r));
	}
	free(r);
}

/* Open the separate read-only connection, once, without mapping the database. */
static int begin_beside(struct store *s)
{
	char error[DB_ERROR_SIZE];
	int err;

	if (s->beside.db)
		return 0;
	err = db_open(s->path, DB_READ, &s->beside.db, error);
	return err ? err : db_unmap(s->beside.db);
}

int reading_begin(struct store *s, const struct reading *what, struct uw_kept *out)
{
	struct reading *r = malloc(sizeof(*r)), **list = &s->readings;
	int err = 0;

	if (!r)
		return -ENOMEM;
	*r = *what;
	r->store = s;
	r->beside = s->beside.wanted;
	r->size = -1;
	if (r->beside) {
		pthread_mutex_lock(&s->beside.lock);
		list = &s->beside.readings;
		err = begin_beside(s);
	}
	if (!err)
		err = open_blob(r->beside ? s->beside.db : s->db, r);
	if (!err) {
		r->next = *list;
		r->link = list;
		if (r->next)
			r->next->link = &r->next;
		*list = r;
	}
	if (r->beside) {
		close_blob(r);
		pthread_mutex_unlock(&s->beside.lock);
	}
	if (err) {
		free(r);
		return err;
	}
	*out = (struct uw_kept){ .size = (uint64_t)r->size,
				 .read = read_part,
				 .damaged = is_damaged,
				 .release = end_reading,
				 .ctx = r };
	return 0;
}

int reading_whole(struct store *s, const struct reading *what, void **out, size_t *size)
{
	struct reading r = *what;
	void *copy = NULL;
	int err;

	r.size = -1;
	err = open_blob(s->db, &r);
	if (!err) {
		*size = (size_t)r.size;
		copy = aligned_alloc(BLOB_ALIGN, (*size + BLOB_ALIGN) & ~(size_t)(BLOB_ALIGN - 1));
		err = copy ? 0 : -ENOMEM;
	}
	if (!err) {
		populate(copy, *size);
		err = db_errno(sqlite3_blob_read(r.open, copy, r.size, 0));
	}
	(void)sqlite3_blob_close(r.open);
	if (err)
		free(copy);
	else
		*out = copy;
	return err;
}

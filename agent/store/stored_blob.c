/*
 * agent/store/stored_blob.c: reads the store's blobs: as a whole, or piece by piece, on the store's
 * connection or on a separate one.
 */
#include "agent/store/stored_blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

/* Count a damaged blob and remember its row for deletion (blob_reader.damaged). */
static void is_damaged(void *ctx, const struct blob_place *place)
{
	struct store *s = ctx;

	pthread_mutex_lock(&s->lock);
	s->counters.damaged++;
	session_remember(s, strcmp(place->table, "tables") ? DROP_SYMBOLS : DROP_TABLE, place->row,
			 NULL);
	pthread_mutex_unlock(&s->lock);
}

void reading_init(struct store *s)
{
	pthread_mutex_init(&s->beside_lock, NULL);
	s->blobs = (struct blob_reader){ .lock = &s->lock, .damaged = is_damaged, .ctx = s };
	s->beside = (struct blob_reader){
		.lock = &s->beside_lock, .close_early = true, .damaged = is_damaged, .ctx = s
	};
}

void reading_fini(struct store *s)
{
	blob_reader_close(&s->blobs);
	blob_reader_close(&s->beside);
	(void)sqlite3_close(s->beside.db);
	pthread_mutex_destroy(&s->beside_lock);
}

void store_read_beside(struct store *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->reads_beside = true;
	if (s->db)
		(void)db_unmap(s->db);
	pthread_mutex_unlock(&s->lock);
}

/* Open the separate read-only connection, once, without mapping the database. */
static int begin_beside(struct store *s)
{
	char error[DB_ERROR_SIZE];
	int err;

	if (s->beside.db)
		return 0;
	err = db_open(s->path, &db_store, DB_READ, &s->beside.db, error);
	return err ? err : db_unmap(s->beside.db);
}

void reading_open_files(struct store *s)
{
	if (!begin_beside(s))
		(void)db_number(s->beside.db, "SELECT count(*) FROM settings");
}

int reading_begin(struct store *s, const struct blob_place *place, struct uw_blob_source *out)
{
	int err = s->reads_beside ? begin_beside(s) : 0;

	return err ? err : blob_begin(s->reads_beside ? &s->beside : &s->blobs, place, out);
}

int reading_whole(struct store *s, const struct blob_place *place, void **out, size_t *size)
{
	struct blob_reading r = { .reader = &s->blobs, .place = *place, .size = -1 };
	void *copy = NULL;
	int err = blob_open(&r);

	if (!err) {
		*size = (size_t)r.size;
		copy = aligned_alloc(BLOB_ALIGN, (*size + BLOB_ALIGN) & ~(size_t)(BLOB_ALIGN - 1));
		err = copy ? 0 : -ENOMEM;
	}
	if (!err) {
		populate(copy, *size);
		err = db_errno(sqlite3_blob_read(r.open, copy, r.size, 0));
	}
	blob_close(&r);
	if (err)
		free(copy);
	else
		*out = copy;
	return err;
}

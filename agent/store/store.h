/*
 * agent/store/store.h: the cache of unwind tables, symbols and lines, an SQLite database that all
 * processes share. A table that was compiled once on a machine is not compiled again.
 *
 *   store_find     copy an object's table out of the store, check it and use it in place;
 *                  with _parts or _at_once: read and check its blocks as they are needed
 *   store_keep     compile the table if it is missing, and insert it
 *   store_want     remember an object, so that store_work inserts its table when there is time
 *
 * The store is a cache: no error in it is fatal. If the database is damaged, full, locked or
 * foreign, the first error is logged, every error is counted, and tables stay in memory.
 *
 * Any thread may call; a mutex serializes the calls.
 */
#ifndef AGENT_STORE_STORE_H
#define AGENT_STORE_STORE_H

#include "unwinder/unwinder.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct store;

#define STORE_NOBODY (-1)

/*
 * The inode's data as fstat(2) gives it. As long as all fields are equal, the contents are taken to
 * be equal.
 */
struct store_file {
	bool known;   /* false: no regular file, or changed less than 2 s ago (identity.c) */
	bool vouched; /* known, and the file system's inode data can be trusted: see identity.c */
	uint64_t dev, ino, elf_off, size, uid;
	int64_t mtime_ns, ctime_ns;
	int64_t owner;	  /* the only user who can write the file, or STORE_NOBODY */
	const char *path; /* where the file was seen; borrowed */
};

/*
 * Fill *out for an open file. If fd is -1 or not a regular file, out->known is false. path is
 * borrowed.
 */
void store_file_of(int fd, uint64_t elf_off, const char *path, struct store_file *out);

/*
 * Open the store at path, which db_path() interprets. Return -ENOENT if no store is wanted or there
 * is no place for one. Errors of the database are logged here. A database that does not exist yet
 * is created by the first write.
 *
 * *out is NULL after any failure. All functions down to store_counters() accept NULL: for them it
 * is a store that contains nothing and stores nothing.
 */
int store_open(const char *path, struct store **out);
/*
 * Open the database now, and create it if it does not exist: later this process can open no file
 * any more. Call store_read_beside before, if at all.
 */
void store_open_files(struct store *store);
/* Write what is pending, log the counters (--verbose), close the database and free the store. */
void store_close(struct store *store);

/*
 * Give object its stored table, and the stored ranges of its procedures if there are any. The blobs
 * are copied and checked at once. -ENOENT: the store has none.
 */
int store_find(struct store *store, struct uw_object *object, const struct store_file *file);
/*
 * Do the same as store_find(), but read and check each block when a walk first needs it. This is
 * for a caller who walks at once, and whose walks may wait for the database. After store_close()
 * nothing more can be read, and walks use the file's own unwind information.
 */
int store_find_parts(struct store *store, struct uw_object *object, const struct store_file *file);
/*
 * Do the same as store_find_parts() before a sample's first frame is walked: if the store does not
 * know the inode of a large file, the file is not hashed here (-ENOENT). store_work() finds the
 * table by the file's contents later.
 */
int store_find_at_once(struct store *store, struct uw_object *object,
		       const struct store_file *file);
/*
 * Make an object of the table that is stored for a build-id, for a file that no longer exists.
 * There is no file to check the table against, so the table must come from a file that only root or
 * the user of this process could write. -ENOENT: there is no table. -EPERM: all tables come from
 * other users' files.
 */
int store_find_gone(struct store *store, const struct uw_build_id *build_id,
		    struct uw_object **out);
/*
 * From now on, use a separate connection for lazy blob reads, so that a walk never waits for a
 * writer, least of all for one in this process; and read the database instead of mapping it. This
 * is for long-lived processes that insert tables while other threads walk.
 */
void store_read_beside(struct store *store);

/*
 * Make sure that the store has what object needs; compile the table if it is missing. A negative
 * code: the store does not have it. -EPERM: the object is in quarantine. -EROFS: the store cannot
 * be written; the table was compiled, but in memory only.
 */
int store_keep(struct store *store, struct uw_object *object, const struct store_file *file);
/*
 * Do the same, but stop compiling once *stop is true: -ECANCELED, and the next run compiles the
 * table. stop may be NULL.
 */
int store_keep_unless(struct store *store, struct uw_object *object, const struct store_file *file,
		      const atomic_bool *stop);

/*
 * Put a file in quarantine: a file that cannot be read, or that ended a worker that read it, is not
 * tried again until the file changes or another version of the table builder comes. store_keep()
 * both fills and obeys the quarantine. id may be NULL: not known. A negative code: nothing was
 * inserted.
 */
int store_quarantine(struct store *store, const struct uw_build_id *id,
		     const struct store_file *file, const char *reason);
bool store_is_quarantined(struct store *store, const struct uw_build_id *id,
			  const struct store_file *file);
/*
 * Return whether reading this file has ended a worker, in this run or, by the quarantine, in one
 * before. Such a file is not read. store may be NULL.
 */
bool store_refuses(struct store *store, int fd, uint64_t elf_off, const char *path);

/*
 * Remember object, so that store_work() inserts its table. The file's data are copied. A reference
 * to the object is held until store_work() or store_close().
 */
void store_want(struct store *store, struct uw_object *object, const struct store_file *file);
/*
 * Insert the tables of the remembered objects, those with the most look-ups in the file first, and
 * then the remembered symbols and lines. No new one is begun after limit_ns nanoseconds.
 */
void store_work(struct store *store, uint64_t limit_ns);
/* Return whether it would do anything. NULL: no. */
bool store_has_work(struct store *store);

/* Add to store_counters.parsed how often the object's call-frame information was read. */
void store_parsed(struct store *store, const struct uw_object *object);

/*
 * Look up and remember symbols. They belong to one inode and are never used for another one:
 * -ENOENT if the file is not vouched for.
 *
 * beside: the debug file that some of the symbols come from; NULL: none.
 *
 * file NULL: the file no longer exists; then as in store_find_gone(). store_want_symbols() takes
 * ownership of table; store_work() inserts it.
 */
struct sym_table;
int store_find_symbols(struct store *store, const struct store_file *file,
		       const struct store_file *beside, const struct uw_build_id *build_id,
		       struct sym_table **out);
void store_want_symbols(struct store *store, const struct store_file *file,
			const struct store_file *beside, const struct uw_build_id *build_id,
			struct sym_table *table);

/* The same for source lines, which belong to the file that contains the DWARF. */
struct sym_lines;
int store_find_lines(struct store *store, const struct store_file *file,
		     const struct uw_build_id *build_id, struct sym_lines **out);
void store_want_lines(struct store *store, const struct store_file *file,
		      const struct uw_build_id *build_id, struct sym_lines *lines);

/*
 * Return whether all debuginfod servers said within the last 24 h that they do not have this
 * build-id.
 */
bool store_is_missing(struct store *store, const struct uw_build_id *build_id);
/* Record that no debuginfod server has this build-id. */
void store_missing(struct store *store, const struct uw_build_id *build_id);

struct store_counters {
	uint64_t found;	  /* objects whose table was in the store */
	uint64_t missing; /* objects whose table was not */
	uint64_t built;	  /* tables compiled in this run */
	uint64_t stored;  /* tables inserted */
	uint64_t symbols_found, symbols_stored, lines_found, lines_stored;
	uint64_t damaged;     /* damaged blobs, which were dropped */
	uint64_t evicted;     /* objects and symbol tables deleted to stay within the budget */
	uint64_t failed;      /* writes and reads that failed */
	uint64_t quarantined; /* objects not compiled because they are in quarantine */
	uint64_t parsed;      /* times that call-frame information was read; see uw_object_parsed */
};
void store_counters(struct store *store, struct store_counters *out);

/*
 * Insert what another store exported: a table and, or NULL, the procedures' ranges. -EBADMSG:
 * damaged. -ENOTSUP: of another version. -EROFS and other codes: the store cannot be written.
 * *stored: the table was not there before. From here on no function accepts NULL for the store.
 */
struct store_blobs {
	const void *rules, *procs;
	size_t rules_size, procs_size;
	const char *path;	 /* where the table came from; only for display */
	const uint8_t *identity; /* SHA-256 of the inputs, as the exporting store had it */
};
int store_import(struct store *store, const struct store_blobs *blobs, bool *stored);

/* Return the path of the database; borrowed. */
const char *store_path(const struct store *store);
/* Store the budget in bytes, for all processes from now on; 0: the default. */
int store_set_budget(struct store *store, uint64_t budget);
/*
 * Delete what was last used before the given time, in seconds since 1970; *n is the number of
 * objects.
 */
int store_forget(struct store *store, int64_t before, uint64_t *n);

/*
 * Delete the least recently used objects until the store is within budget, in bytes (0: its own
 * budget), and return the free pages to the file system.
 */
int store_shrink(struct store *store, uint64_t budget);

#define STORE_BUDGET_DEFAULT ((uint64_t)1 << 30)

#endif

/*
 * agent/store/store.h: unwind tables by contents, kept over runs and shared by
 * processes; a table compiled once on a machine is not compiled again.
 *
 *   store_find     an object's table out of the store: copied once, checked, used in place;
 *                  or (_parts) read and checked block by block, as it is needed
 *   store_keep     compiles what is missing and puts it in
 *   store_want     remembers an object, for store_work to keep when there is time
 *
 * A store is a cache.  Whatever is wrong with it (damaged, full, locked, not
 * ours) is said once and counted, and everything goes on from memory.  Any
 * thread may call; calls take turns.
 */
#ifndef AGENT_STORE_STORE_H
#define AGENT_STORE_STORE_H

#include "unwinder/unwinder.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct store;

#define STORE_NOBODY (-1)

/* A file as the system knows it: while all of this is equal, so are the contents. */
struct store_file {
	bool known;   /* false: it is no file, or too new to be told from its next version */
	bool vouched; /* known, and its file system is to be believed: see identity.c */
	uint64_t dev, ino, elf_off, size, uid;
	int64_t mtime_ns, ctime_ns;
	int64_t owner;	  /* the one user who could write it, or STORE_NOBODY */
	const char *path; /* where it was seen; borrowed */
};

/* Of an open file; fd -1: no file. */
void store_file_of(int fd, uint64_t elf_off, const char *path, struct store_file *out);

/*
 * path as for db_path.  -ENOENT: none is wanted, or there is no place for one.
 * Otherwise reports what is wrong itself; *out is NULL after any failure, which
 * every other function here takes for a store that has and keeps nothing.
 */
int store_open(const char *path, struct store **out);
/* Also tells what became of it, to those who asked for more (--verbose). */
void store_close(struct store *store);

/* Gives object its table (and ranges) out of the store.  -ENOENT: not there. */
int store_find(struct store *store, struct uw_object *object, const struct store_file *file);
/*
 * The same, but what is in them is read when walks come there: for one who walks at once, and whose
 * walks may wait for the store.  After store_close the file has to do.
 */
int store_find_parts(struct store *store, struct uw_object *object, const struct store_file *file);
/*
 * The same on the way to a sample's first frame: a large file whose inode the store does not know is
 * not hashed there (-ENOENT).  store_work finds it by its contents later.
 */
int store_find_at_once(struct store *store, struct uw_object *object,
		       const struct store_file *file);
/*
 * Make an object of the table that is stored for a build-id, for a file that is gone.  Nothing is at
 * hand to check it against, so the table must come from a file that only root or this process's own
 * user could write.  -ENOENT there is none; -EPERM there are only others'.
 */
int store_find_gone(struct store *store, const struct uw_build_id *build_id,
		    struct uw_object **out);
/*
 * From now on what is read later has a connection of its own, so that a walk waits for no writer, of
 * this process least of all, and the database is not mapped.  For one who lives long and keeps tables
 * while others walk.
 */
void store_read_beside(struct store *store);

/*
 * Makes sure that the store has what object needs, compiling it if nobody did.  Negative: it has
 * not; -EPERM it is in quarantine.
 */
int store_keep(struct store *store, struct uw_object *object, const struct store_file *file);
/* Do the same, but give up compiling once *stop is true: -ECANCELED, and the next run compiles it. */
int store_keep_unless(struct store *store, struct uw_object *object, const struct store_file *file,
		      const atomic_bool *stop);

/*
 * What cannot be read, or ended a worker that read it, is not tried again until it is another file
 * or another builder comes; store_keep sees to both.  id NULL: not known.  A negative code: not put in.
 */
int store_quarantine(struct store *store, const struct uw_build_id *id,
		     const struct store_file *file, const char *reason);
bool store_is_quarantined(struct store *store, const struct uw_build_id *id,
			  const struct store_file *file);

/* Copies what it needs, and holds the object until store_work or store_close. */
void store_want(struct store *store, struct uw_object *object, const struct store_file *file);
/* Keeps what is wanted, first what was asked most often, no new one after limit_ns. */
void store_work(struct store *store, uint64_t limit_ns);

/* Adds up how often call-frame information had to be read, for the counters below. */
void store_parsed(struct store *store, const struct uw_object *object);

/*
 * The same for symbols.  They belong to one inode and are never another's: -ENOENT for what is no
 * file, or none that is vouched for.  beside: the debug file that has a part in them; NULL: none.
 * file NULL: of a file that is gone, as store_find_gone.  Wanting takes the table over.
 */
struct sym_table;
int store_find_symbols(struct store *store, const struct store_file *file,
		       const struct store_file *beside, const struct uw_build_id *build_id,
		       struct sym_table **out);
void store_want_symbols(struct store *store, const struct store_file *file,
			const struct store_file *beside, const struct uw_build_id *build_id,
			struct sym_table *table);

/* And for lines, which are of the file that has the DWARF. */
struct sym_lines;
int store_find_lines(struct store *store, const struct store_file *file,
		     const struct uw_build_id *build_id, struct sym_lines **out);
void store_want_lines(struct store *store, const struct store_file *file,
		      const struct uw_build_id *build_id, struct sym_lines *lines);

/* What debuginfod servers do not have, as they said within the last day. */
bool store_is_missing(struct store *store, const struct uw_build_id *build_id);
void store_missing(struct store *store, const struct uw_build_id *build_id);

struct store_counters {
	uint64_t found;	  /* objects whose table was there */
	uint64_t missing; /* … was not */
	uint64_t built;	  /* tables compiled in this run */
	uint64_t kept;	  /* … and put in */
	uint64_t symbols_found, symbols_kept, lines_found, lines_kept;
	uint64_t damaged;     /* blobs that were dropped */
	uint64_t evicted;     /* objects, to stay within the budget */
	uint64_t failed;      /* writes and reads that did not work */
	uint64_t quarantined; /* objects that were left alone for it */
	uint64_t parsed;      /* call-frame information read; see uw_object_parsed */
};
void store_counters(struct store *store, struct store_counters *out);

/*
 * Puts in what another store gave out: a table and, or NULL, ranges.  -EBADMSG damaged, -ENOTSUP
 * of another version, -EROFS, …; *kept: it was not there before.
 */
struct store_blobs {
	const void *rules, *procs;
	size_t rules_size, procs_size;
	const char *path;	 /* to show; where it came from */
	const uint8_t *identity; /* SHA-256, as the store that exported them had it */
};
int store_import(struct store *store, const struct store_blobs *blobs, bool *kept);

/* Where it is; borrowed. */
const char *store_path(const struct store *store);
/* The budget that holds from now on for everybody; 0: the default. */
int store_set_budget(struct store *store, uint64_t budget);
/* Deletes what nobody used since then (seconds since 1970); gives how many. */
int store_forget(struct store *store, int64_t before, uint64_t *n);

/* Deletes least recently used objects until the store is within budget (0: its own); gives space back. */
int store_shrink(struct store *store, uint64_t budget);

#define STORE_BUDGET_DEFAULT ((uint64_t)1 << 30)

#endif

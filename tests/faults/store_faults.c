/*
 * tests/faults/store_faults.c: a store that everything goes wrong with.
 *
 *   hammer DB FILE…           keeps and finds FILEs for ever; prints each one that was acknowledged
 *   check DB FILE…            the database is sound, and has the FILEs' own tables
 *   flip DB N FILE…           flips bits of copies of DB: no wrong table, no crash
 *   memory DB FILE            each allocation fails once in turn: no crash, nothing leaks
 *   io DB FILE                each call of SQLite's to the system, likewise
 */
#include "agent/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/log.h"
#include "agent/store/db.h"

static struct uw_object *open_file(const char *path, struct store_file *file)
{
	struct uw_object *object = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	if (uw_object_open(fd, 0, &object))
		object = NULL;
	store_file_of(fd, 0, path, file);
	(void)close(fd);
	return object;
}

static bool same(struct uw_object *a, struct uw_object *b)
{
	size_t m, n;
	const void *x = uw_object_compiled(a, &m), *y = uw_object_compiled(b, &n);

	return x && y && m == n && !memcmp(x, y, n);
}

/* ---- being killed ------------------------------------------------------------------- */

static __attribute__((noreturn)) void hammer(const char *db, char **files, int n)
{
	unsigned int seed = (unsigned int)getpid();

	for (;;) {
		const char *path = files[rand_r(&seed) % n];
		struct store_file file;
		struct uw_object *o = open_file(path, &file);
		struct store *store = NULL;

		(void)store_open(db, &store);
		if (o && store_find(store, o, &file) && !store_keep(store, o, &file)) {
			(void)printf(
				"%s\n",
				path); /* one write each: standard output is a pipe or a file */
			(void)fflush(stdout);
		}
		store_close(store);
		/* So that there is always something to write. */
		if (rand_r(&seed) % 8 == 0 && !store_open(db, &store)) {
			(void)store_shrink(store, (uint64_t)1 << 40);
			store_close(store);
		}
		uw_object_put(o);
	}
}

static int check(const char *db_name, char **files, int n)
{
	char error[DB_ERROR_SIZE];
	struct store *store;
	sqlite3_stmt *s;
	sqlite3 *db;
	int bad = 0;

	if (db_open(db_name, DB_WRITE, &db, error)) {
		(void)printf("%s\n", error);
		return 1;
	}
	if (sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &s, NULL) != SQLITE_OK ||
	    sqlite3_step(s) != SQLITE_ROW ||
	    strcmp((const char *)sqlite3_column_text(s, 0), "ok") != 0) {
		(void)printf("integrity_check: %s\n", sqlite3_errmsg(db));
		bad++;
	}
	(void)sqlite3_finalize(s);
	(void)sqlite3_close(db);
	if (store_open(db_name, &store))
		return 1;
	for (int i = 0; i < n; i++) {
		struct store_file file;
		struct uw_object *kept = open_file(files[i], &file);
		struct uw_object *fresh = open_file(files[i], &file);

		if (!kept || !fresh || uw_object_compile(fresh) || store_find(store, kept, &file) ||
		    !same(kept, fresh)) {
			(void)printf("%s: was acknowledged and is not there\n", files[i]);
			bad++;
		}
		uw_object_put(kept);
		uw_object_put(fresh);
	}
	store_close(store);
	return bad != 0;
}

/* ---- flipped bits ------------------------------------------------------------------- */

static char *read_whole(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *bytes;

	if (fd < 0 || fstat(fd, &st))
		return NULL;
	*size = (size_t)st.st_size;
	bytes = malloc(*size + 1);
	if (bytes && read(fd, bytes, *size) != (ssize_t)*size)
		*size = 0;
	(void)close(fd);
	return bytes;
}

static int flip(const char *db, long times, char **files, int n)
{
	struct uw_object *fresh[64];
	struct store_file file;
	char *bytes, copy[256];
	size_t size = 0;
	uint64_t found = 0, wrong = 0, none = 0, damaged = 0;
	unsigned int seed = 1;

	(void)snprintf(copy, sizeof(copy), "%s.flipped", db);
	bytes = read_whole(db, &size);
	for (int i = 0; i < n; i++) {
		fresh[i] = open_file(files[i], &file);
		if (!fresh[i] || uw_object_compile(fresh[i]))
			return 1;
	}
	for (long t = 0; t < times && bytes && size; t++) {
		size_t at[4], k = 1 + (size_t)rand_r(&seed) % 4;
		struct store_counters c;
		struct store *store;
		int fd;

		for (size_t i = 0; i < k; i++) {
			at[i] = (((size_t)rand_r(&seed) << 16) ^ (size_t)rand_r(&seed)) %
				(t % 3		? size
				 : size < 65536 ? size
						: 65536);
			bytes[at[i]] ^= (char)(1 << rand_r(&seed) % 8);
		}
		fd = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		/* Now and then it is cut short as well. */
		if (write(fd, bytes, t % 50 ? size : (size_t)rand_r(&seed) % size) < 0)
			return 1;
		(void)close(fd);
		if (store_open(copy, &store)) {
			none++;
		} else {
			for (int i = 0; i < n; i++) {
				struct uw_object *o = open_file(files[i], &file);

				if (!store_find(store, o, &file)) {
					size_t have;

					found++;
					/* Without a table: there was nothing to compile, it says. */
					if (uw_object_compiled(o, &have))
						wrong += !same(o, fresh[i]);
					else
						wrong++;
				} else if (t % 10 == 0 && !store_keep(store, o, &file)) {
					wrong += !same(o, fresh[i]);
				}
				uw_object_put(o);
			}
			store_counters(store, &c);
			damaged += c.damaged;
			store_close(store);
		}
		for (size_t i = 0; i < k; i++) /* the same bit may be there twice */
			bytes[at[i]] = 0;
		free(bytes);
		bytes = read_whole(db, &size);
		for (int i = 0; i < 3; i++) {
			static const char *const ends[] = { "", "-wal", "-shm" };
			char name[300];

			(void)snprintf(name, sizeof(name), "%s%s", copy, ends[i]);
			(void)unlink(name);
		}
	}
	(void)printf("%" PRIu64 " tables found, %" PRIu64 " wrong, %" PRIu64 " damaged, %" PRIu64
		     " databases refused\n",
		     found, wrong, damaged, none);
	for (int i = 0; i < n; i++)
		uw_object_put(fresh[i]);
	free(bytes);
	return wrong != 0;
}

/* ---- what fails once ------------------------------------------------------------------ */

static atomic_long countdown = -1, live;
static atomic_bool counting, of_memory;

static bool fails(void)
{
	return atomic_load(&counting) && atomic_load(&countdown) > 0 &&
	       atomic_fetch_sub(&countdown, 1) == 1;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define COUNTS_MEMORY 1
static bool memory_fails(void)
{
	return atomic_load(&of_memory) && fails();
}

/* glibc's own, under the names it has for those who replace them. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *p);

static void *counted(void *p)
{
	if (p)
		atomic_fetch_add(&live, 1);
	return p;
}

void *malloc(size_t size)
{
	return memory_fails() ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
	return memory_fails() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
	void *q;

	if (memory_fails())
		return NULL;
	q = __libc_realloc(p, size);
	return p ? q : counted(q);
}

void *aligned_alloc(size_t align, size_t size)
{
	return memory_fails() ? NULL : counted(__libc_memalign(align, size));
}

void free(void *p)
{
	if (p)
		atomic_fetch_sub(&live, 1);
	__libc_free(p);
}
#endif

/* A first run, a second one, and looking after it. */
static void use(const char *db, const char *path)
{
	for (int i = 0; i < 2; i++) {
		struct store_file file;
		struct uw_object *o = open_file(path, &file);
		struct store *store;
		uint64_t n;

		if (o && !store_open(db, &store)) {
			if (store_find(store, o, &file))
				(void)store_keep(store, o, &file);
			if (i)
				(void)store_forget(store, 1, &n);
			store_close(store);
		}
		uw_object_put(o);
	}
}

static void remove_db(const char *db)
{
	static const char *const ends[] = { "", "-wal", "-shm", "-journal" };
	char name[300];

	for (int i = 0; i < 4; i++) {
		(void)snprintf(name, sizeof(name), "%s%s", db, ends[i]);
		(void)unlink(name);
	}
}

/* The store still gives the right table, or none; then it is as good as new. */
static int still_right(const char *db, const char *path)
{
	struct store_file file;
	struct uw_object *o = open_file(path, &file), *fresh = open_file(path, &file);
	struct store *store;
	int bad = 0;

	if (uw_object_compile(fresh))
		bad = 1;
	if (!store_open(db, &store)) {
		if (!store_find(store, o, &file))
			bad |= !same(o, fresh);
		else
			bad |= store_keep(store, o, &file) != 0;
		store_close(store);
	} else {
		bad = 1;
	}
	uw_object_put(o);
	uw_object_put(fresh);
	return bad;
}

static int fail_each(const char *db, const char *path, bool memory)
{
	long n = 0, before, after;
	int bad = 0;

	atomic_store(&of_memory, memory);
	use(db, path); /* whatever is made once for the process */
	remove_db(db);
	for (n = 1; n < 100000; n++) {
		atomic_store(&countdown, n);
		before = atomic_load(&live);
		atomic_store(&counting, true);
		use(db, path);
		atomic_store(&counting, false);
		after = atomic_load(&live);
		if (memory && after > before) {
			(void)printf("call %ld: %ld blocks leak\n", n, after - before);
			bad++;
		}
		if (atomic_load(&countdown) > 0)
			break; /* it never came to that */
		if (still_right(db, path)) {
			(void)printf("call %ld: the store is of no use afterwards\n", n);
			bad++;
		}
		/* From nothing every other time, so that making it fails too. */
		if (n % 2)
			remove_db(db);
		if (bad > 10)
			break;
	}
	(void)printf("%ld calls failed in turn\n", n - 1);
	return bad || n < 10;
}

/* ---- SQLite's calls to the system ------------------------------------------------------ */

struct shim { /* a file of the shim, with the real one behind it */
	sqlite3_file base;
	sqlite3_file *real;
};

static sqlite3_vfs *real_vfs;

#define REAL(f)		 (((struct shim *)(f))->real)
#define PASS(code, call) (fails() ? (code) : (call))

static int io_close(sqlite3_file *f)
{
	int rc = REAL(f)->pMethods ? REAL(f)->pMethods->xClose(REAL(f)) : SQLITE_OK;

	free(REAL(f));
	return rc;
}

static int io_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
	return PASS(SQLITE_IOERR_READ, REAL(f)->pMethods->xRead(REAL(f), to, n, at));
}

/* Half of it arrives. */
static int io_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
	if (!fails())
		return REAL(f)->pMethods->xWrite(REAL(f), from, n, at);
	(void)REAL(f)->pMethods->xWrite(REAL(f), from, n / 2, at);
	return SQLITE_FULL;
}

static int io_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	return PASS(SQLITE_IOERR_TRUNCATE, REAL(f)->pMethods->xTruncate(REAL(f), size));
}

static int io_sync(sqlite3_file *f, int flags)
{
	return PASS(SQLITE_IOERR_FSYNC, REAL(f)->pMethods->xSync(REAL(f), flags));
}

static int io_size(sqlite3_file *f, sqlite3_int64 *size)
{
	return PASS(SQLITE_IOERR_FSTAT, REAL(f)->pMethods->xFileSize(REAL(f), size));
}

static int io_lock(sqlite3_file *f, int how)
{
	return PASS(SQLITE_BUSY, REAL(f)->pMethods->xLock(REAL(f), how));
}

static int io_unlock(sqlite3_file *f, int how)
{
	return REAL(f)->pMethods->xUnlock(REAL(f), how);
}

static int io_reserved(sqlite3_file *f, int *out)
{
	return PASS(SQLITE_IOERR_CHECKRESERVEDLOCK,
		    REAL(f)->pMethods->xCheckReservedLock(REAL(f), out));
}

static int io_control(sqlite3_file *f, int op, void *arg)
{
	return REAL(f)->pMethods->xFileControl(REAL(f), op, arg);
}

static int io_sector(sqlite3_file *f)
{
	return REAL(f)->pMethods->xSectorSize(REAL(f));
}

static int io_character(sqlite3_file *f)
{
	return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}

static int io_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
	return PASS(SQLITE_IOERR_SHMMAP,
		    REAL(f)->pMethods->xShmMap(REAL(f), page, size, extend, out));
}

static int io_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
	if (flags & SQLITE_SHM_UNLOCK)
		return REAL(f)->pMethods->xShmLock(REAL(f), at, n, flags);
	return PASS(SQLITE_BUSY, REAL(f)->pMethods->xShmLock(REAL(f), at, n, flags));
}

static void io_barrier(sqlite3_file *f)
{
	REAL(f)->pMethods->xShmBarrier(REAL(f));
}

static int io_unmap(sqlite3_file *f, int unlink_it)
{
	return REAL(f)->pMethods->xShmUnmap(REAL(f), unlink_it);
}

static const sqlite3_io_methods io = {
	.iVersion = 2, /* without memory mapping */
	.xClose = io_close,
	.xRead = io_read,
	.xWrite = io_write,
	.xTruncate = io_truncate,
	.xSync = io_sync,
	.xFileSize = io_size,
	.xLock = io_lock,
	.xUnlock = io_unlock,
	.xCheckReservedLock = io_reserved,
	.xFileControl = io_control,
	.xSectorSize = io_sector,
	.xDeviceCharacteristics = io_character,
	.xShmMap = io_map,
	.xShmLock = io_shm_lock,
	.xShmBarrier = io_barrier,
	.xShmUnmap = io_unmap,
};

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
	struct shim *shim = (struct shim *)f;
	int rc;

	(void)vfs;
	f->pMethods = NULL;
	if (fails())
		return SQLITE_CANTOPEN;
	shim->real = calloc(1, (size_t)real_vfs->szOsFile);
	if (!shim->real)
		return SQLITE_NOMEM;
	rc = real_vfs->xOpen(real_vfs, name, shim->real, flags, out);
	if (rc == SQLITE_OK)
		f->pMethods = &io;
	else
		free(shim->real);
	return rc;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
	(void)vfs;
	return PASS(SQLITE_IOERR_DELETE, real_vfs->xDelete(real_vfs, name, sync));
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
	(void)vfs;
	return PASS(SQLITE_IOERR_ACCESS, real_vfs->xAccess(real_vfs, name, flags, out));
}

static void use_shim(void)
{
	static sqlite3_vfs shim;

	real_vfs = sqlite3_vfs_find(NULL);
	shim = *real_vfs;
	shim.zName = "shim";
	shim.szOsFile = (int)sizeof(struct shim);
	shim.xOpen = vfs_open;
	shim.xDelete = vfs_delete;
	shim.xAccess = vfs_access;
	(void)sqlite3_vfs_register(&shim, 1);
}

int main(int argc, char **argv)
{
	log_quiet(true);
	if (argc >= 4 && !strcmp(argv[1], "hammer"))
		hammer(argv[2], argv + 3, argc - 3);
	if (argc >= 4 && !strcmp(argv[1], "check"))
		return check(argv[2], argv + 3, argc - 3);
	if (argc >= 5 && argc <= 64 && !strcmp(argv[1], "flip"))
		return flip(argv[2], strtol(argv[3], NULL, 10), argv + 4, argc - 4);
#ifdef COUNTS_MEMORY
	if (argc == 4 && !strcmp(argv[1], "memory")) {
		(void)sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
		return fail_each(argv[2], argv[3], true);
	}
#endif
	if (argc == 4 && !strcmp(argv[1], "io")) {
		use_shim();
		return fail_each(argv[2], argv[3], false);
	}
	(void)fprintf(stderr, "usage: see store_faults.c\n");
	return 2;
}

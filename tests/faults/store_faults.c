/*
 * tests/faults/store_faults.c: tests the store under every kind of fault.
 *
 *   kill DB N FILE…           N times, kill -9 one of four processes that put FILEs into DB and
 *                             look them up; what each has acknowledged is there afterwards, and
 *                             equals a newly made entry
 *   check DB FILE…            the database is sound, and has the FILEs' own tables
 *   flip DB N FILE…           N times, flip bits of copies of DB: no wrong table, no crash
 *   die DB FILE               a process ends at an allocation while it compiles FILE, twice, for
 *                             many allocations: FILE is then in quarantine until that is emptied
 *   memory DB FILE            each allocation fails once in turn: no crash, no leak
 *   io DB FILE                the same for each system call, SQLite's and the store's own
 */
#include "agent/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/log.h"
#include "agent/store/db.h"
#include "agent/store/query/sql.h"
#include "schema/table_blob.h"
#include "symbolizer/symbolizer.h"
#include "tests/asan.h"
#include "unwinder/rule/object.h"

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

/* Return the number that sql gives; -1: the query failed. */
static int64_t count(const char *name, const char *sql)
{
	char error[DB_ERROR_SIZE];
	sqlite3 *db = NULL;
	int64_t n;

	if (db_open(name, &db_store, DB_WRITE, &db, error))
		return -1;
	n = db_number(db, sql);
	(void)sqlite3_close(db);
	return n;
}

/* ---- being killed ------------------------------------------------------------------- */

/*
 * acknowledged: one byte for each file, written when the store has said that it has the file's
 * table.
 */
static __attribute__((noreturn)) void hammer(const char *db, char **files, int n, int acknowledged)
{
	unsigned int seed = (unsigned int)getpid();

	for (;;) {
		unsigned char i = (unsigned char)(rand_r(&seed) % n);
		const char *path = files[i];
		struct store_file file;
		struct uw_object *o = open_file(path, &file);
		struct store *store = NULL;
		int err = -EINVAL;

		(void)store_open(db, &store);
		if (o && store_find_parts(store, o, &file))
			err = store_keep(store, o, &file);
		if (!err && write(acknowledged, &i, 1) != 1)
			_exit(1);
		store_close(store);
		/*
		 * Two processes were killed while they compiled it, which says nothing about the
		 * file here.
		 */
		if (err == -EPERM)
			(void)count(db, "DELETE FROM quarantine");
		/* This makes sure that there is always something to write. */
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

	if (db_open(db_name, &db_store, DB_WRITE, &db, error)) {
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

#define HAMMERS 4

static void remove_db(const char *db);

static pid_t start_hammer(const char *db, char **files, int n, int acknowledged)
{
	pid_t pid = fork();

	if (!pid)
		hammer(db, files, n, acknowledged);
	return pid;
}

static void end_hammer(pid_t pid)
{
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
}

/* Check that everything that was acknowledged since the database was created is there. */
static int check_acknowledged(const char *db, char **files, int n, int from, bool seen[])
{
	char *want[64];
	unsigned char i;
	int n_want = 0;

	while (read(from, &i, 1) == 1)
		seen[i % n] = true;
	for (int k = 0; k < n; k++)
		if (seen[k])
			want[n_want++] = files[k];
	return n_want ? check(db, want, n_want) : 0;
}

static int kill_them(const char *db, long times, char **files, int n)
{
	bool seen[64] = { false };
	pid_t pids[HAMMERS];
	unsigned int seed = 1;
	int ends[2], bad = 0;
	long checks = 0;

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return 1;
	for (int i = 0; i < HAMMERS; i++)
		pids[i] = start_hammer(db, files, n, ends[1]);
	for (long t = 1; t <= times && !bad; t++) {
		const struct timespec pause = { .tv_nsec = rand_r(&seed) % 12000000 };
		int which = rand_r(&seed) % HAMMERS;

		(void)nanosleep(&pause, NULL);
		end_hammer(pids[which]);
		if (t % 25 && t < times) {
			pids[which] = start_hammer(db, files, n, ends[1]);
			continue;
		}
		for (int i = 0; i < HAMMERS; i++)
			if (i != which)
				end_hammer(pids[i]);
		bad += check_acknowledged(db, files, n, ends[0], seen);
		checks++;
		/* Start with a new database at times, so that creating it is interrupted, too. */
		if (t % 2) {
			remove_db(db);
			memset(seen, 0, sizeof(seen));
		}
		for (int i = 0; i < HAMMERS && t < times; i++)
			pids[i] = start_hammer(db, files, n, ends[1]);
	}
	(void)printf("%ld killed, looked at %ld times\n", times, checks);
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

struct flips {
	uint64_t found, wrong, damaged, refused;
};

/*
 * Compare the packed rules: rules that need a record are only marked so, and only rows say where
 * procedures begin.
 */
static bool same_rule(struct uw_object *a, struct uw_object *b, uint64_t at)
{
	uint64_t x = 0, y = 0;
	uint8_t one, other;

	if (uw_object_packed(a, at, true, &x, &one) != uw_object_packed(b, at, true, &y, &other))
		return false;
	return !((x ^ y) & ~(uint64_t)TABLE_RULE_BEGINS) ||
	       ((x & TABLE_RULE_KIND) == TABLE_SLOW && (y & TABLE_RULE_KIND) == TABLE_SLOW);
}

/* The rules at some places are the file's. */
static bool same_rules(struct uw_object *a, struct uw_object *b)
{
	size_t n;
	const struct uw_segment *s = uw_object_segments(b, &n);

	for (size_t i = 0; i < n; i++) {
		uint64_t start, end, from, to, at = s[i].vaddr;

		for (unsigned int k = 0; s[i].flags & 1 && k < 32; k++, at += s[i].mem_size / 32)
			if (uw_object_function(a, at, &start, &end) !=
				    uw_object_function(b, at, &from, &to) ||
			    !same_rule(a, b, at))
				return false;
	}
	return true;
}

static void try_flipped(const char *copy, const char *path, struct uw_object *fresh, long t,
			struct flips *sum)
{
	struct store_counters c;
	struct store_file file;
	struct uw_object *o;
	struct store *store;

	if (store_open(copy, &store)) {
		sum->refused++;
		return;
	}
	o = open_file(path, &file);
	if (t % 2) {
		/*
		 * The table is read as needed; if damage is found then, it is as if nothing had
		 * been stored.
		 */
		if (!store_find_parts(store, o, &file)) {
			sum->found++;
			sum->wrong += !same_rules(o, fresh);
		}
	} else if (!store_find(store, o, &file)) {
		sum->found++;
		/* Without a table: the store says that there was nothing to compile. */
		sum->wrong += !same(o, fresh);
	} else if (t % 10 == 0 && !store_keep(store, o, &file)) {
		sum->wrong += !same(o, fresh);
	}
	store_counters(store, &c);
	sum->damaged += c.damaged;
	uw_object_put(o);
	store_close(store);
}

/* One of several processes that share the repetitions. */
static int flip_some(const char *db, long first, long times, long step, char **files, int n)
{
	struct flips sum = { 0 };
	struct uw_object *fresh[64];
	struct store_file file;
	unsigned int seed = (unsigned int)first + 1;
	size_t size = 0;
	char *bytes = read_whole(db, &size), copy[256];

	(void)snprintf(copy, sizeof(copy), "%s.flipped%ld", db, first);
	for (int i = 0; i < n; i++) {
		fresh[i] = open_file(files[i], &file);
		if (!fresh[i] || uw_object_compile(fresh[i]))
			return 1;
	}
	for (long t = first; t < times && bytes && size; t += step) {
		size_t at[4], k = 1 + (size_t)rand_r(&seed) % 4;
		char was[4];
		int fd = open(copy, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

		for (size_t i = 0; i < k; i++) {
			at[i] = (((size_t)rand_r(&seed) << 16) ^ (size_t)rand_r(&seed)) %
				(t % 3		? size
				 : size < 65536 ? size
						: 65536);
			was[i] = bytes[at[i]];
			bytes[at[i]] ^= (char)(1 << rand_r(&seed) % 8);
		}
		/* At times it is cut short as well. */
		if (write(fd, bytes, t % 50 ? size : (size_t)rand_r(&seed) % size) < 0)
			return 1;
		(void)close(fd);
		while (k--)
			bytes[at[k]] = was[k];
		try_flipped(copy, files[t % n], fresh[t % n], t, &sum);
		remove_db(copy);
	}
	(void)printf("%" PRIu64 " tables found, %" PRIu64 " wrong, %" PRIu64 " damaged, %" PRIu64
		     " databases refused\n",
		     sum.found, sum.wrong, sum.damaged, sum.refused);
	for (int i = 0; i < n; i++)
		uw_object_put(fresh[i]);
	free(bytes);
	/* A few flips may all have hit bytes that do not matter. */
	return sum.wrong != 0 || !sum.found || (times >= 1000 && !sum.damaged);
}

static int flip(const char *db, long times, char **files, int n)
{
	long jobs = sysconf(_SC_NPROCESSORS_ONLN), k;
	int status, bad = 0;

	jobs = jobs < 1 ? 1 : jobs > 8 ? 8 : jobs;
	(void)fflush(stdout);
	for (k = 0; k < jobs; k++) {
		if (!fork()) {
			status = flip_some(db, k, times, jobs, files, n);
			(void)fflush(stdout);
			_exit(status);
		}
	}
	while (wait(&status) > 0)
		bad |= status != 0;
	return bad;
}

/* ---- what fails once ------------------------------------------------------------------ */

static atomic_long countdown = -1, live;
static atomic_bool counting, of_memory;

static bool fails(void)
{
	return atomic_load(&counting) && atomic_load(&countdown) > 0 &&
	       atomic_fetch_sub(&countdown, 1) == 1;
}

#if !defined(WITH_ASAN) && defined(__GLIBC__)
#define COUNTS_MEMORY 1
static atomic_bool deadly; /* and the process with it */

static bool memory_fails(void)
{
	bool failing = atomic_load(&of_memory) && fails();

	if (failing && atomic_load(&deadly))
		(void)raise(SIGKILL);
	return failing;
}

/* glibc's own functions, under the names that it provides for programs that replace them. */
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

void *mmap(void *addr, size_t size, int prot, int flags, int fd, off_t off)
{
	if (memory_fails()) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, addr, size, prot, flags, fd, off);
}
#endif

/* The system calls that the store makes itself, and not through SQLite. */
static bool call_fails(void)
{
	bool failing = !atomic_load(&of_memory) && fails();

	if (failing)
		errno = EIO;
	return failing;
}

int open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	return call_fails() ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int access(const char *path, int how)
{
	return call_fails() ? -1 : (int)syscall(SYS_faccessat, AT_FDCWD, path, how);
}

int faccessat(int dir, const char *path, int how, int flags)
{
	return call_fails() ? -1 : (int)syscall(SYS_faccessat2, dir, path, how, flags);
}

int stat(const char *path, struct stat *st)
{
	return call_fails() ? -1 : (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

int fstat(int fd, struct stat *st)
{
	return call_fails() ? -1 : (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

int mkdir(const char *path, mode_t mode)
{
	return call_fails() ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

/* A first run, a second run, and a check afterwards. */
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

/* Read symbols from the store, or put them in. */
static void use_symbols(struct store *store, struct uw_object *o, const char *path,
			const struct store_file *file)
{
	const struct uw_build_id *id = uw_object_build_id(o);
	struct sym_table *symbols = NULL;
	struct sym_symbol symbol;
	int fd;

	if (!store_find_symbols(store, file, NULL, id, &symbols)) {
		for (uint64_t at = 0; at < 0x8000; at += 0x800)
			(void)sym_table_find(symbols, at, &symbol);
		sym_table_free(symbols);
		return;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && !sym_table_open(fd, 0, &symbols))
		store_want_symbols(store, file, NULL, id, symbols);
	if (fd >= 0)
		(void)close(fd);
}

/* Parts that are read as needed; symbols; quarantine. */
static void use_parts(const char *db, const char *path)
{
	struct store_file file;
	struct uw_object *o = open_file(path, &file);
	uint64_t start, end;
	struct store *store;

	if (o && !store_open(db, &store)) {
		if (store_find_parts(store, o, &file))
			store_want(store, o, &file);
		for (uint64_t at = 0; at < 0x8000; at += 0x400)
			(void)uw_object_function(o, at, &start, &end);
		use_symbols(store, o, path, &file);
		if (!store_is_quarantined(store, NULL, &file))
			(void)store_quarantine(store, NULL, &file, "for a test");
		store_work(store, UINT64_C(10000000000));
		(void)store_shrink(store, (uint64_t)1 << 40);
		store_close(store);
	}
	uw_object_put(o);
}

static void ask(const char *db, const char *path)
{
	char error[DB_ERROR_SIZE];
	sqlite3 *sql = NULL;
	FILE *null = fopen("/dev/null", "we");

	(void)path;
	if (null && !sql_open(db, &sql, error)) {
		(void)sql_print(sql, "SELECT *, words FROM unwind_rows(1, 0x4000)", SQL_CSV, null,
				error);
		(void)sql_print(sql, "SELECT sum(n_slow) FROM unwind_fdes(1)", SQL_TABLE, null,
				error);
		(void)sql_print(sql, "SELECT * FROM unwind_gaps(1)", SQL_JSON, null, error);
		(void)sqlite3_close(sql);
	}
	if (null)
		(void)fclose(null);
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

/* The store still gives the right table, or none; then it works as before. */
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

static int fail_each(const char *db, const char *path, bool memory,
		     void (*used)(const char *, const char *), bool anew)
{
	long n = 0, before, after;
	int bad = 0;

	atomic_store(&of_memory, memory);
	used(db, path); /* everything that is made once for the process */
	if (anew)
		remove_db(db);
	for (n = 1; n < 100000; n++) {
		atomic_store(&countdown, n);
		before = atomic_load(&live);
		atomic_store(&counting, true);
		used(db, path);
		atomic_store(&counting, false);
		after = atomic_load(&live);
		if (memory && after > before) {
			(void)printf("call %ld: %ld blocks leak\n", n, after - before);
			bad++;
		}
		if (atomic_load(&countdown) > 0)
			break; /* it never came to that */
		/* For calls that mostly read: at times. */
		if ((anew || n % 4 == 0) && still_right(db, path)) {
			(void)printf("call %ld: the store is of no use afterwards\n", n);
			bad++;
		}
		/* Every second time without a database, so that creating it fails, too. */
		if (anew && n % 2)
			remove_db(db);
		if (bad > 10)
			break;
	}
	(void)printf("%ld calls failed in turn\n", n - 1);
	return bad || n < 10;
}

/* ---- who ends over a file --------------------------------------------------------------- */

#ifdef COUNTS_MEMORY
/* End the process at the n-th allocation from there on; 1: there are fewer. */
static int keep_and_end(const char *db, const char *path, long n)
{
	int status = 0;
	pid_t pid = fork();

	if (!pid) {
		struct store_file file;
		struct uw_object *o = open_file(path, &file);
		struct store *store = NULL;

		(void)store_open(db, &store);
		atomic_store(&of_memory, true);
		atomic_store(&deadly, true);
		atomic_store(&countdown, n);
		atomic_store(&counting, true);
		(void)store_keep(store, o, &file);
		_exit(0);
	}
	(void)waitpid(pid, &status, 0);
	return WIFEXITED(status);
}

static int keep(const char *db, const char *path)
{
	struct store_file file;
	struct uw_object *o = open_file(path, &file);
	struct store *store = NULL;
	int err;

	(void)store_open(db, &store);
	err = store_keep(store, o, &file);
	store_close(store);
	uw_object_put(o);
	return err;
}

/* The first process may have been killed for any reason; after two, the reason is recorded. */
static int end_over_it(const char *db, const char *path)
{
	int bad = 0, held = 0, n = 0;

	for (long k = 1; k < 100000 && !bad; k += 1 + k / 8, n++) {
		int64_t left;

		/* A file that exists and is empty: creating it is another case. */
		remove_db(db);
		bad += keep(db, path) != 0;
		(void)count(db, "DELETE FROM objects");
		if (keep_and_end(db, path, k) || keep_and_end(db, path, k))
			break;
		left = count(db, "SELECT count(*) FROM building");
		bad += keep(db, path) != (left == 2 ? -EPERM : 0);
		if (left == 2) {
			held++;
			bad += count(db, "SELECT count(*) FROM quarantine WHERE reason ="
					 " '2 processes ended while they compiled it'") != 1;
			bad += keep(db, path) != -EPERM;
			(void)count(db, "DELETE FROM quarantine");
			bad += keep(db, path) != 0;
		}
		bad += count(db, "SELECT count(*) FROM building") != 0;
		bad += count(db, "SELECT count(*) FROM tables") != 1;
		if (bad)
			(void)printf("allocation %ld, %d notes left\n", k, (int)left);
	}
	(void)printf("ended at %d allocations, %d times while it compiled\n", n, held);
	return bad || held < 3;
}
#endif

/* ---- SQLite's calls to the system ------------------------------------------------------ */

struct shim { /* a file of the shim, which wraps the real one */
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
	if (argc >= 5 && argc <= 64 && !strcmp(argv[1], "kill"))
		return kill_them(argv[2], strtol(argv[3], NULL, 10), argv + 4, argc - 4);
	if (argc >= 4 && !strcmp(argv[1], "check"))
		return check(argv[2], argv + 3, argc - 3);
	if (argc >= 5 && argc <= 64 && !strcmp(argv[1], "flip"))
		return flip(argv[2], strtol(argv[3], NULL, 10), argv + 4, argc - 4);
#ifdef COUNTS_MEMORY
	if (argc == 4 && !strcmp(argv[1], "die"))
		return end_over_it(argv[2], argv[3]);
	if (argc == 4 && !strcmp(argv[1], "memory")) {
		(void)sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
		return fail_each(argv[2], argv[3], true, use, true) |
		       fail_each(argv[2], argv[3], true, use_parts, false) |
		       fail_each(argv[2], argv[3], true, ask, false);
	}
#endif
	if (argc == 4 && !strcmp(argv[1], "io")) {
		use_shim();
		return fail_each(argv[2], argv[3], false, use, true) |
		       fail_each(argv[2], argv[3], false, use_parts, false) |
		       fail_each(argv[2], argv[3], false, ask, false);
	}
	(void)fprintf(stderr, "usage: see store_faults.c\n");
	return 2;
}

/* agent/store/db.c: opens, creates and upgrades SQLite databases of offwind. */
#include "agent/store/db.h"

#include "schema/store_sql.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PAGE_SIZE 16384
#define CACHE_KIB 1024 /* small: blobs are read and written once */
/*
 * Of a mapped file only the needed parts of a 16 KiB page are read; beyond this size, pages are
 * read as a whole.
 */
#define MAP_MAX	     1073741824
#define READ_WAIT_MS 200
#define TURNS_MAX    50 /* attempts, 20 ms apart, where SQLite itself does not wait */

#define TEXT_OF(x) #x
#define TEXT(x)	   TEXT_OF(x)

const struct db_kind db_store = { .id = 0x4f574442, /* "OWDB" */
				  .steps = store_sql,
				  .n_steps = sizeof(store_sql) / sizeof(store_sql[0]) };

int db_schema_version(const struct db_kind *kind)
{
	return kind->n_steps;
}

/* ---- the path ------------------------------------------------------------------- */

int db_path(const char *given, char **out)
{
	const char *env = getenv("OFFWIND_DB"), *cache = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	char *path = NULL;
	int n = 0;

	if (given || env) {
		if (!given)
			given = env;
		if (!*given)
			return -ENOENT;
		path = strdup(given);
	} else if (!geteuid()) {
		path = strdup("/var/lib/offwind/offwind.db");
	} else if (cache && *cache == '/') {
		n = asprintf(&path, "%s/offwind/offwind.db", cache);
	} else if (home && *home == '/') {
		n = asprintf(&path, "%s/.cache/offwind/offwind.db", home);
	} else {
		return -ENOENT;
	}
	if (n < 0 || !path)
		return -ENOMEM;
	*out = path;
	return 0;
}

/* Create the directories that lead to path, accessible for this user alone. */
static void make_directories(const char *path)
{
	char *copy = strdup(path);

	for (char *p = copy ? strchr(copy + 1, '/') : NULL; p; p = strchr(p + 1, '/')) {
		*p = '\0';
		(void)mkdir(copy, 0700); /* errors show when the database is opened */
		*p = '/';
	}
	free(copy);
}

/* ---- errors --------------------------------------------------------------------- */

/* Write SQLite's error message with the path into error, and return the errno code for rc. */
static int fail(sqlite3 *db, const char *path, int rc, char error[DB_ERROR_SIZE])
{
	const char *why = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
	int code = db ? sqlite3_system_errno(db) : 0;

	(void)snprintf(error, DB_ERROR_SIZE, "%s: %s%s%s", path, why,
		       (rc & 0xff) == SQLITE_CANTOPEN && code ? ": " : "",
		       (rc & 0xff) == SQLITE_CANTOPEN && code ? strerror(code) : "");
	return db_errno(rc);
}

int db_exec(sqlite3 *db, const char *sql)
{
	return db_errno(sqlite3_exec(db, sql, NULL, NULL, NULL));
}

int db_unmap(sqlite3 *db)
{
	return db_exec(db, "PRAGMA mmap_size = 0");
}

/* Read the first number that sql gives. Return SQLite's code; SQLITE_OK also if there is no row. */
static int read_number(sqlite3 *db, const char *sql, int64_t *out)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &s, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(s);
	if (rc == SQLITE_ROW)
		*out = sqlite3_column_int64(s, 0);
	(void)sqlite3_finalize(s);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int64_t db_number(sqlite3 *db, const char *sql)
{
	int64_t value = 0;

	return read_number(db, sql, &value) == SQLITE_OK ? value : 0;
}

/*
 * Run sql, again and again while the database is locked. Some statements do not use SQLite's busy
 * timeout, for example where two processes create the database at the same time.
 */
static int exec_in_turn(sqlite3 *db, const char *sql)
{
	const struct timespec pause = { .tv_nsec = 20000000 };
	int rc = SQLITE_OK;

	for (int i = 0; i < TURNS_MAX; i++) {
		rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
		if ((rc & 0xff) != SQLITE_BUSY && (rc & 0xff) != SQLITE_LOCKED)
			break;
		(void)nanosleep(&pause, NULL);
	}
	return rc;
}

/* ---- statements ----------------------------------------------------------------- */

void db_bind_bytes(sqlite3_stmt *stmt, int column, const void *bytes, size_t size)
{
	if (size)
		(void)sqlite3_bind_blob64(stmt, column, bytes, size, SQLITE_STATIC);
	else
		(void)sqlite3_bind_zeroblob(stmt, column, 0);
}

void db_bind_numbers(sqlite3_stmt *stmt, const int64_t *numbers, int n)
{
	for (int i = 0; i < n; i++)
		(void)sqlite3_bind_int64(stmt, i + 1, numbers[i]);
}

int db_step(sqlite3_stmt *stmt)
{
	int rc = sqlite3_step(stmt);

	return rc == SQLITE_ROW ? 1 : db_errno(rc);
}

void db_release(sqlite3_stmt *stmt)
{
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
}

/* ---- the schema ----------------------------------------------------------------- */

/*
 * Read the schema's version, the application id and (only if these are not ours) the number of
 * tables, all in one transaction. Another process may create the database at this moment, also in
 * one transaction; a mixture of the old and the new values would look like a foreign or damaged
 * database.
 */
static int read_kind(sqlite3 *db, const struct db_kind *kind, int64_t *version, int64_t *id,
		     int64_t *n_tables)
{
	const bool alone = sqlite3_get_autocommit(db);
	int rc = alone ? sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) : SQLITE_OK;

	if (rc == SQLITE_OK)
		rc = read_number(db, "PRAGMA user_version", version);
	if (rc == SQLITE_OK)
		rc = read_number(db, "PRAGMA application_id", id);
	/* A schema of ours always has tables, so they need not be counted then. */
	if (rc == SQLITE_OK && (*version <= 0 || *id != kind->id))
		rc = read_number(db, "SELECT count(*) FROM sqlite_schema", n_tables);
	if (alone && rc == SQLITE_OK)
		rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	return rc;
}

/*
 * Give the version of the schema, 0 for an empty file. A negative code with a sentence in error:
 * the database is foreign, damaged or of a newer offwind.
 */
static int check_kind(sqlite3 *db, const char *path, const struct db_kind *kind, int *version,
		      char error[DB_ERROR_SIZE])
{
	int64_t id = 0, n = 1, is = 0;
	int rc = read_kind(db, kind, &is, &id, &n);

	if (rc != SQLITE_OK)
		return fail(db, path, rc, error);
	*version = (int)is;
	if (n ? id != kind->id : (id || *version) && id != kind->id) {
		(void)snprintf(error, DB_ERROR_SIZE, "%s: is a database of another program", path);
		return -EBADMSG;
	}
	if (*version > kind->n_steps) {
		(void)snprintf(
			error, DB_ERROR_SIZE,
			"%s: was created by a newer offwind (schema %d, this version supports %d)",
			path, *version, kind->n_steps);
		return -ENOTSUP;
	}
	if (*version < 0 || (n && !*version)) {
		(void)snprintf(error, DB_ERROR_SIZE, "%s: is damaged (schema %d)", path, *version);
		return -EBADMSG;
	}
	return 0;
}

/* Upgrade the schema, all steps in one transaction: readers see the old schema or the new one. */
static int migrate(sqlite3 *db, const char *path, const struct db_kind *kind,
		   char error[DB_ERROR_SIZE])
{
	char pragma[96];
	int version = 0, rc = kind->prepare ? kind->prepare(db) : SQLITE_OK, err;

	if (rc == SQLITE_OK)
		rc = exec_in_turn(db, "BEGIN IMMEDIATE");
	if (rc != SQLITE_OK)
		return fail(db, path, rc, error);
	/* Another process may have upgraded it meanwhile. */
	err = check_kind(db, path, kind, &version, error);
	for (; !err && version < kind->n_steps; version++) {
		rc = sqlite3_exec(db, kind->steps[version], NULL, NULL, NULL);
		if (rc != SQLITE_OK)
			err = fail(db, path, rc, error);
	}
	if (!err) {
		(void)snprintf(pragma, sizeof(pragma),
			       "PRAGMA application_id = %d; PRAGMA user_version = %d", kind->id,
			       kind->n_steps);
		rc = sqlite3_exec(db, pragma, NULL, NULL, NULL);
		if (rc == SQLITE_OK)
			rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
		if (rc != SQLITE_OK)
			err = fail(db, path, rc, error);
	}
	if (err)
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return err;
}

/* ---- opening -------------------------------------------------------------------- */

/* Configure a new connection, check what kind of database it is, and upgrade it (DB_WRITE). */
static int set_up(sqlite3 *db, const char *path, const struct db_kind *kind, enum db_mode mode,
		  char error[DB_ERROR_SIZE])
{
	int version = 0, rc, err;

	(void)sqlite3_extended_result_codes(db, 1);
	/* Do not trust the schema: a database file can come from anybody. */
	(void)sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	(void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	(void)sqlite3_busy_timeout(db, mode == DB_WRITE ? DB_WRITE_WAIT_MS : READ_WAIT_MS);
	rc = sqlite3_exec(
		db,
		"PRAGMA cache_size = -" TEXT(
			CACHE_KIB) "; PRAGMA foreign_keys = ON;"
				   "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY;"
				   "PRAGMA mmap_size = " TEXT(MAP_MAX),
		NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		return fail(db, path, rc, error);
	err = check_kind(db, path, kind, &version, error);
	if (err)
		return err;
	if (mode == DB_READ) {
		if (version == kind->n_steps)
			return 0;
		(void)snprintf(error, DB_ERROR_SIZE,
			       "%s: was created by an older offwind (schema %d)", path, version);
		return -ENOTSUP;
	}
	if (!version) {
		/* Both settings must come before the first page is written. */
		rc = sqlite3_exec(
			db,
			"PRAGMA page_size = " TEXT(PAGE_SIZE) ";"
							      "PRAGMA auto_vacuum = INCREMENTAL",
			NULL, NULL, NULL);
		if (rc != SQLITE_OK)
			return fail(db, path, rc, error);
	}
	/*
	 * With WAL and NORMAL, a killed process loses nothing that was committed; a power failure
	 * may lose it.
	 */
	rc = sqlite3_exec(db, "PRAGMA synchronous = NORMAL", NULL, NULL, NULL);
	if (rc == SQLITE_OK)
		rc = exec_in_turn(db, "PRAGMA journal_mode = WAL");
	if (rc != SQLITE_OK)
		return fail(db, path, rc, error);
	return version < kind->n_steps ? migrate(db, path, kind, error) : 0;
}

/* Open a connection by a file name or URI and set it up. path is for error messages. */
static int open_as(const char *path, const char *name, int flags, const struct db_kind *kind,
		   enum db_mode mode, sqlite3 **out, char error[DB_ERROR_SIZE])
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open_v2(name, &db, flags | SQLITE_OPEN_NOMUTEX, NULL), err;

	err = rc == SQLITE_OK ? set_up(db, path, kind, mode, error) : fail(db, path, rc, error);
	if (err) {
		(void)sqlite3_close(db);
		return err;
	}
	*out = db;
	return 0;
}

/*
 * Return the URI "file:…?immutable=1" with the characters escaped that have a meaning in a URI. The
 * caller frees it.
 */
static char *immutable_name(const char *path)
{
	char *name = malloc(3 * strlen(path) + 32), *p;

	if (!name)
		return NULL;
	p = stpcpy(name, "file:");
	for (; *path; path++)
		p += sprintf(p, strchr("%?#", *path) ? "%%%02x" : "%c", (unsigned char)*path);
	(void)strcpy(p, "?immutable=1");
	return name;
}

/*
 * Configure SQLite, once in a process. Its memory statistics are unused, and with them each
 * allocation would take a lock.
 */
static void configure(void)
{
	(void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
	/*
	 * Do not allocate 20 pages at once and write to each of them: with a mapped file few pages
	 * are needed.
	 */
	(void)sqlite3_config(SQLITE_CONFIG_PAGECACHE, NULL, 0, 0);
}

/*
 * Create an empty database that only this user can read, because paths of programs are private.
 * SQLite gives its other files the same mode.
 */
static int make_file(const char *path)
{
	int fd;

	make_directories(path);
	/*
	 * The file did not exist. If there is a symbolic link now, another user may have made it:
	 * O_NOFOLLOW.
	 */
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	(void)close(fd);
	return 0;
}

static atomic_bool writes_nothing;

/*
 * What SQLite opens files with. It opens the files of the write-ahead log for reading if it may not
 * write them (https://sqlite.org/wal.html, "Read-Only Databases").
 */
static int open_to_read(const char *path, int flags, int mode)
{
	if (atomic_load(&writes_nothing) && (flags & O_ACCMODE) != O_RDONLY) {
		errno = EACCES;
		return -1;
	}
	return open(path, flags, mode);
}

void db_write_nothing(bool nothing)
{
	static bool installed; /* before there are threads */
	sqlite3_vfs *vfs = installed ? NULL : sqlite3_vfs_find(NULL);

	if (vfs && vfs->iVersion >= 3)
		(void)vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_to_read);
	installed = true;
	atomic_store(&writes_nothing, nothing);
}

int db_open(const char *path, const struct db_kind *kind, enum db_mode mode, sqlite3 **out,
	    char error[DB_ERROR_SIZE])
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct stat st;
	bool there = !stat(path, &st);
	char *name;
	int err;

	(void)pthread_once(&once, configure);
	if (there && !S_ISREG(st.st_mode)) {
		(void)snprintf(error, DB_ERROR_SIZE, "%s: is not a file", path);
		return -EBADMSG;
	}
	if (mode == DB_WRITE) {
		/* If the file cannot be written, SQLite would silently open it for reading. */
		err = there ? faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) ? -errno : 0
			    : make_file(path);
		if (err) {
			(void)snprintf(error, DB_ERROR_SIZE, "%s: %s", path, strerror(-err));
			return err;
		}
		return open_as(path, path, SQLITE_OPEN_READWRITE, kind, mode, out, error);
	}
	if (access(path, R_OK)) {
		err = -errno;
		(void)snprintf(error, DB_ERROR_SIZE, "%s: %s", path, strerror(-err));
		return err;
	}
	err = open_as(path, path, SQLITE_OPEN_READONLY, kind, mode, out, error);
	if ((err != -EACCES && err != -EROFS) || atomic_load(&writes_nothing))
		return err;
	/*
	 * WAL needs files beside the database, which cannot be created here. Assume that nobody
	 * else writes to a database in such a directory either, and open it as immutable.
	 */
	name = immutable_name(path);
	if (!name)
		return -ENOMEM;
	err = open_as(path, name, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, kind, mode, out, error);
	free(name);
	return err;
}

int db_make_files(const char *path, const struct db_kind *kind, char error[DB_ERROR_SIZE])
{
	sqlite3 *made;
	int err = db_open(path, kind, DB_WRITE, &made, error);

	if (err)
		return err;
	(void)sqlite3_db_config(made, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
	/* They are made by the first statement. */
	(void)db_number(made, "PRAGMA user_version");
	(void)sqlite3_close(made);
	return 0;
}

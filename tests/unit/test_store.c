/*
 * tests/unit/test_store.c: tests the store: finding tables, damage, foreign files, older schemas,
 * several processes.
 */
#include "agent/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/log.h"
#include "agent/store/db.h"
#include "agent/store/tables/keeper.h"
#include "schema/table_blob.h"
#include "tests/check.h"

static char folder[] = "/tmp/offwind-store-XXXXXX";
static char db_name[64], program[64];

static void remove_db(void)
{
	char name[80];

	(void)unlink(db_name);
	(void)snprintf(name, sizeof(name), "%s-wal", db_name);
	(void)unlink(name);
	(void)snprintf(name, sizeof(name), "%s-shm", db_name);
	(void)unlink(name);
}

/* A copy of this program that is old enough to be identified by its inode. */
static void make_program(void)
{
	char buffer[65536];
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to;
	ssize_t n;

	(void)snprintf(program, sizeof(program), "%s/program", folder);
	to = open(program, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
	while ((n = read(from, buffer, sizeof(buffer))) > 0)
		CHECK(write(to, buffer, (size_t)n) == n, "copy");
	close(from);
	close(to);
}

static struct uw_object *open_program(const char *path, struct store_file *file)
{
	struct uw_object *object = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && uw_object_open(fd, 0, &object) == 0, "the program");
	store_file_of(fd, 0, path, file);
	close(fd);
	return object;
}

static bool same_table(struct uw_object *a, struct uw_object *b)
{
	size_t m, n;
	const void *x = uw_object_compiled(a, &m), *y = uw_object_compiled(b, &n);

	return x && y && m == n && !memcmp(x, y, n);
}

static void test_what_was_kept_is_found(void)
{
	struct store_counters c;
	struct store_file file;
	struct uw_object *first = open_program(program, &file), *second, *third;
	struct store *store;
	uint64_t start, end;

	CHECK(file.known, "old enough");
	CHECK(store_open(db_name, &store) == 0, "opens");
	CHECK(store_find(store, first, &file) == -ENOENT, "nothing yet");
	CHECK(store_keep(store, first, &file) == 0, "kept");
	CHECK(store_keep(store, first, &file) == 0, "once more");
	store_counters(store, &c);
	CHECK(c.missing == 1 && c.built == 1 && c.stored == 1 && !c.failed,
	      "compiled and kept once");
	store_close(store);

	second = open_program(program, &file);
	CHECK(store_open(db_name, &store) == 0, "opens again");
	CHECK(store_find(store, second, &file) == 0 && same_table(first, second), "the same table");
	(void)uw_object_function(second, 0x5000, &start, &end);
	CHECK(uw_object_parsed(second) == 0, "nothing was parsed");
	/* The same contents in a file that the store does not know. */
	third = open_program(program, &file);
	file.ino++;
	CHECK(store_find(store, third, &file) == 0 && same_table(first, third), "by contents");
	store_counters(store, &c);
	CHECK(c.found == 2 && !c.missing && !c.built, "found");
	store_close(store);
	CHECK(db_number(NULL, "") == 0, "no database has no numbers");
	uw_object_put(first);
	uw_object_put(second);
	uw_object_put(third);
}

static void test_new_files_are_known_by_contents_alone(void)
{
	struct store_file file;
	int fd;

	store_file_of(-1, 0, "x", &file);
	CHECK(!file.known, "no file");
	fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		fd = memfd_create("new", MFD_CLOEXEC);
	store_file_of(fd, 0, "x", &file);
	CHECK(!file.known, "written a moment ago");
	close(fd);
}

static int sql(const char *text)
{
	sqlite3 *db;
	int rc = sqlite3_open(db_name, &db);

	if (rc == SQLITE_OK)
		rc = sqlite3_exec(db, text, NULL, NULL, NULL);
	if (rc != SQLITE_OK)
		(void)printf("%s: %s\n", text, sqlite3_errmsg(db));
	sqlite3_close(db);
	return rc;
}

/*
 * Whatever is wrong in a row: the table is not used, it is deleted, and the next run makes it
 * again.
 */
static void test_damage_is_dropped_and_rebuilt(void)
{
	static const char *const damages[] = {
		"UPDATE tables SET rules = zeroblob(100)",
		"UPDATE tables SET rules = substr(rules, 1, length(rules) - 1)",
		"UPDATE tables SET rules = CAST(substr(rules, 1, 1000) || x'00' || substr(rules, "
		"1002) AS BLOB)",
		"UPDATE tables SET procs = CAST(substr(procs, 1, 100) || x'ff' || substr(procs, "
		"102) AS BLOB)",
		"UPDATE tables SET procs = NULL, rules = NULL",
	};
	struct store_counters c;
	struct store_file file;
	struct uw_object *good = open_program(program, &file), *o;
	struct store *store;

	CHECK(uw_object_compile(good) == 0, "compiles");
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		CHECK(sql(damages[i]) == SQLITE_OK, damages[i]);
		o = open_program(program, &file);
		CHECK(store_open(db_name, &store) == 0, damages[i]);
		CHECK(store_find(store, o, &file) == -ENOENT, damages[i]);
		store_counters(store, &c);
		CHECK(c.damaged == 1 && c.missing == 1 && !c.failed, damages[i]);
		CHECK(store_keep(store, o, &file) == 0 && same_table(good, o), damages[i]);
		store_counters(store, &c);
		CHECK(c.stored == 1, damages[i]);
		store_close(store);
		uw_object_put(o);
	}
	/*
	 * Rows that lead to another object's table: the row's check fails, or the table's own
	 * identity.
	 */
	CHECK(sql("UPDATE files SET \"check\" = \"check\" + 1") == SQLITE_OK, "check");
	o = open_program(program, &file);
	CHECK(store_open(db_name, &store) == 0 && store_find(store, o, &file) == 0, "by contents");
	store_close(store);
	uw_object_put(o);
	CHECK(sql("UPDATE objects SET identity = zeroblob(32), src_hash = src_hash + 1") ==
		      SQLITE_OK,
	      "hash");
	o = open_program(program, &file);
	CHECK(store_open(db_name, &store) == 0 && store_find(store, o, &file) == -ENOENT,
	      "another");
	CHECK(store_keep(store, o, &file) == 0, "beside it");
	store_close(store);
	uw_object_put(o);
	uw_object_put(good);
}

static void test_other_builders_are_left_alone(void)
{
	struct store_counters c;
	struct store_file file;
	struct uw_object *o = open_program(program, &file);
	struct store *store;

	CHECK(sql("UPDATE tables SET builder = builder + 1") == SQLITE_OK, "of another version");
	CHECK(store_open(db_name, &store) == 0 && store_find(store, o, &file) == -ENOENT &&
		      store_keep(store, o, &file) == 0,
	      "not for us");
	store_counters(store, &c);
	CHECK(!c.damaged && c.stored == 1, "both are there");
	store_close(store);
	uw_object_put(o);
}

/* ---- files that are no store -------------------------------------------------------- */

static int opens(int *err_code, char error[DB_ERROR_SIZE])
{
	sqlite3 *db = NULL;

	*err_code = db_open(db_name, &db_store, DB_WRITE, &db, error);
	sqlite3_close(db);
	return *err_code;
}

static void test_foreign_files_are_refused(void)
{
	char error[DB_ERROR_SIZE], version[64];
	struct store *store;
	int err, fd;

	remove_db();
	CHECK(sql("CREATE TABLE t (x)") == SQLITE_OK, "somebody's database");
	CHECK(opens(&err, error) == -EBADMSG && strstr(error, "of another program") &&
		      strstr(error, db_name),
	      error);
	remove_db();
	fd = open(db_name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(write(fd, "This is not a database, it is a text of some length.", 52) == 52, "text");
	close(fd);
	CHECK(opens(&err, error) == -EBADMSG && strstr(error, db_name), error);
	CHECK(store_open(db_name, &store) == -EBADMSG && !store, "profiling goes on without");
	remove_db();
	CHECK(mkdir(db_name, 0700) == 0 && opens(&err, error) == -EBADMSG &&
		      strstr(error, "is not a file"),
	      error);
	CHECK(rmdir(db_name) == 0, "away");
	CHECK(opens(&err, error) == 0, "a new one");
	(void)snprintf(version, sizeof(version), "PRAGMA user_version = %d",
		       db_schema_version(&db_store) + 1);
	CHECK(sql(version) == SQLITE_OK && opens(&err, error) == -ENOTSUP &&
		      strstr(error, "newer offwind"),
	      error);
	remove_db();
}

/* A store of the first version, with contents. */
static void test_older_schemas_are_upgraded(void)
{
	char error[DB_ERROR_SIZE], *text = NULL;
	size_t room = 0;
	FILE *file = fopen("schema/store_1.sql", "re");
	sqlite3 *db = NULL;

	CHECK(file && getdelim(&text, &room, '\0', file) > 0, "the first schema");
	if (file)
		(void)fclose(file);
	CHECK(text && sql(text) == SQLITE_OK, "made");
	free(text);
	CHECK(sql("PRAGMA user_version = 1; PRAGMA application_id = 1331119170;"
		  "INSERT INTO objects VALUES (1, x'aa', 2, 3, 62, 'old', 4, 5, 6, 7);"
		  "INSERT INTO tables VALUES (1, 1, 3, 5, 6, 0, 0, 0, 0, NULL, x'00');"
		  "INSERT INTO files VALUES (1, 2, 0, 4, 5, 6, 1, 7);"
		  "INSERT INTO settings VALUES ('budget', 77)") == SQLITE_OK,
	      "in use");
	CHECK(db_open(db_name, &db_store, DB_READ, &db, error) == -ENOTSUP &&
		      strstr(error, "older offwind"),
	      "readers do not change it");
	CHECK(db_open(db_name, &db_store, DB_WRITE, &db, error) == 0, error);
	CHECK(db_number(db, "PRAGMA user_version") == db_schema_version(&db_store),
	      "as if made today");
	CHECK(db_number(db, "SELECT value FROM settings") == 77, "its settings are there");
	CHECK(db_number(db, "SELECT (SELECT count(*) FROM objects) + (SELECT count(*) FROM tables)"
			    " + (SELECT count(*) FROM files)") == 0,
	      "what was known by a hash that can be forged is not");
	CHECK(db_number(db, "SELECT count(*) FROM pragma_table_list WHERE schema = 'main' AND"
			    " type = 'table' AND strict AND name NOT LIKE 'sqlite%'") == 9,
	      "all tables are strict");
	sqlite3_close(db);
	/* An obstacle in one step leaves everything as it was. */
	remove_db();
	CHECK(sql("PRAGMA user_version = 1; PRAGMA application_id = 1331119170;"
		  "CREATE TABLE symbols (x)") == SQLITE_OK,
	      "a schema that cannot be upgraded");
	CHECK(db_open(db_name, &db_store, DB_WRITE, &db, error) < 0 && strstr(error, "symbols"),
	      error);
	CHECK(sql("SELECT x FROM symbols") == SQLITE_OK, "is as it was");
	remove_db();
}

static struct {
	const char *at; /* a statement that contains this text */
	int go;		/* the other process waits until this is closed; -1: it was closed */
	pid_t pid;
	int status; /* -1: it goes on */
} other;

/* Before the statement, let another process run long enough to do all of its work. */
static int let_in(unsigned int what, void *ctx, void *statement, void *text)
{
	const struct timespec moment = { .tv_nsec = 10000000 };

	(void)what;
	(void)ctx;
	(void)statement;
	if (other.go < 0 || !strstr(text, other.at))
		return 0;
	(void)close(other.go);
	other.go = -1;
	for (int i = 0; i < 10 && waitpid(other.pid, &other.status, WNOHANG) == 0; i++)
		(void)nanosleep(&moment, NULL);
	return 0;
}

static int watch(sqlite3 *db, char **error, const void *api)
{
	(void)error;
	(void)api;
	return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, let_in, NULL);
}

/* A file may get tables between the check of its header and the check for tables. */
static void test_one_begins_while_another_does(void)
{
	static const char *const statements[] = { "application_id", "sqlite_schema",
						  "BEGIN IMMEDIATE" };
	char error[DB_ERROR_SIZE] = "", byte;
	int go[2];

	for (size_t i = 0; i < sizeof(statements) / sizeof(statements[0]); i++) {
		sqlite3 *db = NULL;

		remove_db();
		CHECK(pipe(go) == 0, "a pipe");
		(void)fflush(stdout);
		other.pid = fork();
		if (!other.pid) {
			(void)close(go[1]);
			(void)!read(go[0], &byte, 1);
			_exit(db_open(db_name, &db_store, DB_WRITE, &db, error) != 0);
		}
		(void)close(go[0]);
		other.go = go[1];
		other.at = statements[i];
		other.status = -1;
		CHECK(sqlite3_auto_extension((void (*)(void))(uintptr_t)watch) == SQLITE_OK,
		      "watched");
		CHECK(db_open(db_name, &db_store, DB_WRITE, &db, error) == 0, error);
		sqlite3_reset_auto_extension();
		CHECK(other.go < 0, statements[i]);
		if (other.status == -1)
			(void)waitpid(other.pid, &other.status, 0);
		CHECK(other.status == 0, "the other one");
		CHECK(db_number(db, "PRAGMA user_version") == db_schema_version(&db_store),
		      "both have it");
		(void)sqlite3_close(db);
	}
}

static void test_processes_share_it(void)
{
	struct store_file file;
	struct uw_object *o = open_program(program, &file);
	int status, good = 0;

	remove_db();
	(void)fflush(stdout);
	for (int i = 0; i < 8; i++) {
		if (!fork()) {
			struct store *store;
			int err = store_open(db_name, &store);

			/* There is no store yet: all processes make it, and put the same in. */
			if (err) {
				(void)printf("cannot open: %s\n", strerror(-err));
			} else {
				(void)store_find(store, o, &file);
				err = store_keep(store, o, &file);
				if (err)
					(void)printf("cannot keep: %s\n", strerror(-err));
				store_close(store);
			}
			(void)fflush(stdout);
			_exit(err != 0);
		}
	}
	while (wait(&status) > 0)
		good += status == 0;
	CHECK(good == 8, "all of them");
	uw_object_put(o);
}

static int64_t count(const char *text)
{
	sqlite3 *db;
	int64_t n = -1;

	if (sqlite3_open(db_name, &db) == SQLITE_OK)
		n = db_number(db, text);
	sqlite3_close(db);
	return n;
}

static void test_budget_evicts_the_least_used(void)
{
	struct store_counters c;
	struct store_file file;
	struct uw_object *o = open_program(program, &file);
	struct store *store;

	CHECK(count("SELECT count(*) FROM tables") == 1, "stored once by eight");
	CHECK(sql("UPDATE objects SET last_used = 5") == SQLITE_OK, "long ago");
	CHECK(sql("INSERT INTO objects SELECT 77, x'aa', 1, 1, machine, 'oldest', 1, 4, 4, 9, 0, "
		  "zeroblob(32) FROM objects;"
		  "INSERT INTO tables SELECT 99, 77, version, builder, 6, 0, 0, 0, 0, NULL, "
		  "zeroblob(1000000)"
		  " FROM tables") == SQLITE_OK,
	      "a second");
	CHECK(store_open(db_name, &store) == 0 && store_shrink(store, 600 << 10) == 0, "shrinks");
	store_counters(store, &c);
	CHECK(c.evicted == 1, "one went");
	store_close(store);
	CHECK(count("SELECT count(*) FROM objects WHERE path != 'oldest'") == 1, "the other stays");
	CHECK(count("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size") <=
		      600 << 10,
	      "the file is smaller");
	CHECK(count("SELECT count(*) FROM pragma_foreign_key_check") == 0, "nothing hangs loose");
	uw_object_put(o);
}

static void test_a_thread_keeps_them(void)
{
	struct store_counters c;
	struct store_file file;
	struct uw_object *o = open_program(program, &file);
	struct keeper *keeper = NULL;
	struct store *store;
	size_t size;

	remove_db();
	CHECK(store_open(db_name, &store) == 0 && keeper_new(store, &keeper) == 0, "a keeper");
	CHECK(keeper_add(keeper, o, &file) == 0 && keeper_add(keeper, o, &file) == 0, "twice");
	do {
		(void)usleep(1000);
		store_counters(store, &c);
	} while (!c.failed && c.stored + c.found < 2);
	CHECK(uw_object_compiled(o, &size) != NULL, "compiled");
	keeper_free(keeper);
	CHECK(c.stored == 1 && c.found == 1, "kept, then found");
	store_close(store);
	uw_object_put(o);
	/* Without a store it compiles just the same. */
	o = open_program(program, &file);
	CHECK(keeper_new(NULL, &keeper) == 0 && keeper_add(keeper, o, &file) == 0, "no store");
	while (!uw_object_compiled(o, &size))
		(void)usleep(1000);
	keeper_free(keeper);
	uw_object_put(o);
}

struct wanting {
	struct store *store;
	struct uw_object *object;
	atomic_bool done;
};

static void *want(void *ctx)
{
	struct wanting *w = ctx;
	const struct store_file file = { .path = "/x" };

	for (int i = 0; i < 20000; i++)
		store_want(w->store, w->object, &file);
	w->done = true;
	return NULL;
}

static void test_work_goes_on_while_others_want(void)
{
	struct store_file file;
	struct wanting w = { .object = open_program(program, &file) };
	uint64_t start, end;
	pthread_t thread;
	bool begun;

	remove_db();
	CHECK(store_open(db_name, &w.store) == 0, "open");
	(void)uw_object_function(w.object, (uint64_t)1 << 40, &start, &end);
	begun = !pthread_create(&thread, NULL, want, &w);
	CHECK(begun && uw_object_parsed(w.object), "another thread, and what it wants");
	while (begun && !w.done)
		store_work(w.store, 0);
	if (begun)
		(void)pthread_join(thread, NULL);
	store_close(w.store);
	uw_object_put(w.object);
}

struct refusing {
	struct store *store;
	pthread_barrier_t *all;
	int fd;
	bool refused;
};

static void *ask_whether_refused(void *ctx)
{
	struct refusing *r = ctx;

	(void)pthread_barrier_wait(r->all);
	r->refused = store_refuses(r->store, r->fd, 0, program);
	return NULL;
}

/* The list is read when it is first needed, perhaps by several threads at once. */
static void test_what_is_refused_is_refused_on_all_threads(void)
{
	enum { THREADS = 4, ROUNDS = 10 };
	char sql[512];
	struct store_file file;
	struct uw_object *object = open_program(program, &file);
	int fd = open(program, O_RDONLY | O_CLOEXEC);
	struct store *store;
	sqlite3 *db;

	remove_db();
	CHECK(!store_open(db_name, &store) && !store_quarantine(store, NULL, &file, "a reason"),
	      "a file in quarantine");
	store_close(store);
	(void)snprintf(sql, sizeof(sql),
		       "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000)"
		       " INSERT INTO quarantine (build_id, path, builder, file, reason, since,"
		       " crashes) SELECT x'', '/' || i, %u, i, 'another', 0, 1 FROM n",
		       TABLE_BUILDER);
	CHECK(sqlite3_open(db_name, &db) == SQLITE_OK &&
		      sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK,
	      "and many others");
	(void)sqlite3_close(db);
	for (int round = 0; round < ROUNDS; round++) {
		pthread_barrier_t all;
		pthread_t threads[THREADS];
		struct refusing asked[THREADS];
		bool refused = true;

		CHECK(!store_open(db_name, &store), "open");
		(void)pthread_barrier_init(&all, NULL, THREADS);
		for (int i = 0; i < THREADS; i++) {
			asked[i] = (struct refusing){ store, &all, fd, false };
			if (pthread_create(&threads[i], NULL, ask_whether_refused, &asked[i]))
				abort();
		}
		for (int i = 0; i < THREADS; i++) {
			(void)pthread_join(threads[i], NULL);
			refused = refused && asked[i].refused;
		}
		CHECK(refused, "each thread");
		(void)pthread_barrier_destroy(&all);
		store_close(store);
	}
	(void)close(fd);
	uw_object_put(object);
}

static void test_paths(void)
{
	char *path = NULL;

	CHECK(db_path("", &path) == -ENOENT, "none is wanted");
	CHECK(setenv("OFFWIND_DB", "", 1) == 0 && db_path(NULL, &path) == -ENOENT, "nor here");
	CHECK(setenv("OFFWIND_DB", "/a/b", 1) == 0 && db_path(NULL, &path) == 0 &&
		      !strcmp(path, "/a/b"),
	      "OFFWIND_DB");
	free(path);
	CHECK(db_path("/c", &path) == 0 && !strcmp(path, "/c"), "given");
	free(path);
	CHECK(unsetenv("OFFWIND_DB") == 0 && db_path(NULL, &path) == 0, "by default");
	if (!geteuid())
		CHECK(!strcmp(path, "/var/lib/offwind/offwind.db"), "root's");
	free(path);
}

int main(void)
{
	char command[64];

	if (!mkdtemp(folder))
		return 1;
	(void)snprintf(db_name, sizeof(db_name), "%s/made/offwind.db", folder);
	make_program();
	log_quiet(true);
	(void)sleep(3); /* until the program is old enough to be known by its inode */
	test_what_was_kept_is_found();
	test_new_files_are_known_by_contents_alone();
	test_damage_is_dropped_and_rebuilt();
	test_other_builders_are_left_alone();
	test_foreign_files_are_refused();
	test_older_schemas_are_upgraded();
	test_one_begins_while_another_does();
	test_processes_share_it();
	test_budget_evicts_the_least_used();
	test_a_thread_keeps_them();
	test_work_goes_on_while_others_want();
	test_what_is_refused_is_refused_on_all_threads();
	test_paths();
	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	if (system(command))
		(void)printf("%s: left there\n", folder);
	return check_done();
}

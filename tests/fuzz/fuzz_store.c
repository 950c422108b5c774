/*
 * tests/fuzz/fuzz_store.c: fuzzes the store with a whole database that somebody else wrote. Byte 0
 * chooses what is done with the database, byte 1 which query is asked. Then come two bytes with the
 * size of an ELF file, that file, whose unwind information and symbols are looked up, and the
 * database. One byte or none stands for a new store, which is made once and copied for each input: to make a schema takes
 * several times as long as all the rest.
 */
#include "agent/store/query/sql.h"
#include "agent/store/session.h"
#include "agent/store/store.h"
#include "tests/fuzz/sqlite_memory.h"
#include "tests/fuzz/store_use.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 4

static const char *const queries[] = {
	"SELECT * FROM objects; SELECT * FROM files; SELECT * FROM settings",
	"SELECT id, version, built, n_rows, n_procs, hex(procs), hex(rules) FROM tables",
	"SELECT * FROM quarantine; SELECT * FROM building; SELECT * FROM missing",
	"SELECT * FROM symbols; SELECT * FROM windows",
	"SELECT * FROM objects, unwind_rows(objects.id)",
	"SELECT * FROM objects, unwind_fdes(objects.path)",
	"SELECT * FROM unwind_gaps('plain')",
	"SELECT *, words, bytes_read FROM unwind_rows('plain', 0x1008)",
	"SELECT * FROM unwind_rows('plain') WHERE start >= 0x1000 AND \"end\" < 0x1010",
	"SELECT * FROM unwind_fdes('plain', 4100); PRAGMA integrity_check",
};

#define N_QUERIES (sizeof(queries) / sizeof(queries[0]))

static char path[64];
static FILE *null;
static uint8_t *new_store;
static size_t new_size;

static void remove_files(void)
{
	static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };
	char name[sizeof(path) + 16];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		(void)unlink(name);
	}
}

static void write_file(const uint8_t *data, size_t size)
{
	int fd;

	remove_files();
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd))
		abort();
}

/* Make a store from an empty file. Its pages become small, so that less is copied. */
static void make_new_store(void)
{
	struct store *store;
	struct stat st;
	sqlite3 *db;
	int fd;

	write_file(NULL, 0);
	if (store_open(path, &store))
		abort();
	store_close(store);
	if (sqlite3_open(path, &db) ||
	    db_exec(db, "PRAGMA journal_mode = DELETE; PRAGMA page_size = 1024; VACUUM;"
			"PRAGMA journal_mode = WAL") ||
	    sqlite3_close(db))
		abort();
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		abort();
	new_size = (size_t)st.st_size;
	new_store = malloc(new_size);
	if (!new_store || read(fd, new_store, new_size) != st.st_size || close(fd))
		abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	(void)snprintf(path, sizeof(path), "/dev/shm/fuzz_store-%d", (int)getpid());
	(void)atexit(remove_files);
	null = fopen("/dev/null", "we");
	if (!null)
		abort();
	stderr = null; /* libFuzzer has its own way to standard error */
	sqlite_memory_use();
	make_new_store();
	return 0;
}

static void ask(enum sql_format format, const char *sql)
{
	char error[DB_ERROR_SIZE] = "";
	sqlite3 *db;
	int err = sql_open(path, &db, error);

	if (err) {
		if (!error[0])
			abort();
		return;
	}
	err = sql_print(db, sql, format, null, error);
	if (err && !error[0])
		abort();
	(void)sqlite3_close(db);
}

/* The file that the database says it knows first: so it is found, unless its row is damaged. */
static struct store_file known_file(sqlite3 *db)
{
	struct store_file file = { .known = true, .vouched = true, .path = "/bin/plain" };
	sqlite3_stmt *row = NULL;

	if (!sqlite3_prepare_v2(
		    db, "SELECT dev, ino, elf_off, size, mtime_ns, ctime_ns, uid FROM files", -1,
		    &row, NULL) &&
	    sqlite3_step(row) == SQLITE_ROW) {
		file.dev = (uint64_t)sqlite3_column_int64(row, 0);
		file.ino = (uint64_t)sqlite3_column_int64(row, 1);
		file.elf_off = (uint64_t)sqlite3_column_int64(row, 2);
		file.size = (uint64_t)sqlite3_column_int64(row, 3);
		file.mtime_ns = sqlite3_column_int64(row, 4);
		file.ctime_ns = sqlite3_column_int64(row, 5);
		file.uid = (uint64_t)sqlite3_column_int64(row, 6);
	}
	(void)sqlite3_finalize(row);
	return file;
}

static void use(bool changes, const uint8_t *elf, size_t size)
{
	struct store_file file;
	struct uw_object *object;
	struct store *store;

	if (uw_object_open_image(elf, size, &object))
		return;
	if (!store_open(path, &store)) {
		file = known_file(store->db);
		if (changes)
			fill(store, object, &file, elf, size);
		look_up(store, object, &file);
		if (changes)
			clear(store, object, &file);
		store_close(store);
	}
	uw_object_put(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t n;

	if (size < HEAD)
		return 0;
	n = (size_t)data[2] | (size_t)data[3] << 8;
	if (n > size - HEAD)
		return 0;
	if (size - HEAD - n > 1) /* SQLite takes a file of one byte for an empty one */
		write_file(data + HEAD + n, size - HEAD - n);
	else
		write_file(new_store, new_size);
	if (data[0] < 128)
		ask((enum sql_format)(data[0] % (SQL_JSON + 1)), queries[data[1] % N_QUERIES]);
	else
		use(data[0] & 1, data + HEAD, n);
	return 0;
}

/*
 * tests/fuzz/fuzz_store.c: fuzzes the store with a whole database that somebody else wrote. Byte 0
 * chooses what is done with the database, byte 1 which query is asked. Then come two bytes with the
 * size of an ELF file, that file, whose unwind information and symbols are looked up, and the
 * database.
 */
#include "agent/store/query/sql.h"
#include "agent/store/store.h"
#include "symbolizer/symbolizer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
static volatile uint64_t sink; /* all bytes that are returned must be readable */

static void remove_files(void)
{
	static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };
	char name[sizeof(path) + 16];

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		(void)unlink(name);
	}
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
	return 0;
}

static void write_file(const uint8_t *data, size_t size)
{
	int fd;

	remove_files();
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd))
		abort();
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
static struct store_file known_file(void)
{
	struct store_file file = { .known = true, .vouched = true, .path = "/bin/plain" };
	char error[DB_ERROR_SIZE];
	sqlite3_stmt *row = NULL;
	sqlite3 *db;

	if (db_open(path, &db_store, DB_READ, &db, error))
		return file;
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
	(void)sqlite3_close(db);
	return file;
}

static void touch_object(struct uw_object *object)
{
	const struct uw_segment *segments;
	uint64_t start, end;
	size_t n;

	segments = uw_object_segments(object, &n);
	for (size_t i = 0; i < n && i < 4; i++)
		for (uint64_t at = 0; at < 64; at += 8)
			if (!uw_object_function(object, segments[i].vaddr + at, &start, &end))
				sink += end - start;
}

static void touch_symbols(const struct sym_table *table)
{
	struct sym_symbol s;

	for (size_t i = 0; i < 64 && !sym_table_at(table, i, &s); i++)
		sink += strlen(s.name);
	for (uint64_t at = 0x1000; at < 0x1100; at += 16)
		if (!sym_table_find(table, at, &s))
			sink += strlen(s.name);
}

static void look_up(struct store *store, struct uw_object *object, const struct store_file *file)
{
	const struct uw_build_id *id = uw_object_build_id(object);
	struct sym_table *table = NULL;
	struct sym_lines *lines = NULL;
	struct uw_object *gone = NULL;

	if (!store_find_parts(store, object, file))
		touch_object(object);
	if (!store_find_gone(store, id, &gone))
		touch_object(gone);
	if (!store_find_symbols(store, file, NULL, id, &table) ||
	    !store_find_symbols(store, NULL, NULL, id, &table))
		touch_symbols(table);
	if (!store_find_lines(store, file, id, &lines))
		sink += sym_lines_size(lines);
	sink += store_is_missing(store, id) + store_is_quarantined(store, id, file);
	sym_lines_free(lines);
	sym_table_free(table);
	uw_object_put(gone);
}

static void fill(struct store *store, struct uw_object *object, const struct store_file *file,
		 const uint8_t *elf, size_t size)
{
	struct sym_table *table;

	(void)store_keep(store, object, file);
	if (!sym_table_open_image(elf, size, &table))
		store_want_symbols(store, file, NULL, uw_object_build_id(object), table);
	store_work(store, UINT64_MAX);
}

static void clear(struct store *store, struct uw_object *object, const struct store_file *file)
{
	uint64_t n;

	(void)store_quarantine(store, uw_object_build_id(object), file, "reason");
	store_missing(store, uw_object_build_id(object));
	(void)store_set_budget(store, 1 << 20);
	(void)store_forget(store, 1000, &n);
	(void)store_shrink(store, 1);
}

static void use(bool changes, const uint8_t *elf, size_t size)
{
	const struct store_file file = known_file();
	struct uw_object *object;
	struct store *store;

	if (uw_object_open_image(elf, size, &object))
		return;
	if (changes && !store_open(path, &store)) {
		fill(store, object, &file, elf, size);
		store_close(store);
	}
	if (!store_open(path, &store)) {
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
	write_file(data + HEAD + n, size - HEAD - n);
	if (data[0] < 128)
		ask((enum sql_format)(data[0] % (SQL_JSON + 1)), queries[data[1] % N_QUERIES]);
	else
		use(data[0] & 1, data + HEAD, n);
	return 0;
}

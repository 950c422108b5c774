/*
 * tests/fuzz/fuzz_store_rows.c: fuzzes the store with a sound database in which somebody else changed
 * values. The database and the connections to it stay open from input to input, so that none is
 * created, parsed or upgraded for each (fuzz_store.c does that). Byte 0 says what is done with the
 * database. Then come changes: a byte for the column, a byte whose two high bits are a kind and
 * whose others are a length, and the value; of a patch, first its place in two bytes. Columns take
 * values of every type, and patched blobs get right checksums.
 */
#include "agent/store/query/sql.h"
#include "agent/store/session.h"
#include "schema/lines_blob.h"
#include "tests/fuzz/memory_database.h"
#include "tests/fuzz/sqlite_memory.h"
#include "tests/fuzz/store_use.h"
#include "tests/fuzz/stored.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LOOK = 1, FILL = 2, CLEAR = 4, ASK = 8 }; /* the four high bits: what is asked, and how */
enum { NUMBER, TEXT, BLOB, PATCH };

static const char *const columns[] = {
	"UPDATE OR REPLACE objects SET build_id = ?1",
	"UPDATE OR REPLACE objects SET src_size = ?1",
	"UPDATE OR REPLACE objects SET src_hash = ?1",
	"UPDATE OR REPLACE objects SET machine = ?1",
	"UPDATE OR REPLACE objects SET path = ?1",
	"UPDATE OR REPLACE objects SET file_size = ?1",
	"UPDATE OR REPLACE objects SET first_used = ?1",
	"UPDATE OR REPLACE objects SET last_used = ?1",
	"UPDATE OR REPLACE objects SET uses = ?1",
	"UPDATE OR REPLACE objects SET owner = ?1",
	"UPDATE OR REPLACE objects SET identity = ?1",
	"UPDATE OR REPLACE files SET dev = ?1",
	"UPDATE OR REPLACE files SET size = ?1",
	"UPDATE OR REPLACE files SET uid = ?1",
	"UPDATE OR REPLACE files SET mtime_ns = ?1",
	"UPDATE OR REPLACE files SET object = ?1",
	"UPDATE OR REPLACE files SET \"check\" = ?1",
	"UPDATE OR REPLACE tables SET object = ?1",
	"UPDATE OR REPLACE tables SET version = ?1",
	"UPDATE OR REPLACE tables SET builder = ?1",
	"UPDATE OR REPLACE tables SET n_rows = ?1",
	"UPDATE OR REPLACE tables SET n_procs = ?1",
	"UPDATE OR REPLACE tables SET size = ?1",
	"UPDATE OR REPLACE tables SET procs = ?1",
	"UPDATE OR REPLACE tables SET rules = ?1",
	"UPDATE OR REPLACE symbols SET reader = ?1 WHERE reader < 256",
	"UPDATE OR REPLACE symbols SET reader = ?1 WHERE reader > 256",
	"UPDATE OR REPLACE symbols SET file_size = ?1",
	"UPDATE OR REPLACE symbols SET uid = ?1",
	"UPDATE OR REPLACE symbols SET mtime_ns = ?1",
	"UPDATE OR REPLACE symbols SET build_id = ?1",
	"UPDATE OR REPLACE symbols SET beside = ?1",
	"UPDATE OR REPLACE symbols SET owner = ?1",
	"UPDATE OR REPLACE symbols SET path = ?1",
	"UPDATE OR REPLACE symbols SET last_used = ?1",
	"UPDATE OR REPLACE symbols SET n = ?1",
	"UPDATE OR REPLACE symbols SET size = ?1",
	"UPDATE OR REPLACE symbols SET symbols = ?1 WHERE reader < 256",
	"UPDATE OR REPLACE symbols SET symbols = ?1 WHERE reader > 256",
	"UPDATE OR REPLACE quarantine SET build_id = ?1",
	"UPDATE OR REPLACE quarantine SET path = ?1",
	"UPDATE OR REPLACE quarantine SET reason = ?1",
	"UPDATE OR REPLACE quarantine SET since = ?1",
	"UPDATE OR REPLACE quarantine SET builder = ?1",
	"UPDATE OR REPLACE quarantine SET file = ?1",
	"UPDATE OR REPLACE quarantine SET contents = ?1",
	"UPDATE OR REPLACE building SET build_id = ?1",
	"UPDATE OR REPLACE building SET pid = ?1",
	"UPDATE OR REPLACE building SET begun = ?1",
	"UPDATE OR REPLACE missing SET build_id = ?1",
	"UPDATE OR REPLACE missing SET since = ?1",
	"UPDATE OR REPLACE settings SET value = ?1",
};

#define N_COLUMNS (sizeof(columns) / sizeof(columns[0]))

static const char *const queries[] = {
	"SELECT * FROM objects; SELECT * FROM files; SELECT * FROM settings",
	"SELECT id, version, built, n_rows, n_procs, hex(procs), hex(rules) FROM tables",
	"SELECT * FROM quarantine; SELECT * FROM building; SELECT * FROM symbols",
	"SELECT * FROM objects, unwind_rows(objects.id)",
	"SELECT * FROM objects, unwind_fdes(objects.path)",
	"SELECT * FROM unwind_gaps('plain')",
	"SELECT *, words, bytes_read FROM unwind_rows('plain', 0x1208)",
	"SELECT * FROM unwind_fdes('plain', 0x1210)",
};

#define N_QUERIES (sizeof(queries) / sizeof(queries[0]))

/* The blobs that can be patched. */
static struct patched {
	const char *get, *put;
	uint8_t *sound, *bytes;
	size_t size;
	bool lines;
} blobs[] = {
	{ .get = "SELECT procs FROM tables", .put = "UPDATE tables SET procs = ?1" },
	{ .get = "SELECT rules FROM tables", .put = "UPDATE tables SET rules = ?1" },
	{ .get = "SELECT symbols FROM symbols WHERE reader < 256",
	  .put = "UPDATE symbols SET symbols = ?1 WHERE reader < 256" },
	{ .get = "SELECT symbols FROM symbols WHERE reader > 256",
	  .put = "UPDATE symbols SET symbols = ?1 WHERE reader > 256",
	  .lines = true },
};

#define N_BLOBS (sizeof(blobs) / sizeof(blobs[0]))

static char path[64];
static FILE *null;
static struct store *store;
static sqlite3 *changes, *asking;
static sqlite3_stmt *updates[N_COLUMNS], *patches[N_BLOBS];
static struct memory_database sound;

static const struct store_file file = { .known = true,
					.vouched = true,
					.dev = 1,
					.ino = 2,
					.size = 3000,
					.mtime_ns = 4,
					.ctime_ns = 5,
					.owner = STORE_NOBODY,
					.path = "/bin/plain" };

/* ---- an ELF file ----------------------------------------------------------------------------- */

enum {
	FUNCTIONS = 4,
	LENGTH = 64,
	VADDR = 0x1000, /* of the file's first byte */
	NOTE = 0x100,
	FRAMES = 0x140,
	NAMES = 0x1c0,
	CODE = 0x200,
	SYMBOLS = CODE + FUNCTIONS * LENGTH,
	SECTIONS = SYMBOLS + (1 + FUNCTIONS) * sizeof(Elf64_Sym),
	N_SECTIONS = 5,
	ELF_SIZE = SECTIONS + N_SECTIONS * sizeof(Elf64_Shdr)
};

static _Alignas(8) uint8_t elf[ELF_SIZE];

static void put_elf(size_t at, const void *bytes, size_t size)
{
	if (at + size > sizeof(elf))
		abort();
	memcpy(elf + at, bytes, size);
}

/* Some functions, each with an FDE and a symbol. */
static void make_elf(void)
{
	static const uint8_t cie[24] = { 20, 0, 0,    0,  0, 0,	   0,  0, 1, 'z',  'R',
					 0,  1, 0x78, 16, 1, 0x1b, 12, 7, 8, 0x90, 1 };
	static const uint8_t rules[8] = { 0, 0x44, 14, 24 };
	static const char names[] = "\0one\0two\0three\0four\0.eh_frame\0.text";
	static const Elf64_Word name_of[FUNCTIONS] = { 1, 5, 9, 15 };
	static const uint32_t note[] = { 4, 20, NT_GNU_BUILD_ID, 0x554e47, 1, 2, 3, 4, 5 };
	const Elf64_Ehdr head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					       ELFDATA2LSB, EV_CURRENT },
				  .e_type = ET_DYN,
				  .e_machine = EM_X86_64,
				  .e_version = EV_CURRENT,
				  .e_phoff = sizeof(head),
				  .e_shoff = SECTIONS,
				  .e_ehsize = sizeof(head),
				  .e_phentsize = sizeof(Elf64_Phdr),
				  .e_phnum = 2,
				  .e_shentsize = sizeof(Elf64_Shdr),
				  .e_shnum = N_SECTIONS,
				  .e_shstrndx = 4 };
	const Elf64_Phdr segments[] = {
		{ PT_LOAD, PF_R | PF_X, 0, VADDR, VADDR, ELF_SIZE, ELF_SIZE, 8 },
		{ PT_NOTE, PF_R, NOTE, VADDR + NOTE, VADDR + NOTE, sizeof(note), sizeof(note), 4 }
	};
	const Elf64_Shdr sections[N_SECTIONS] = {
		{ .sh_type = SHT_NULL },
		{ .sh_name = 20,
		  .sh_type = SHT_PROGBITS,
		  .sh_flags = SHF_ALLOC,
		  .sh_addr = VADDR + FRAMES,
		  .sh_offset = FRAMES,
		  .sh_size = sizeof(cie) * (1 + FUNCTIONS) + 4 },
		{ .sh_name = 30,
		  .sh_type = SHT_PROGBITS,
		  .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
		  .sh_addr = VADDR + CODE,
		  .sh_offset = CODE,
		  .sh_size = FUNCTIONS * LENGTH },
		{ .sh_type = SHT_SYMTAB,
		  .sh_offset = SYMBOLS,
		  .sh_size = (1 + FUNCTIONS) * sizeof(Elf64_Sym),
		  .sh_link = 4,
		  .sh_entsize = sizeof(Elf64_Sym) },
		{ .sh_type = SHT_STRTAB, .sh_offset = NAMES, .sh_size = sizeof(names) },
	};

	put_elf(0, &head, sizeof(head));
	put_elf(sizeof(head), segments, sizeof(segments));
	put_elf(NOTE, note, sizeof(note));
	put_elf(NAMES, names, sizeof(names));
	put_elf(SECTIONS, sections, sizeof(sections));
	put_elf(FRAMES, cie, sizeof(cie));
	memset(elf + CODE, 0x90, FUNCTIONS * LENGTH);
	for (size_t i = 0; i < FUNCTIONS; i++) {
		const uint32_t at = (uint32_t)(sizeof(cie) * (1 + i)),
			       code = CODE + LENGTH * (uint32_t)i;
		const uint32_t fde[] = { 20, at + 4, code - (FRAMES + at + 8), LENGTH };
		const Elf64_Sym symbol = { .st_name = name_of[i],
					   .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					   .st_shndx = 2,
					   .st_value = VADDR + code,
					   .st_size = LENGTH };

		put_elf(FRAMES + at, fde, sizeof(fde));
		put_elf(FRAMES + at + sizeof(fde), rules, sizeof(rules));
		put_elf(SYMBOLS + (1 + i) * sizeof(symbol), &symbol, sizeof(symbol));
	}
}

/* ---- the database ---------------------------------------------------------------------------- */

static void remove_file(void)
{
	(void)unlink(path);
}

static struct uw_object *open_object(void)
{
	struct uw_object *object;

	if (uw_object_open_image(elf, sizeof(elf), &object))
		abort();
	return object;
}

static void run(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		abort();
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt;

	if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL))
		abort();
	return stmt;
}

/* Let the store write a row into each table. */
static void make_rows(void)
{
	struct uw_object *object = open_object();
	struct sym_lines *lines;

	if (store_open(path, &store) || sym_lines_new(&lines))
		abort();
	fill(store, object, &file, elf, sizeof(elf));
	store_want_lines(store, &file, uw_object_build_id(object), lines);
	store_work(store, INT64_MAX);
	(void)store_set_budget(store, 1 << 20);
	(void)store_quarantine(store, uw_object_build_id(object), &file, "reason");
	store_missing(store, uw_object_build_id(object));
	store_close(store);
	store = NULL;
	uw_object_put(object);
}

static void take_blob(struct patched *b)
{
	sqlite3_stmt *get = prepare(changes, b->get);

	if (sqlite3_step(get) != SQLITE_ROW || sqlite3_column_type(get, 0) != SQLITE_BLOB)
		abort();
	b->size = (size_t)sqlite3_column_bytes(get, 0);
	b->sound = malloc(b->size);
	b->bytes = malloc(b->size);
	if (!b->sound || !b->bytes)
		abort();
	memcpy(b->sound, sqlite3_column_blob(get, 0), b->size);
	(void)sqlite3_finalize(get);
}

/* A database file can have any schema: without STRICT and NOT NULL, columns take any value. */
static void loosen(void)
{
	run(changes,
	    "PRAGMA writable_schema = ON;"
	    "UPDATE sqlite_schema SET sql = replace(replace(sql, 'STRICT, ', ''), 'STRICT',"
	    " '') WHERE type = 'table';"
	    "UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', '') WHERE type = 'table';"
	    "PRAGMA writable_schema = RESET");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char error[DB_ERROR_SIZE] = "";
	int fd;

	(void)argc;
	(void)argv;
	/* The database is in memory; a file of this name must be there. */
	(void)snprintf(path, sizeof(path), "/dev/shm/fuzz_store_rows-%d", (int)getpid());
	(void)atexit(remove_file);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	null = fopen("/dev/null", "we");
	if (fd < 0 || close(fd) || !null)
		abort();
	stderr = null; /* libFuzzer has its own way to standard error */
	make_elf();
	sqlite_memory_use();
	if (sqlite3_vfs_register(sqlite3_vfs_find("memdb"), 1) ||
	    db_open(path, &db_store, DB_WRITE, &changes, error))
		abort();
	make_rows();
	(void)sqlite3_db_config(changes, SQLITE_DBCONFIG_DEFENSIVE, 0, NULL);
	run(changes, "PRAGMA foreign_keys = OFF");
	loosen();
	run(changes, "PRAGMA page_size = 1024; VACUUM"); /* to copy less for each input */
	run(changes, "INSERT INTO building VALUES (1, x'01', '/bin/other', 1, 1, 1, 1, 1)");
	for (size_t i = 0; i < N_BLOBS; i++) {
		take_blob(&blobs[i]);
		patches[i] = prepare(changes, blobs[i].put);
	}
	for (size_t i = 0; i < N_COLUMNS; i++)
		updates[i] = prepare(changes, columns[i]);
	memory_database_take(&sound, changes);
	if (sql_open(path, &asking, error))
		abort();
	return 0;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Make the checksums of a blob right. */
static void seal(struct patched *b)
{
	if (b->lines) {
		struct lines_header h;

		memcpy(&h, b->bytes, sizeof(h));
		h.checksum = 0;
		h.checksum = uw_checksum(b->bytes + sizeof(h), b->size - sizeof(h),
					 uw_checksum(&h, sizeof(h), 0));
		memcpy(b->bytes, &h, sizeof(h));
	} else {
		struct blob_header h, was;

		memcpy(&was, b->sound, sizeof(was));
		memcpy(&h, b->bytes, sizeof(h));
		stored_head(&h, (uint32_t)h.magic, (uint16_t)h.version, (uint16_t)was.header_size,
			    b->size);
		memcpy(b->bytes, &h, sizeof(h));
		stored_seal(b->bytes, &h);
	}
}

static void update(sqlite3_stmt *stmt)
{
	(void)sqlite3_step(stmt); /* it may fail: keys are unique */
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
}

static void change(const uint8_t *data, size_t size)
{
	bool is_patched[N_BLOBS] = { false };

	run(changes, "BEGIN IMMEDIATE");
	while (size >= 2) {
		unsigned int column = data[0], kind = data[1] >> 6;
		size_t n = data[1] & 63u;

		data += 2;
		size -= 2;
		n = n < size ? n : size;
		if (kind == PATCH) {
			struct patched *b = &blobs[column % N_BLOBS];
			size_t at = n < 2 ? 0 : (size_t)data[0] | (size_t)data[1] << 8;

			if (!is_patched[column % N_BLOBS])
				memcpy(b->bytes, b->sound, b->size);
			is_patched[column % N_BLOBS] = true;
			for (size_t i = 2; i < n; i++)
				b->bytes[(at + i - 2) % b->size] = data[i];
		} else {
			sqlite3_stmt *stmt = updates[column % N_COLUMNS];
			uint64_t number = 0;

			memcpy(&number, data, n < 8 ? n : 8);
			if (kind == NUMBER)
				(void)sqlite3_bind_int64(stmt, 1, (int64_t)number);
			else if (kind == TEXT)
				(void)sqlite3_bind_text(stmt, 1, (const char *)data, (int)n,
							SQLITE_STATIC);
			else if (n)
				(void)sqlite3_bind_blob(stmt, 1, data, (int)n, SQLITE_STATIC);
			update(stmt); /* an empty blob: NULL */
		}
		data += n;
		size -= n;
	}
	for (size_t i = 0; i < N_BLOBS; i++)
		if (is_patched[i]) {
			seal(&blobs[i]);
			(void)sqlite3_bind_blob(patches[i], 1, blobs[i].bytes, (int)blobs[i].size,
						SQLITE_STATIC);
			update(patches[i]);
		}
	run(changes, "COMMIT");
}

/* One change by the store itself: the high bits of byte 0 choose it. */
static void clear_one(unsigned int which, struct uw_object *object)
{
	const struct uw_build_id *id = uw_object_build_id(object);
	uint64_t n;

	switch (which % 5) {
	case 0:
		(void)store_quarantine(store, id, &file, "reason");
		break;
	case 1:
		store_missing(store, id);
		break;
	case 2:
		(void)store_set_budget(store, 1 << 20);
		break;
	case 3:
		(void)store_forget(store, 1000, &n);
		break;
	default:
		(void)store_shrink(store, 1);
		break;
	}
}

static void ask(unsigned int how)
{
	char error[DB_ERROR_SIZE] = "";
	int err = sql_print(asking, queries[how % N_QUERIES], how & 8 ? SQL_JSON : 0, null, error);

	if (err && !error[0])
		abort();
}

/* What happened to the last input's database says nothing about the next one's. */
static void begin_again(void)
{
	(void)session_write_used(store);
	if (!store->db || !sqlite3_get_autocommit(store->db) || store->read_only)
		abort();
	store->failures = 0;
	store->blobs.db = store->db;
	store->budget = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uw_object *object;

	if (!size)
		return 0;
	if (!store && store_open(path, &store))
		abort();
	memory_database_restore(&sound);
	change(data + 1, size - 1);
	object = open_object();
	if (data[0] & FILL)
		fill(store, object, &file, elf, sizeof(elf));
	if (data[0] & LOOK)
		look_up(store, object, &file);
	if (data[0] & CLEAR)
		clear_one(data[0] >> 4, object);
	uw_object_put(object);
	begin_again();
	if (data[0] & ASK)
		ask(data[0] >> 4);
	return 0;
}

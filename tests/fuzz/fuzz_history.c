/*
 * tests/fuzz/fuzz_history.c: fuzzes the history with a database that somebody else wrote, in memory. The connections to
 * it stay open from input to input; nothing else that an input left is there for the next one.
 *
 * Byte 0 chooses what is asked for, and what is done after that: windows are added, merged, deleted,
 * stacks are deleted, and SQL is asked. Then come rows, each of a kind (one byte), a number (8 bytes),
 * another one (8), the size of a blob or text (2) and that.
 */
#include "agent/history/history.h"

#include "agent/history/history_internal.h"
#include "agent/history/history_sweep.h"
#include "agent/history/samples.h"
#include "agent/history/vtab.h"
#include "base/bytes.h"
#include "tests/fuzz/memory_database.h"
#include "tests/fuzz/sqlite_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW UINT64_C(1700000000000000000)

enum { LABELS = 1, TIMES = 2, KEEPS = 4, ADDS = 8, ASKS = 64 };
enum { ROWS_MAX = 300, STEPS_MAX = 2000, SUMS = 1000 };

#define DATABASE "file:/history?vfs=memdb"

/* What a row's numbers, a and b, and its blob go into. Small ids are likely to fit together. */
static const char *const inserts[] = {
	"INSERT OR REPLACE INTO windows (start_ns, end_ns, level, n_samples, samples)"
	" VALUES (1 + abs(?1 % 1700000000000000000), 1 + abs(?1 % 1700000000000000000) + abs(?2 %"
	" 100000000000), ?2 & 3, ?2, ?3)",
	"INSERT OR REPLACE INTO node_pages (id, nodes) VALUES (?1 & 3 + 0 * ?2, ?3)",
	"INSERT OR REPLACE INTO node_pages (id, nodes) VALUES (?1 + 0 * ?2, ?3)",
	"INSERT OR REPLACE INTO frame_index (hash, frame) VALUES (?2, ?1 + 0 * ?3)", /* and FRAME */
	"INSERT OR REPLACE INTO frame_pages (id, frames) VALUES (?1 + 0 * ?2, ?3)",
	"INSERT OR REPLACE INTO functions (id, name, system_name, file, start_line, placed, hash)"
	" VALUES (?1, CAST(?3 AS TEXT), '', '', ?2, 0, ?2)",
	"INSERT OR REPLACE INTO modules (id, path, build_id, off, start, \"limit\")"
	" VALUES (?1 & 7, CAST(?3 AS TEXT), '', ?2, ?1, ?2)",
	"INSERT OR REPLACE INTO labels (id, labels, hash) VALUES (?1, CAST(?3 AS TEXT), ?2)",
	"INSERT OR REPLACE INTO types (id, type, unit) VALUES (?1, CAST(?3 AS TEXT), 'x')",
	"INSERT OR REPLACE INTO settings (name, value) VALUES ('bytes', ?1 & 1048575)",
	"INSERT OR REPLACE INTO counters (window, what, reason, n) VALUES (?1 & 7, 'fired', '', "
	"?2)",
};

/* A row of this kind is a frame, of which there are a few: they become the first page. */
enum { FRAME = 3, FRAMES = 16 };

#define N_INSERTS (sizeof(inserts) / sizeof(inserts[0]))

/* Each row is read as far as it goes. */
static const char *const queries[] = {
	"SELECT *, stack(node) FROM samples",
	"SELECT labels, type, sum(value) FROM samples WHERE time_ns > 5 GROUP BY 1, 2",
	"SELECT count(*) FROM samples WHERE time_ns < 1699999000000000000",
	"SELECT function(id + 1), stack(id + 256) FROM node_pages",
	"SELECT count(*) FROM windows JOIN samples ON window = windows.id",
};

#define N_QUERIES (sizeof(queries) / sizeof(queries[0]))

static struct history history;
static sqlite3 *changes; /* rows are written through this connection, without foreign keys */
static sqlite3_stmt *rows[N_INSERTS], *asked[N_QUERIES], *transaction[2]; /* begin, commit */
static struct memory_database sound;					  /* without rows */

static sqlite3 *connect_again(void)
{
	sqlite3 *db;

	if (sqlite3_open_v2(DATABASE, &db,
			    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI, NULL))
		abort();
	(void)sqlite3_extended_result_codes(db, 1);
	return db;
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *stmt;

	if (sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt, NULL))
		abort();
	return stmt;
}

/* What history_open does, without a file. */
static void open_in_memory(void)
{
	changes = connect_again();
	if (db_exec(changes, "PRAGMA page_size = 512; PRAGMA auto_vacuum = INCREMENTAL"))
		abort();
	if (history_kind.prepare(changes))
		abort();
	for (int i = 0; i < history_kind.n_steps; i++)
		if (db_exec(changes, history_kind.steps[i]))
			abort();
	memory_database_take(&sound, changes);
	history = (struct history){ .db = connect_again(), .path = strdup("memory") };
	if (!history.path || history_register(&history, history.db, "main") ||
	    db_exec(history.db, "PRAGMA foreign_keys = ON"))
		abort();
	for (size_t i = 0; i < N_INSERTS; i++)
		rows[i] = prepare(changes, inserts[i]);
	transaction[0] = prepare(changes, "BEGIN");
	transaction[1] = prepare(changes, "COMMIT");
	for (size_t i = 0; i < N_QUERIES; i++)
		asked[i] = prepare(history.db, queries[i]);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	stderr = fopen("/dev/null", "we"); /* libFuzzer has its own way to standard error */
	if (!stderr)
		abort();
	sqlite_memory_use();
	open_in_memory();
	return 0;
}

static void step(sqlite3_stmt *stmt)
{
	if (sqlite3_step(stmt) != SQLITE_DONE)
		abort();
	db_release(stmt);
}

/* Keep a frame, and let it be found. */
static void add_frame(struct history_page_frame *frames, const int64_t *numbers,
		      struct uw_bytes lines)
{
	const int64_t id = (int64_t)(((uint64_t)numbers[0] - 1) & (FRAMES - 1)) + 1;
	struct history_page_frame *f = &frames[id - 1];

	*f = (struct history_page_frame){ .there = true,
					  .key = { .module = numbers[1] & 7,
						   .address = (uint64_t)numbers[0] },
					  .lines = lines };
	db_bind_numbers(rows[FRAME], (const int64_t[]){ id, history_frame_hash(&f->key), 0 }, 3);
	(void)sqlite3_step(rows[FRAME]);
	db_release(rows[FRAME]);
}

/* Write the frames, unless there are none. */
static void insert_frames(const struct history_page_frame *frames)
{
	struct history_bytes page = { .bytes = NULL };
	bool any = false;

	for (size_t i = 0; i < FRAMES; i++)
		any |= frames[i].there;
	if (any && !history_pack_frames(frames, FRAMES, &page)) {
		db_bind_numbers(rows[FRAME + 1], (const int64_t[]){ 0, 0 }, 2);
		db_bind_bytes(rows[FRAME + 1], 3, page.bytes, page.size);
		(void)sqlite3_step(rows[FRAME + 1]);
		db_release(rows[FRAME + 1]);
	}
	free(page.bytes);
}

static void insert_row(struct uw_bytes *b, struct history_page_frame *frames)
{
	size_t kind = uw_bytes_u8(b) % N_INSERTS;
	const int64_t numbers[] = { (int64_t)uw_bytes_u64(b), (int64_t)uw_bytes_u64(b) };
	uint64_t size = uw_bytes_u16(b);
	struct uw_bytes blob = uw_bytes_take(b, size < uw_bytes_left(b) ? size : uw_bytes_left(b));
	sqlite3_stmt *stmt = rows[kind];

	if (kind == FRAME) {
		add_frame(frames, numbers, blob);
		return;
	}
	db_bind_numbers(stmt, numbers, 2);
	if (sqlite3_bind_parameter_count(stmt) == 3)
		db_bind_bytes(stmt, 3, blob.pos, uw_bytes_left(&blob));
	(void)sqlite3_step(stmt); /* constraints may refuse it */
	db_release(stmt);
}

/* Everything that is read must be readable. */
static void read_all(struct history *h, uint8_t mode, struct stacks **out)
{
	const struct history_query q = { .from_ns = mode & 16 ? NOW / 2 : 0,
					 .to_ns = mode & 32 ? NOW : UINT64_MAX,
					 .labels = mode & LABELS,
					 .times = mode & TIMES,
					 .no_threads = mode & 128,
					 .parts = mode & 128 ? 3 : 0 };
	struct history_found found;
	struct stacks *s;

	if (stacks_new(&s))
		abort();
	if (history_read(h, &q, s, &found)) {
		stacks_free(s);
		s = NULL;
	}
	*out = s;
}

/* Ask SQL, as far as it goes. */
static void ask(void)
{
	for (size_t i = 0; i < N_QUERIES; i++) {
		for (int n = 0; n < ROWS_MAX && sqlite3_step(asked[i]) == SQLITE_ROW; n++)
			for (int k = 0; k < sqlite3_column_count(asked[i]); k++)
				(void)sqlite3_column_text(asked[i], k);
		db_release(asked[i]);
	}
}

static void keep(struct history *h)
{
	struct history_limits limits;
	int steps = 0;

	if (history_get_limits(h, &limits))
		return;
	while (history_keep(h, &limits, NOW) == 1)
		if (++steps > STEPS_MAX)
			abort(); /* it does not end */
}

static int see_address(void *ctx, const struct history_address *a)
{
	(void)ctx;
	return !*a->build_id || *a->path == '[' ? -EINVAL : 0;
}

/* Give addresses the names of a profile, and list them. */
static void name_again(struct history *h, const struct stacks *s)
{
	struct history_renamed renamed = { .named = 0 };
	int err = history_rename(h, s, &renamed);

	if (!err &&
	    renamed.named + renamed.better + renamed.same + renamed.not_replaced > s->n_locations)
		abort();
	if (history_addresses(h, 0, UINT64_MAX, see_address, NULL) == -EINVAL)
		abort();
	(void)history_addresses(h, 1, NOW, see_address, NULL);
}

/* All but the connection and its statements is new. */
static void begin_again(struct history *h)
{
	struct history new = {
		.db = h->db, .path = h->path, .sums_max = SUMS, .thread_after = UINT64_MAX
	};

	if (!sqlite3_get_autocommit(h->db))
		abort();
	for (sqlite3_stmt *stmt = NULL; (stmt = sqlite3_next_stmt(h->db, stmt));)
		if (sqlite3_stmt_busy(stmt))
			abort();
	memcpy(new.statements, h->statements, sizeof(new.statements));
	history_clear_nodes(h);
	history_clear_names(h);
	history_nodes_forget(h);
	history_sweep_free(h->sweep);
	history_merge_free(h->merge);
	*h = new;
	memory_database_restore(&sound);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uw_bytes b = uw_bytes_of(data, size);
	uint8_t mode = uw_bytes_u8(&b);
	struct stacks *s = NULL;
	struct history *h = &history;
	struct history_page_frame frames[FRAMES] = { { .there = false } };

	begin_again(h);
	step(transaction[0]);
	for (int i = 0; i < ROWS_MAX && !uw_bytes_done(&b); i++)
		insert_row(&b, frames);
	insert_frames(frames);
	step(transaction[1]);
	read_all(h, mode, &s);
	if (s && mode & ADDS)
		(void)history_add(h, s,
				  &(struct history_window){ .start_ns = 1, .end_ns = NOW / 2 });
	if (s && mode & ADDS)
		name_again(h, s);
	stacks_free(s);
	if (mode & ASKS)
		ask();
	if (mode & KEEPS)
		keep(h);
	read_all(h, mode ^ LABELS, &s);
	stacks_free(s);
	return 0;
}

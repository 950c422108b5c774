/*
 * tests/fuzz/fuzz_history.c: fuzzes the history with a database that somebody else wrote, in memory.
 *
 * Byte 0 chooses what is asked for, and what is done after that: windows are added, merged, deleted,
 * stacks are deleted, and SQL is asked. Then come rows, each of a kind (one byte), a number (8 bytes),
 * another one (8), the size of a blob or text (2) and that.
 */
#include "agent/history/history.h"

#include "agent/history/history_internal.h"
#include "agent/history/samples.h"
#include "agent/history/vtab.h"
#include "base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW UINT64_C(1700000000000000000)

enum { LABELS = 1, TIMES = 2, KEEPS = 4, ADDS = 8, ASKS = 64 };
enum { ROWS_MAX = 300, STEPS_MAX = 2000 };

/* What a row's numbers, a and b, and its blob go into. Small ids are likely to fit together. */
static const char *const inserts[] = {
	"INSERT OR REPLACE INTO windows (start_ns, end_ns, level, n_samples, samples)"
	" VALUES (1 + abs(?1 % 1700000000000000000), 1 + abs(?1 % 1700000000000000000) + abs(?2 %"
	" 100000000000), ?2 & 3, ?2, ?3)",
	"INSERT OR REPLACE INTO node_pages (id, nodes) VALUES (?1 & 3 + 0 * ?2, ?3)",
	"INSERT OR REPLACE INTO node_pages (id, nodes) VALUES (?1 + 0 * ?2, ?3)",
	"INSERT OR REPLACE INTO frames (id, module, address, variant, lines)"
	" VALUES (?1 & 15, ?2 & 7, ?1, 0, ?3)",
	"INSERT OR REPLACE INTO frames (id, module, address, variant, lines)"
	" VALUES (?1, ?2, ?1, ?2, ?3)",
	"INSERT OR REPLACE INTO functions (id, name, system_name, file, start_line, placed, hash)"
	" VALUES (?1, CAST(?3 AS TEXT), '', '', ?2, 0, ?2)",
	"INSERT OR REPLACE INTO modules (id, path, build_id, off, start, \"limit\")"
	" VALUES (?1 & 7, CAST(?3 AS TEXT), '', ?2, ?1, ?2)",
	"INSERT OR REPLACE INTO labels (id, labels) VALUES (?1, CAST(?3 AS TEXT))",
	"INSERT OR REPLACE INTO types (id, type, unit) VALUES (?1, CAST(?3 AS TEXT), 'x')",
	"INSERT OR REPLACE INTO settings (name, value) VALUES ('bytes', ?1 & 1048575)",
	"INSERT OR REPLACE INTO counters (window, what, reason, n) VALUES (?1 & 7, 'fired', '', "
	"?2)",
};

#define N_INSERTS (sizeof(inserts) / sizeof(inserts[0]))

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	stderr = fopen("/dev/null", "we"); /* libFuzzer has its own way to standard error */
	if (!stderr)
		abort();
	return 0;
}

/* What history_open does, without a file. */
static struct history *open_in_memory(void)
{
	struct history *h = calloc(1, sizeof(*h));

	if (!h || sqlite3_open(":memory:", &h->db) != SQLITE_OK)
		abort();
	h->path = strdup("memory");
	h->sums_max = 1000;
	(void)sqlite3_extended_result_codes(h->db, 1);
	if (!h->path || db_exec(h->db, "PRAGMA page_size = 512; PRAGMA auto_vacuum = INCREMENTAL"))
		abort();
	for (int i = 0; i < history_kind.n_steps; i++)
		if (db_exec(h->db, history_kind.steps[i]))
			abort();
	if (history_register(h))
		abort();
	return h;
}

static void insert_row(struct history *h, struct uw_bytes *b)
{
	size_t kind = uw_bytes_u8(b) % N_INSERTS;
	const int64_t numbers[] = { (int64_t)uw_bytes_u64(b), (int64_t)uw_bytes_u64(b) };
	uint64_t size = uw_bytes_u16(b);
	struct uw_bytes blob = uw_bytes_take(b, size < uw_bytes_left(b) ? size : uw_bytes_left(b));
	sqlite3_stmt *stmt;

	if (sqlite3_prepare_v2(h->db, inserts[kind], -1, &stmt, NULL) != SQLITE_OK)
		abort();
	db_bind_numbers(stmt, numbers, 2);
	if (sqlite3_bind_parameter_count(stmt) == 3)
		db_bind_bytes(stmt, 3, blob.pos, uw_bytes_left(&blob));
	(void)sqlite3_step(stmt); /* constraints may refuse it */
	(void)sqlite3_finalize(stmt);
}

/* Everything that is read must be readable. */
static void read_all(struct history *h, uint8_t mode, struct stacks **out)
{
	const struct history_query q = { .from_ns = mode & 16 ? NOW / 2 : 0,
					 .to_ns = mode & 32 ? NOW : UINT64_MAX,
					 .labels = mode & LABELS,
					 .times = mode & TIMES };
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
static void ask(struct history *h)
{
	static const char *const queries[] = {
		"SELECT *, stack(node) FROM samples",
		"SELECT labels, type, sum(value) FROM samples WHERE time_ns > 5 GROUP BY 1, 2",
		"SELECT count(*) FROM samples WHERE time_ns < 1699999000000000000",
		"SELECT function(id + 1), stack(id + 256) FROM node_pages",
		"SELECT count(*) FROM windows JOIN samples ON window = windows.id",
	};

	for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
		sqlite3_stmt *stmt;
		int rows = 0;

		if (sqlite3_prepare_v2(h->db, queries[i], -1, &stmt, NULL) != SQLITE_OK)
			abort();
		while (rows++ < ROWS_MAX && sqlite3_step(stmt) == SQLITE_ROW)
			for (int k = 0; k < sqlite3_column_count(stmt); k++)
				(void)sqlite3_column_text(stmt, k);
		(void)sqlite3_finalize(stmt);
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct uw_bytes b = uw_bytes_of(data, size);
	uint8_t mode = uw_bytes_u8(&b);
	struct stacks *s = NULL;
	struct history *h = open_in_memory();

	if (db_exec(h->db, "BEGIN"))
		abort();
	for (int i = 0; i < ROWS_MAX && !uw_bytes_done(&b); i++)
		insert_row(h, &b);
	if (db_exec(h->db, "COMMIT; PRAGMA foreign_keys = ON"))
		abort();
	read_all(h, mode, &s);
	if (s && mode & ADDS)
		(void)history_add(h, s,
				  &(struct history_window){ .start_ns = 1, .end_ns = NOW / 2 });
	if (s && mode & ADDS)
		name_again(h, s);
	stacks_free(s);
	if (mode & ASKS)
		ask(h);
	if (mode & KEEPS)
		keep(h);
	read_all(h, mode ^ LABELS, &s);
	stacks_free(s);
	history_close(h);
	return 0;
}

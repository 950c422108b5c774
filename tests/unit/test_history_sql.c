/*
 * tests/unit/test_history_sql.c: tests SQL on a history: the virtual table samples, the functions
 * stack and function, and the queries in docs/history.md. With the path of a history: prints what these
 * queries give there.
 */
#include "agent/history/history.h"

#include <errno.h>
#include <unistd.h>

#include "agent/history/history_internal.h"
#include "agent/history/vtab.h"
#include "tests/check.h"
#include "tests/history.h"

#define START (UINT64_C(1700000000) * SECOND)

static struct history *history;
static sqlite3 *
	attached; /* a connection that has the history under this name, as a daemon's; NULL: its own is asked */

/* Return the rows of a query: values with "|" between them, rows with a newline. The caller frees it. */
static char *ask(const char *sql)
{
	sqlite3 *db = attached ? attached : history_connection(history);
	sqlite3_stmt *stmt = NULL;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

	if (rc == SQLITE_OK)
		while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
			for (int i = 0; i < sqlite3_column_count(stmt); i++) {
				const unsigned char *value = sqlite3_column_text(stmt, i);

				(void)fprintf(out, "%s%s", value ? (const char *)value : "NULL",
					      i + 1 < sqlite3_column_count(stmt) ? "|" : "\n");
			}
	if (rc != SQLITE_DONE)
		(void)fprintf(out, "error %d: %s", rc & 0xff, sqlite3_errmsg(db));
	(void)sqlite3_finalize(stmt);
	(void)fclose(out);
	return text;
}

static void check(const char *sql, const char *expected)
{
	char *text = ask(sql);

	CHECK(!strcmp(text, expected), sql);
	if (strcmp(text, expected) != 0)
		(void)printf("expected\n%sgot\n%s\n", expected, text);
	free(text);
}

/* Three windows; the last one is merged afterwards. */
static void make(void)
{
	static const struct made_sample samples[] = {
		{ START, 5, 6, "a", 10, { 3, 2, 1 }, 3 },
		{ START + 2 * SECOND, 5, 6, "a", 11, { 3, 2, 1 }, 3 },
		{ START + 2 * SECOND, 5, 7, "cc1", 12, { 2, 1 }, 2 },
		{ START + 12 * SECOND, 5, 6, "a", 13, { 3, 2, 1 }, 3 },
		{ START + 15 * SECOND, 0, 0, NULL, 14, { 0 }, 0 },
	};
	static const struct history_counter fired = { "fired", "", 5 };
	struct history *h;

	CHECK(history_open(db_name, true, &h) == 0, "opens");
	for (uint64_t i = 0; i < 3; i++) {
		struct stacks *s = made_profile();
		struct history_window w = { .start_ns = START + i % 2 * 10 * SECOND,
					    .counters = &fired,
					    .n_counters = 1 };

		if (i == 2)
			w.start_ns -= 10000 * SECOND;
		w.end_ns = w.start_ns + 10 * SECOND;
		for (size_t k = 0; k < sizeof(samples) / sizeof(samples[0]); k++) {
			struct made_sample m = samples[k];

			if (i == 2)
				m.time_ns -= 10000 * SECOND;
			if (i == 2 || (m.time_ns - START) / (10 * SECOND) == i)
				made_add(s, &m);
		}
		CHECK(history_add(h, s, &w) == 0, "added");
		stacks_free(s);
	}
	while (history_keep(h, &(struct history_limits){ .times_ns = 9000 * SECOND },
			    START + 20 * SECOND) == 1)
		;
	history_close(h);
	CHECK(history_open(db_name, false, &history) == 0, "opens");
}

static void test_each_sample_has_a_row_for_each_value(void)
{
	check("SELECT (time_ns - 1700000000000000000) / 1000000000 t, window, pid, tid, labels,"
	      " node, type, value FROM samples WHERE window = 1 ORDER BY t, tid, type",
	      "0|1|5|6|{\"comm\":\"a\"}|3|cpu|10\n"
	      "0|1|5|6|{\"comm\":\"a\"}|3|samples|1\n"
	      "2|1|5|6|{\"comm\":\"a\"}|3|cpu|11\n"
	      "2|1|5|6|{\"comm\":\"a\"}|3|samples|1\n"
	      "2|1|5|7|{\"comm\":\"cc1\"}|2|cpu|12\n"
	      "2|1|5|7|{\"comm\":\"cc1\"}|2|samples|1\n");
	/* The merged one: at its start, counted together; without threads NULL. */
	check("SELECT (time_ns - 1700000000000000000) / 1000000000 t, pid, tid, labels, node, value"
	      " FROM samples WHERE window = 4 AND type = 'samples' ORDER BY value, node",
	      "-10000|NULL|NULL|{}|0|1\n"
	      "-10000|5|7|{\"comm\":\"cc1\"}|2|1\n"
	      "-10000|5|6|{\"comm\":\"a\"}|3|3\n");
	check("SELECT type, sum(value), count(*) FROM samples GROUP BY type",
	      "cpu|120|8\nsamples|10|8\n");
}

static void test_constraints_choose_windows(void)
{
	check("SELECT count(*) FROM samples WHERE time_ns >= 1700000000000000000 AND time_ns <"
	      " 1700000002000000000",
	      "2\n");
	check("SELECT count(*) FROM samples WHERE time_ns > 1700000000000000000", "8\n");
	check("SELECT count(*) FROM samples WHERE time_ns <= 1700000000000000000.5", "8\n");
	check("SELECT count(*) FROM samples WHERE time_ns < 'x'", "16\n");
	check("SELECT count(*) FROM samples WHERE time_ns > 'x' OR time_ns = NULL", "0\n");
	check("SELECT count(*) FROM samples WHERE window IN (1, 2, 99, NULL, 'x')", "10\n");
	check("SELECT count(*) FROM windows w JOIN samples s ON s.window = w.id WHERE w.level = 1",
	      "6\n");
	check("SELECT count(*) FROM samples a JOIN samples b USING (window, node, type)", "20\n");
	/* A damaged window matters only to those who ask for it. */
	CHECK(db_sql("UPDATE windows SET samples = x'0100ff' WHERE id = 1") == SQLITE_OK, "damage");
	check("SELECT count(*) FROM samples WHERE window = 2", "4\n");
	check("SELECT count(*) FROM samples WHERE time_ns > 1700000010000000001", "4\n");
	check("SELECT count(*) FROM samples WHERE time_ns < 1699999999000000000", "6\n");
	check("SELECT count(*) FROM samples", "error 11: window 1 is damaged");
	CHECK(db_sql("UPDATE windows SET samples = x'' WHERE id = 1") == SQLITE_OK, "damage");
	check("SELECT count(*) FROM samples", "error 11: window 1 is damaged");
}

static void test_nodes_have_names(void)
{
	check("SELECT stack(3), function(3), stack(1), function(0), stack(0), stack(NULL)",
	      "f1;f2;f3|f3|f1|||NULL\n");
	check("SELECT stack(99)", "error 1: there is no such node, or it is damaged");
	check("SELECT stack(-1)", "error 1: there is no such node, or it is damaged");
	check("SELECT function(9223372036854775807)",
	      "error 1: there is no such node, or it is damaged");
	CHECK(db_sql("UPDATE nodes SET parent = 5 WHERE id = 3") == SQLITE_OK, "a loop");
	history_close(history);
	CHECK(history_open(db_name, false, &history) == 0, "opens");
	check("SELECT stack(3)", "error 1: there is no such node, or it is damaged");
	check("SELECT function(2)", "f2\n");
	CHECK(db_sql("DELETE FROM functions; DELETE FROM labels; DELETE FROM types") == SQLITE_OK,
	      "less");
	check("SELECT function(2)", "f2\n"); /* from the cache */
	history_close(history);
	CHECK(history_open(db_name, false, &history) == 0, "opens");
	check("SELECT function(2)", "error 1: there is no such node, or it is damaged");
	check("SELECT labels, type, sum(value) FROM samples WHERE window = 2 GROUP BY 1, 2",
	      "NULL|NULL|29\n");
}

/* Ask another connection, which has the history beside tables of its own. */
static void attach(const char *path)
{
	char *sql = sqlite3_mprintf("CREATE TABLE windows (id); ATTACH %Q AS history", path);

	CHECK(sqlite3_open(":memory:", &attached) == SQLITE_OK &&
		      sqlite3_exec(attached, sql, NULL, NULL, NULL) == SQLITE_OK &&
		      history_register(history, attached, "history") == 0,
	      "is attached");
	sqlite3_free(sql);
}

static void detach(void)
{
	(void)sqlite3_close(attached);
	attached = NULL;
}

static void test_another_connection_has_samples(void)
{
	static const char sql[] = "SELECT count(*), sum(value), max(window), min(stack(node)),"
				  " max(labels), max(type) FROM samples";
	char *own = ask(sql), *other;

	attach(db_name);
	other = ask(sql);
	CHECK(strncmp(own, "error", 5) != 0 && !strcmp(own, other), other);
	check("SELECT function(2), (SELECT count(*) FROM windows)", "f2|0\n");
	detach();
	free(own);
	free(other);
}

/* Each query in the page runs; with show, print it and what it gives. */
static void test_documented_queries(const char *path, bool show)
{
	FILE *page = fopen("docs/history.md", "re");
	char *text = NULL, *sql, *rest;
	size_t room = 0;
	int n = 0;

	attach(path);
	CHECK(page && getdelim(&text, &room, '\0', page) > 0, "the page");
	if (page)
		(void)fclose(page);
	sql = text ? strstr(text, "```sql\n") : NULL;
	CHECK(sql, "SQL");
	if (sql) {
		sql += strlen("```sql\n");
		*strstr(sql, "```") = '\0';
		for (char *query = sql; (rest = strstr(query, ";\n")); query = rest + 2, n++) {
			char *result;

			*rest = '\0';
			result = ask(query);

			CHECK(*result && strncmp(result, "error", 5) != 0, query);
			if (show)
				(void)printf("%s;\n%s", query, result);
			free(result);
		}
	}
	CHECK(n == 7, "all of them");
	detach();
	free(text);
}

static void test_nothing_can_be_written(void)
{
	char *text = ask("DELETE FROM windows");

	CHECK(strstr(text, "readonly"), text);
	free(text);
	check("DELETE FROM samples", "error 1: table samples may not be modified");
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		CHECK(history_open(argv[1], false, &history) == 0, argv[1]);
		if (history)
			test_documented_queries(argv[1], true);
		history_close(history);
		return check_done();
	}
	db_make_name();
	make();
	test_each_sample_has_a_row_for_each_value();
	test_documented_queries(db_name, false);
	test_another_connection_has_samples();
	test_nothing_can_be_written();
	test_constraints_choose_windows();
	test_nodes_have_names();
	history_close(history);
	db_remove();
	(void)rmdir(db_folder);
	return check_done();
}

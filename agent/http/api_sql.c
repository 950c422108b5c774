/* agent/http/api_sql.c: answers queries in SQL, and shows unwind tables. */
#include "agent/http/api_internal.h"

#include "agent/clock.h"
#include "agent/export/json.h"
#include "agent/history/vtab.h"
#include "agent/log.h"
#include "agent/store/query/sql.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define QUERY_NS    UINT64_C(10000000000) /* a query may take so long */
#define REPLY_MAX   (64L << 20)		  /* and its reply may have so many bytes */
#define VALUE_MAX   (16 << 20)		  /* and a text or blob in it */
#define LOOK_EVERY  1000		  /* steps of SQLite's machine */
#define PATTERN_MAX 256			  /* bytes of a pattern for LIKE or GLOB */
#define WORK_MAX \
	(UINT64_C(1) << 30) /* of one call of a function: the sizes of two texts, multiplied */
#define BUILD_ID_HEX 128

/*
 * Allow what reads. The database is open for reading alone; this refuses what opens other files, and
 * what makes SQLite do other things than answer. json_patch compares each key of one object with each of the other.
 */
static int authorize(void *ctx, int action, const char *a, const char *b, const char *c,
		     const char *d)
{
	(void)ctx;
	(void)a;
	(void)c;
	(void)d;
	switch (action) {
	case SQLITE_SELECT:
	case SQLITE_READ:
	case SQLITE_RECURSIVE:
		return SQLITE_OK;
	case SQLITE_FUNCTION:
		return b && (!strcmp(b, "load_extension") || !strcmp(b, "json_patch")) ? SQLITE_DENY
										       : SQLITE_OK;
	case SQLITE_PRAGMA:
		return a && (!strcmp(a, "table_info") || !strcmp(a, "table_list")) ? SQLITE_OK
										   : SQLITE_DENY;
	default:
		return SQLITE_DENY;
	}
}

/* ---- functions whose time is bounded --------------------------------------------------------- */

/* Call SQLite's own function, which the statement of another connection has, unless its texts are too long. */
static void call_bounded(sqlite3_context *ctx, int n, sqlite3_value **values)
{
	sqlite3_stmt *own = sqlite3_user_data(ctx);
	int rc;

	if ((uint64_t)sqlite3_value_bytes(values[0]) * (uint64_t)sqlite3_value_bytes(values[1]) >
	    WORK_MAX) {
		sqlite3_result_error(ctx, "the texts of a function are too long", -1);
		return;
	}
	for (int i = 0; i < n; i++)
		(void)sqlite3_bind_value(own, i + 1, values[i]);
	rc = sqlite3_step(own);
	if (rc == SQLITE_ROW)
		sqlite3_result_value(ctx, sqlite3_column_value(own, 0));
	else
		sqlite3_result_error_code(ctx, rc);
	(void)sqlite3_reset(own);
	(void)sqlite3_clear_bindings(own);
}

static void end_bounded(void *own)
{
	(void)sqlite3_finalize(own);
}

/*
 * SQLite looks at the time between the steps of a query, not while a function runs. Put functions that compare each part of one
 * text with another in the place of its own.
 */
static int bound_functions(sqlite3 *db)
{
	static const struct {
		const char *name, *sql;
		int n;
	} functions[] = {
		{ "instr", "SELECT instr(?1, ?2)", 2 },
		{ "replace", "SELECT replace(?1, ?2, ?3)", 3 },
		{ "trim", "SELECT trim(?1, ?2)", 2 },
		{ "ltrim", "SELECT ltrim(?1, ?2)", 2 },
		{ "rtrim", "SELECT rtrim(?1, ?2)", 2 },
	};
	sqlite3 *other = NULL;
	int rc = sqlite3_open(":memory:", &other);

	(void)sqlite3_limit(other, SQLITE_LIMIT_LENGTH, VALUE_MAX);
	for (size_t i = 0; rc == SQLITE_OK && i < sizeof(functions) / sizeof(functions[0]); i++) {
		sqlite3_stmt *own = NULL;

		rc = sqlite3_prepare_v2(other, functions[i].sql, -1, &own, NULL);
		if (rc == SQLITE_OK) /* ends the statement also if it fails */
			rc = sqlite3_create_function_v2(db, functions[i].name, functions[i].n,
							SQLITE_UTF8 | SQLITE_DETERMINISTIC |
								SQLITE_INNOCUOUS,
							own, call_bounded, NULL, NULL, end_bounded);
	}
	(void)sqlite3_close_v2(other); /* it lives as long as its statements */
	return db_errno(rc);
}

/* Let SQLite make the virtual tables, which it does at their first use and by creating them. */
static int connect_tables(sqlite3 *db)
{
	static const char sql[] =
		"SELECT 1 FROM unwind_rows(''), unwind_fdes(''), unwind_gaps(''), samples";
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

	(void)sqlite3_finalize(stmt);
	return db_errno(rc);
}

int api_sql_open(const char *store, const char *history, struct history *opened,
		 struct sqlite3 **out)
{
	char error[DB_ERROR_SIZE] = "";
	char *attach = sqlite3_mprintf("ATTACH %Q AS history", history);
	sqlite3 *db = NULL;
	int err = attach ? sql_open(store, &db, error) : -ENOMEM;

	if (!err)
		err = db_exec(db, attach);
	if (!err)
		err = history_register(opened, db, "history");
	if (!err)
		err = connect_tables(db);
	if (!err)
		err = bound_functions(db);
	if (!err) /* open all its files */
		err = db_exec(db, "SELECT (SELECT count(*) FROM settings), (SELECT count(*) FROM"
				  " history.settings)");
	sqlite3_free(attach);
	if (err) {
		log_error("%s", error[0] ? error : db ? sqlite3_errmsg(db) : strerror(-err));
		(void)sqlite3_close(db);
		return err;
	}
	(void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, VALUE_MAX);
	(void)sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_MAX);
	(void)sqlite3_set_authorizer(db, authorize, NULL);
	*out = db;
	return 0;
}

void api_sql_close(struct sqlite3 *sql)
{
	(void)sqlite3_close(sql);
}

/* ---- queries ----------------------------------------------------------------------------- */

struct limits_of_query {
	uint64_t until_ns;
	FILE *out;
};

static int is_over(void *ctx) /* for sqlite3_progress_handler */
{
	const struct limits_of_query *l = ctx;

	return now_ns() > l->until_ns || ftell(l->out) > REPLY_MAX;
}

/* Run a query, and write its rows. */
static void run(struct api *api, const char *sql, enum sql_format format, struct http_reply *reply)
{
	struct limits_of_query limits = { .until_ns = now_ns() + QUERY_NS, .out = reply->out };
	char error[DB_ERROR_SIZE] = "";
	int err;

	if (!api->sql) {
		(void)http_fail(reply, 503, "the store cannot be read");
		return;
	}
	sqlite3_progress_handler(api->sql, LOOK_EVERY, is_over, &limits);
	err = sql_print(api->sql, sql, format, reply->out, error);
	sqlite3_progress_handler(api->sql, 0, NULL, NULL);
	reply->type = format == SQL_JSON ? "application/json" : "text/csv; charset=utf-8";
	if (ftell(reply->out) > REPLY_MAX)
		(void)http_fail(reply, 413, "the reply would have more than %ld MiB",
				REPLY_MAX >> 20);
	else if (err && now_ns() > limits.until_ns)
		(void)http_fail(reply, 408, "the query takes more than %d s",
				(int)(QUERY_NS / 1000000000));
	else if (err)
		(void)http_fail(reply, 400, "%s", error[0] ? error : strerror(-err));
}

/* Return how many statements a text has, 2 for more; 1 if one of them is wrong, which run() reports. */
static int count_statements(sqlite3 *db, const char *sql)
{
	int n = 0;

	while (*sql && n < 2) {
		sqlite3_stmt *stmt = NULL;

		if (sqlite3_prepare_v2(db, sql, -1, &stmt, &sql) != SQLITE_OK)
			return 1;
		n += stmt != NULL;
		(void)sqlite3_finalize(stmt);
	}
	return n;
}

void api_query(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	const char *format = http_argument(r, "format");

	if (!r->body_size || strlen(r->body) != r->body_size)
		(void)http_fail(reply, 400, "the body of the request is to be a query in SQL");
	else if (format && strcmp(format, "json") != 0 && strcmp(format, "csv") != 0)
		(void)http_fail(reply, 400, "format is json or csv");
	else if (api->sql && count_statements(api->sql, r->body) != 1)
		/* The arrays of two would be no JSON. */
		(void)http_fail(reply, 400, "the body of the request is to be one query in SQL");
	else
		run(api, r->body, format && *format == 'c' ? SQL_CSV : SQL_JSON, reply);
}

/* ---- unwind tables ----------------------------------------------------------------------- */

/* GET /api/v1/unwind/BUILD-ID[/PC] */
void api_unwind(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	const char *id = r->path + strlen("/api/v1/unwind/");
	size_t n = strspn(id, "0123456789abcdef");
	uint64_t rows = 1000, pc = 0;
	char *end, *sql;

	if (!n || n > BUILD_ID_HEX || (id[n] && id[n] != '/')) {
		(void)http_fail(
			reply, 400,
			"the path is to be /api/v1/unwind/BUILD-ID or /api/v1/unwind/BUILD-ID/PC");
		return;
	}
	if (id[n]) {
		errno = 0;
		pc = strtoull(id + n + 1, &end, 16);
		if (!id[n + 1] || *end || errno) {
			(void)http_fail(reply, 400, "'%.40s' is no address in hexadecimal digits",
					id + n + 1);
			return;
		}
	}
	if (api_number(r, reply, "n", 1, 1000000, &rows))
		return;
	sql = id[n] ? sqlite3_mprintf("SELECT start, \"end\", function, words FROM "
				      "unwind_rows('%.*q', %lld)",
				      (int)n, id, (long long)pc)
		    : sqlite3_mprintf(
			      "SELECT start, \"end\", function, words FROM unwind_rows('%.*q')"
			      " LIMIT %lld",
			      (int)n, id, (long long)rows);
	if (sql)
		run(api, sql, SQL_JSON, reply);
	else
		(void)http_fail(reply, 503, "there is no memory");
	sqlite3_free(sql);
}

void api_put_rule(struct api *api, const char *build_id, uint64_t address, FILE *out)
{
	static const char sql[] = "SELECT words FROM unwind_rows(?1, ?2)";
	sqlite3_stmt *stmt = NULL;
	bool there = false;

	if (api->sql && *build_id &&
	    sqlite3_prepare_v2(api->sql, sql, -1, &stmt, NULL) == SQLITE_OK) {
		(void)sqlite3_bind_text(stmt, 1, build_id, -1, SQLITE_STATIC);
		(void)sqlite3_bind_int64(stmt, 2, (int64_t)address);
		there = sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_text(stmt, 0);
		if (there)
			json_text(out, (const char *)sqlite3_column_text(stmt, 0));
	}
	(void)sqlite3_finalize(stmt);
	if (!there)
		(void)fputs("null", out);
}

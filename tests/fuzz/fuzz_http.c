/*
 * tests/fuzz/fuzz_http.c: fuzzes what the daemon answers, without a socket: a request, whatever is in its
 * path, arguments and body, for a small history. A reply in JSON must be JSON.
 *
 * An input is "METHOD PATH?KEY=VALUE&KEY=VALUE", a newline, and the body. %XX is decoded in arguments.
 */
#include "agent/http/api.h"

#include "agent/store/query/sql.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/sqlite_memory.h"
#include "tests/history.h"

#include <ctype.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW  (UINT64_C(1700000000) * SECOND)
#define DUMP 300 /* bytes of a reply that is wrong */

static struct api api;
static char store_name[80];
static sqlite3 *checker; /* of JSON */

static void clean_up(void)
{
	char name[96];

	api_sql_close(api.sql);
	history_close(api.history);
	(void)sqlite3_close(checker);
	db_remove();
	for (const char *const *end = (const char *const[]){ "", "-wal", "-shm", NULL }; *end;
	     end++) {
		(void)snprintf(name, sizeof(name), "%s%s", store_name, *end);
		(void)unlink(name);
	}
	(void)rmdir(db_folder);
}

/* Make a history of two windows, one of them merged, and an empty store. */
static void make_history(void)
{
	const struct history_counter counters[] = { { "fired", "", 5 },
						    { "stop", "root", 3 },
						    { "unwound", "", 3 } };
	struct history *h;

	if (history_open(db_name, true, &h))
		abort();
	for (uint64_t i = 0; i < 2; i++) {
		uint64_t end = NOW - (i ? SECOND : 8 * 3600 * SECOND);
		const struct history_window window = { .start_ns = end - 10 * SECOND,
						       .end_ns = end,
						       .counters = counters,
						       .n_counters = 3 };
		struct stacks *s = made_profile();

		for (uint32_t j = 0; j < 3; j++)
			made_add(s, &(struct made_sample){ .time_ns = end - (j + 1) * SECOND,
							   .pid = 4 + j,
							   .tid = 5,
							   .comm = j ? "a<b>&\"\\" : "prog",
							   .cpu_ns = 10000000,
							   .frames = { j, 7 },
							   .n_frames = 2 });
		if (history_add(h, s, &window))
			abort();
		stacks_free(s);
	}
	for (int i = 0; i < 100; i++) {
		struct history_limits limits;

		if (history_get_limits(h, &limits) || history_keep(h, &limits, NOW) != 1)
			break;
	}
	history_close(h);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	char error[DB_ERROR_SIZE];
	sqlite3 *store;

	(void)argc;
	(void)argv;
	stderr = fopen("/dev/null", "we"); /* libFuzzer has its own way to standard error */
	if (!stderr)
		abort();
	sqlite_memory_use();
	db_make_name();
	(void)snprintf(store_name, sizeof(store_name), "%s/s.db", db_folder);
	(void)atexit(clean_up);
	make_history();
	if (db_open(store_name, &db_store, DB_WRITE, &store, error))
		abort();
	(void)sqlite3_close(store);
	if (history_open(db_name, false, &api.history) ||
	    api_sql_open(store_name, db_name, api.history, &api.sql) ||
	    sqlite3_open(":memory:", &checker) != SQLITE_OK)
		abort();
	return 0;
}

/* Decode %XX and + in place, as libmicrohttpd does. */
static void decode(char *text)
{
	char *to = text;

	for (const char *at = text; *at; at++) {
		unsigned int byte;

		if (*at == '%' && isxdigit((unsigned char)at[1]) &&
		    isxdigit((unsigned char)at[2]) && sscanf(at + 1, "%2x", &byte) == 1) {
			*to++ = (char)byte;
			at += 2;
		} else {
			*to++ = *at == '+' ? ' ' : *at;
		}
	}
	*to = '\0';
}

static void take_arguments(struct http_request *r, char *text)
{
	char *rest = text;

	while (rest && r->n_arguments + 2 < HTTP_ARGUMENTS) {
		char *key = strsep(&rest, "&"), *value = key;

		(void)strsep(&value, "=");
		decode(key);
		if (value)
			decode(value);
		r->arguments[r->n_arguments++] =
			(struct http_argument){ .key = key, .value = value ? value : "" };
	}
}

/* A reply is JSON if its type says so, and an error is one line. */
static void check_reply(const struct http_reply *reply, const struct http_request *r)
{
	char *text = NULL;
	long size = ftell(reply->out);
	sqlite3_stmt *stmt;

	if (reply->status != 200) {
		if (!*reply->error)
			abort();
		return;
	}
	if (!reply->type || size < 0)
		abort();
	if (strcmp(reply->type, "application/json") != 0)
		return;
	text = calloc(1, (size_t)size + 1);
	rewind(reply->out);
	if (!text || fread(text, 1, (size_t)size, reply->out) != (size_t)size ||
	    sqlite3_prepare_v2(checker, "SELECT json_valid(?1)", -1, &stmt, NULL) != SQLITE_OK)
		abort();
	(void)sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
	if (sqlite3_step(stmt) != SQLITE_ROW || !sqlite3_column_int(stmt, 0)) {
		(void)printf("%s %s: no JSON: %.*s\n", r->method, r->path, DUMP, text);
		abort();
	}
	(void)sqlite3_finalize(stmt);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = calloc(1, size + 1), *body = text, *line, *arguments, *method;
	struct http_request r = { .now_ns = NOW };
	struct http_reply reply = { .status = 200 };
	int fd = memory_file(NULL, 0);

	if (!text || !(reply.out = fdopen(fd, "w+")))
		abort();
	memcpy(text, data, size);
	line = strsep(&body, "\n");
	r.body = body ? body : "";
	r.body_size = body ? size - (size_t)(body - text) : 0;
	arguments = line;
	method = strsep(&arguments, " ");
	r.method = method;
	r.path = arguments ? strsep(&arguments, "?") : "";
	if (arguments)
		take_arguments(&r, arguments);
	/* Endless queries end after 10 s each, which is too long for this. */
	if (!strcasestr(r.body, "recursive")) {
		if (api_seconds(&r) > 3600)
			abort();
		api_answer(&api, &r, &reply);
		check_reply(&reply, &r);
	}
	(void)fclose(reply.out);
	free(text);
	return 0;
}

/*
 * tests/fuzz/fuzz_fleet.c: fuzzes what a fleet's server replies (agent/fleet/reading.c), and the conditions of
 * requests in SQL.
 *
 * The first line is a path and its arguments, as of a request by HTTP. Then come the replies to the queries, each with
 * its size before it (2 bytes, the lowest first). With "names" in place of the path, the first reply has addresses
 * without names, and the second what another process found of them (agent/fleet/addresses.c).
 */
#include "agent/fleet/addresses.h"
#include "agent/fleet/fleet.h"
#include "base/bytes.h"
#include "tests/fuzz/memory_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW UINT64_C(1700000000000000000)

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc;
	(void)argv;
	stderr = fopen("/dev/null", "we"); /* libFuzzer has its own way to standard error */
	if (!stderr)
		abort();
	return 0;
}

/* Whatever the request says, it stays inside literals: each of them ends, and so does each parenthesis. */
static void check_sql(const char *sql)
{
	bool quoted = false;
	long depth = 0;

	for (const char *at = sql; *at; at++) {
		if (quoted && *at == '\\' && at[1])
			at++;
		else if (*at == '\'')
			quoted = !quoted;
		else if (!quoted)
			depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
		if (depth < 0 || (!quoted && (*at == ';' || *at == '\\')))
			abort();
	}
	if (quoted || depth)
		abort();
}

static int reply_next(void *ctx, const char *sql, const struct fleet_ids *ids, char **text,
		      size_t *size)
{
	struct uw_bytes *b = ctx;
	uint16_t wanted = uw_bytes_u16(b);
	struct uw_bytes reply =
		uw_bytes_take(b, wanted < uw_bytes_left(b) ? wanted : uw_bytes_left(b));

	check_sql(sql);
	if (ids && !ids->n)
		abort();
	if (b->err)
		return -EIO;
	*size = (size_t)uw_bytes_left(&reply);
	*text = calloc(1, *size + 1);
	if (!*text)
		return -ENOMEM;
	memcpy(*text, reply.pos, *size);
	return 0;
}

/* What is found of a batch of addresses becomes rows of those addresses only. */
static void try_names(struct uw_bytes *replies)
{
	const struct addresses_choice choice = { .time_s = 1700000000 };
	struct addresses a = { .n = 0 };
	struct block block = { .n_rows = 0 };
	char *sql = NULL, *text = NULL, *found = NULL;
	size_t size = 0;

	if (!reply_next(replies, "SELECT 1", NULL, &text, &size) &&
	    !addresses_take(&a, text, size) && a.there) {
		sql = addresses_query(&a, &choice);
		if (!sql)
			abort();
		check_sql(sql);
		if (!reply_next(replies, sql, NULL, &found, &size) &&
		    !addresses_name(&a, &choice, found, size, &block) && block.n_rows > a.n)
			abort();
	}
	free(sql);
	free(found);
	block_fini(&block);
	addresses_fini(&a);
}

static void take_arguments(struct http_request *r, char *text)
{
	char *one;

	while ((one = strsep(&text, "&")) && r->n_arguments < HTTP_ARGUMENTS) {
		char *value = one, *key = strsep(&value, "=");

		r->arguments[r->n_arguments++] =
			(struct http_argument){ .key = key, .value = value ? value : "" };
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
	size_t n = end ? (size_t)(end - data) : size;
	char *line = calloc(1, n + 1), *arguments = line;
	struct uw_bytes replies = uw_bytes_of(data + n + (end != NULL), size - n - (end != NULL));
	struct fleet fleet = { .ask = reply_next, .ctx = &replies, .n_rows = 50 };
	struct api_remote remote = fleet_remote(&fleet);
	struct api api = { .remote = &remote };
	struct http_request r = { .method = "GET", .now_ns = NOW };
	struct http_reply reply = { .status = 200 };
	int fd = memory_file(NULL, 0);

	if (!line || !(reply.out = fdopen(fd, "w+")))
		abort();
	if (n)
		memcpy(line, data, n);
	r.path = strsep(&arguments, "?");
	if (arguments)
		take_arguments(&r, arguments);
	if (!strcmp(r.path, "names")) {
		try_names(&replies);
		(void)http_fail(&reply, 404, "this is no question");
	} else {
		api_answer(&api, &r, &reply);
	}
	if (reply.status != 200 && !*reply.error)
		abort();
	(void)fclose(reply.out);
	free(line);
	return 0;
}

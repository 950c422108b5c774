/* agent/fleet/server.c: asks a ClickHouse server by HTTP, and makes the fleet's tables there. */
#include "agent/fleet/server.h"

#include "agent/fleet/block.h"
#include "agent/fleet/condition.h"
#include "agent/http/client.h"
#include "agent/http/curl.h"
#include "agent/log.h"
#include "schema/fleet_sql.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BOUNDARY "offwind-ids-5d2f7c61"

/* From this version on the second DDL is used: major * 1000 + minor. */
enum { SCHEMA_2_FROM = 22003 };

/* ---- the URL ------------------------------------------------------------------------------ */

/* Return whether a name needs no quotes in SQL. */
static bool is_name(const char *name)
{
	if (!isalpha((unsigned char)*name) && *name != '_')
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && *name != '_')
			return false;
	return true;
}

int server_url_parse(const char *text, struct server_url *out)
{
	const char *host = strstr(text, "://"), *slash;
	char shown[CURL_SHOWN];
	bool http = !strncmp(text, "http://", 7) || !strncmp(text, "https://", 8);

	slash = http ? strchr(host + 3, '/') : NULL;
	if (!http || !host[3] || host + 3 == slash || (slash && slash[1] && !is_name(slash + 1))) {
		log_error("a fleet's URL is http://[USER:PASSWORD@]HOST:8123[/DATABASE], not '%s'",
			  curl_shown(text, shown));
		return -EINVAL;
	}
	out->base = slash ? strndup(text, (size_t)(slash - text)) : strdup(text);
	out->database = strdup(slash && slash[1] ? slash + 1 : SERVER_DATABASE);
	out->shown = out->base ? strdup(curl_shown(out->base, shown)) : NULL;
	if (out->base && out->database && out->shown)
		return 0;
	server_url_fini(out);
	return -ENOMEM;
}

void server_url_fini(struct server_url *url)
{
	free(url->base);
	free(url->database);
	free(url->shown);
	*url = (struct server_url){ .base = NULL };
}

/* ---- asking ------------------------------------------------------------------------------- */

/*
 * Make the body of a query that has numbers: a form whose only file is the table ids
 * (https://clickhouse.com/docs/engines/table-engines/special/external-data).
 */
static char *make_form(const char *sql, const struct fleet_ids *ids, size_t *size)
{
	char *body = NULL;
	FILE *out = open_memstream(&body, size);

	if (!out)
		return NULL;
	(void)fprintf(out,
		      "--" BOUNDARY
		      "\r\nContent-Disposition: form-data; name=\"query\"\r\n\r\n%s\r\n"
		      "--" BOUNDARY
		      "\r\nContent-Disposition: form-data; name=\"ids\"; filename=\"ids\"\r\n"
		      "Content-Type: application/octet-stream\r\n\r\n",
		      sql);
	for (size_t i = 0; i < ids->n; i++)
		for (unsigned int shift = 0; shift < 64; shift += 8)
			(void)fputc((int)(ids->ids[i] >> shift & 0xff), out);
	(void)fputs("\r\n--" BOUNDARY "--\r\n", out);
	if (!fclose(out))
		return body;
	free(body);
	return NULL;
}

int server_ask(void *ctx, const char *sql, const struct fleet_ids *ids, char **text, size_t *size)
{
	const struct fleet_server *s = ctx;
	struct client_request request = { .url = s->url->base,
					  .asked = "clickhouse-server",
					  .type = ids ? "multipart/form-data; boundary=" BOUNDARY
						      : NULL,
					  .seconds = s->seconds };
	char *path = NULL, *form = NULL;
	int err = 0;

	/*
	 * Tables over all shards are joined shard by shard: each has all that its samples name. The server holds a
	 * reply back until it is complete, so that what fails on the way is no shorter reply.
	 */
	if (asprintf(&path,
		     "/?%s%s%sdefault_format=RowBinary&wait_end_of_query=1"
		     "&distributed_product_mode=local&output_format_json_quote_64bit_integers=0"
		     "&max_execution_time=%u%s",
		     *s->database ? "database=" : "", s->database, *s->database ? "&" : "",
		     s->seconds, ids ? "&ids_format=RowBinary&ids_structure=id+UInt64" : "") < 0)
		return -ENOMEM;
	if (ids)
		form = make_form(sql, ids, &request.body_size);
	if (ids && !form)
		err = -ENOMEM;
	request.path = path;
	request.body = ids ? form : sql;
	if (!err)
		err = client_ask(&request, text, size);
	free(form);
	free(path);
	return err;
}

int server_insert(const struct fleet_server *s, const struct block *block)
{
	struct client_request request = { .url = s->url->base,
					  .asked = "clickhouse-server",
					  .type = "application/octet-stream" };
	char *path = NULL, *text = NULL, *insert = block_insert(block);
	uint8_t *bytes = NULL;
	size_t size;
	int err = insert ? block_pack(block, &bytes, &request.body_size) : -ENOMEM;

	if (!err && asprintf(&path, "/?database=%s&wait_end_of_query=1%s", s->database, insert) < 0)
		err = -ENOMEM;
	request.path = path;
	request.body = (const char *)bytes;
	if (!err)
		err = client_ask(&request, &text, &size);
	free(text);
	free(insert);
	free(path);
	free(bytes);
	return err;
}

int server_do(const struct fleet_server *s, const char *sql)
{
	char *text = NULL;
	size_t size;
	int err = server_ask((void *)(uintptr_t)s, sql, NULL, &text, &size);

	free(text);
	return err;
}

int server_number(const struct fleet_server *s, const char *sql, uint64_t *out)
{
	char *text = NULL, *end;
	size_t size;
	int err = server_ask((void *)(uintptr_t)s, sql, NULL, &text, &size);

	if (err)
		return err;
	errno = 0;
	*out = strtoull(text, &end, 10);
	if (end == text || errno || (*end && *end != '\n')) {
		log_error("%s: the reply is no number; does clickhouse-server run there?",
			  s->url->shown);
		err = -EBADMSG;
	}
	free(text);
	return err;
}

int server_find_database(const struct server_url *url, char **out)
{
	const struct fleet_server server = { .url = url, .database = "" };
	char *sql = NULL, *all = NULL;
	uint64_t n = 0;
	int err = asprintf(&all, "%s" SERVER_ALL, url->database) < 0 ? -ENOMEM : 0;

	if (!err &&
	    asprintf(&sql,
		     "SELECT count() FROM system.databases WHERE name = '%s' FORMAT TabSeparated",
		     all) < 0)
		err = -ENOMEM;
	if (!err)
		err = server_number(&server, sql, &n);
	free(sql);
	if (!err && !n) {
		free(all);
		all = strdup(url->database);
		err = all ? 0 : -ENOMEM;
	}
	if (err) {
		free(all);
		return err;
	}
	*out = all;
	return 0;
}

/* ---- the tables --------------------------------------------------------------------------- */

/* Do each of the statements, which semicolons at the end of a line separate. */
static int do_all(const struct fleet_server *s, const char *statements)
{
	int err = 0;

	for (const char *at = statements, *end; !err && (end = strstr(at, ";\n")); at = end + 2) {
		char *sql = strndup(at, (size_t)(end - at));

		err = sql ? server_do(s, sql) : -ENOMEM;
		free(sql);
	}
	return err;
}

/* Do a statement with names in it, none of which needs quotes. */
static int do_with(const struct fleet_server *s, const char *format, const char *a, const char *b,
		   const char *c)
{
	char *sql = NULL;
	int err;

	if (asprintf(&sql, format, a, b, c) < 0)
		return -ENOMEM;
	err = server_do(s, sql);
	free(sql);
	return err;
}

/* Make the tables over all shards; a row goes to the shard of its host, or of its id. */
static int make_distributed(const struct fleet_server *s, const char *database, const char *cluster)
{
	static const char *const tables[] = { "types",	    "samples",
					      "sums",	    "hour_sums",
					      "host_sums",  "host_totals",
					      "stacks",	    "stacks_by_frame",
					      "names",	    "frames_by_function",
					      "label_sets", "counters" };
	char *format = NULL;
	int err = do_with(s, "CREATE DATABASE IF NOT EXISTS %s" SERVER_ALL, database, "", "");

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && !err; i++) {
		if (asprintf(&format,
			     "CREATE TABLE IF NOT EXISTS %%s" SERVER_ALL ".%s AS %s.%s "
			     "ENGINE = Distributed(%%s, %%s, %s)",
			     tables[i], database, tables[i], tables[i]) < 0)
			return -ENOMEM;
		err = do_with(s, format, database, cluster, database);
		free(format);
	}
	return err;
}

int server_init(const struct server_url *url, const char *cluster)
{
	static const char version_sql[] =
		"SELECT toUInt32(splitByChar('.', version())[1]) * 1000 + "
		"toUInt32(splitByChar('.', version())[2]) FORMAT TabSeparated";
	struct fleet_server server = { .url = url, .database = "" };
	uint64_t version = 0;
	int err;

	if (cluster && !is_name(cluster)) {
		log_error("a cluster's name has letters, digits and _ only, not '%s'", cluster);
		return -EINVAL;
	}
	err = server_number(&server, version_sql, &version);
	if (!err)
		err = do_with(&server, "CREATE DATABASE IF NOT EXISTS %s", url->database, "", "");
	server.database = url->database;
	if (!err)
		err = do_all(&server, fleet_sql[version >= SCHEMA_2_FROM]);
	if (!err && cluster)
		err = make_distributed(&server, url->database, cluster);
	if (!err)
		log_info("%s: the tables are there (%" PRIu64 ".%" PRIu64 ")", url->shown,
			 version / 1000, version % 1000);
	return err;
}

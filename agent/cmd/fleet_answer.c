/* agent/cmd/fleet_answer.c: answers a request for the history from a fleet's ClickHouse. */
#include "agent/cmd/fleet_answer.h"

#include "agent/fleet/fleet.h"
#include "agent/fleet/server.h"
#include "agent/log.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Read a whole file as a text. */
static int read_back(FILE *file, char **text, size_t *size)
{
	long end = fflush(file) ? -1 : ftell(file);

	if (end < 0)
		return -EIO;
	*text = malloc((size_t)end + 1);
	if (!*text)
		return -ENOMEM;
	rewind(file);
	*size = fread(*text, 1, (size_t)end, file);
	(*text)[*size] = '\0';
	return *size == (size_t)end ? 0 : -EIO;
}

static FILE *open_memory(void)
{
	int fd = memfd_create("reply", MFD_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "w+");

	if (!file && fd >= 0)
		(void)close(fd);
	return file;
}

/* Let the server answer a query in SQL, and make its rows one array. */
static int answer_sql(struct fleet_server *server, const struct http_request *r, FILE *out)
{
	char *sql = NULL, *text = NULL;
	size_t size = strlen(r->body);
	int err;

	/* A semicolon ends the query for other clients. */
	while (size && (isspace((unsigned char)r->body[size - 1]) || r->body[size - 1] == ';'))
		size--;
	if (asprintf(&sql, "%.*s\nFORMAT JSONEachRow", (int)size, r->body) < 0)
		return -ENOMEM;
	err = server_ask(server, sql, NULL, &text, &size);
	free(sql);
	if (!err) {
		(void)fputc('[', out);
		for (char *at = text, *next; *at; at = next) {
			size_t n = strcspn(at, "\n");

			next = at + n + (at[n] != '\0');
			(void)fprintf(out, "%s%.*s", at == text ? "" : ",\n", (int)n, at);
		}
		(void)fputs("]\n", out);
	}
	free(text);
	return err;
}

int fleet_answer(const struct fleet_asked *asked, char **text, size_t *size)
{
	struct server_url url = { .base = NULL };
	char *database = NULL;
	struct fleet_server server = { .url = &url };
	FILE *out = open_memory(), *queries = asked->sql ? open_memory() : NULL;
	struct fleet fleet = { .ask = server_ask, .ctx = &server, .sql = queries };
	struct api_remote remote = fleet_remote(&fleet);
	struct api api = { .remote = &remote };
	struct http_reply reply = { .status = 200, .out = out };
	int err = out && (queries || !asked->sql) ? server_url_parse(asked->url, &url) : -ENOMEM;

	if (!err)
		err = server_find_database(&url, &database);
	server.database = database;
	if (!err && asked->posts)
		err = answer_sql(&server, asked->request, out);
	else if (!err)
		api_answer(&api, asked->request, &reply);
	if (!err && reply.status != 200) {
		/* What the server says has been reported already. */
		log_error("%s: %s", url.shown, reply.error);
		err = -EIO;
	}
	if (!err)
		err = read_back(queries ? queries : out, text, size);
	if (err == -ENOMEM)
		log_error("%s", strerror(ENOMEM));
	if (out)
		(void)fclose(out);
	if (queries)
		(void)fclose(queries);
	free(database);
	server_url_fini(&url);
	return err;
}

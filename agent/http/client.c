/* agent/http/client.c: asks a daemon by HTTP. */
#include "agent/http/client.h"

#include "agent/http/curl.h"
#include "agent/log.h"
#include "agent/sanitize.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_MAX (size_t)(256u << 20)

enum { CONNECT_SECONDS = 10 };

struct content {
	char *text;
	size_t size, room;
	bool too_long;
	char error[CURL_ERROR_TEXT]; /* libcurl's, until the handle is freed */
};

static size_t take(const char *data, size_t one, size_t n, void *ctx) /* for libcurl */
{
	struct content *c = ctx;
	size_t size = one * n;

	if (size >= REPLY_MAX - c->size) {
		c->too_long = true;
		return 0;
	}
	if (c->room - c->size <= size) {
		size_t room = 2 * (c->size + size) + 4096;
		char *longer = realloc(c->text, room);

		if (!longer)
			return 0;
		c->text = longer;
		c->room = room;
	}
	memcpy(c->text + c->size, data, size);
	c->size += size;
	c->text[c->size] = '\0';
	return size;
}

/* Report a status that is not 200, with what the daemon says about it. */
static int refused(const struct client_request *r, long status, const struct content *c)
{
	char said[512], shown[CURL_SHOWN];

	c->text[strcspn(c->text, "\n")] = '\0';
	(void)sanitize_text(c->text, "", '?', said, sizeof(said));
	log_error("%s: %s (status %ld)%s", curl_shown(r->url, shown),
		  *said ? said : "no reason is given", status,
		  status == 401 ? "; see --token-file" : "");
	return -EIO;
}

/* Return what to do about an error of libcurl, or "". */
static const char *advice(const struct client_request *r, int rc)
{
	if (rc == CURL_CERTIFICATE_REFUSED && !r->ca_file)
		return "; see --ca-file";
	return rc == CURL_NO_CA_FILE ? "; is --ca-file a file of certificates?" : "";
}

static int ask(const struct curl *l, void *easy, const struct client_request *r,
	       struct curl_slist *headers, struct content *c)
{
	bool local = !strncmp(r->url, "unix:", 5);
	char shown[CURL_SHOWN], *url = NULL;
	long status = 0;
	bool cannot;
	int rc;

	if (asprintf(&url, "%s%s", local ? "http://localhost" : r->url, r->path) < 0)
		return -ENOMEM;
	(void)l->setopt(easy, CURL_OPTION_URL, url);
	if (local)
		(void)l->setopt(easy, CURL_OPTION_UNIX_SOCKET, r->url + 5);
	if (local || curl_is_here(r->url))
		(void)l->setopt(easy, CURL_OPTION_PROXY, "");
	if (r->body && r->body_size) /* a curl_off_t */
		(void)l->setopt(easy, CURL_OPTION_BODY_SIZE, (int64_t)r->body_size);
	if (r->body)
		(void)l->setopt(easy, CURL_OPTION_BODY, r->body);
	(void)l->setopt(easy, CURL_OPTION_HEADERS, headers);
	(void)l->setopt(easy, CURL_OPTION_WRITE_FUNCTION, take);
	(void)l->setopt(easy, CURL_OPTION_WRITE_DATA, c);
	(void)l->setopt(easy, CURL_OPTION_ERROR_TEXT, c->error);
	(void)l->setopt(easy, CURL_OPTION_NO_SIGNALS, 1L);
	(void)l->setopt(easy, CURL_OPTION_CONNECT_SECONDS, (long)CONNECT_SECONDS);
	(void)l->setopt(easy, CURL_OPTION_SECONDS, (long)r->seconds);
	if (r->ca_file)
		(void)l->setopt(easy, CURL_OPTION_CA_FILE, r->ca_file);
	rc = l->perform(easy);
	cannot = rc == CURL_CANNOT_CONNECT || rc == CURL_CANNOT_RESOLVE;
	(void)l->getinfo(easy, CURL_INFO_STATUS, &status);
	free(url);
	if (c->too_long)
		log_error("%s: the reply has more than %zu MiB", curl_shown(r->url, shown),
			  REPLY_MAX >> 20);
	else if (rc)
		log_error("%s: %s%s%s%s", curl_shown(r->url, shown),
			  *c->error ? c->error : l->error(rc), cannot ? "; does " : "",
			  cannot ? r->asked ? r->asked : "offwind daemon" : "",
			  cannot ? " run there?" : advice(r, rc));
	else if (status != 200)
		return refused(r, status, c);
	return rc ? -EIO : 0;
}

int client_ask(const struct client_request *r, char **text, size_t *size)
{
	struct curl l;
	struct content c = { .text = calloc(1, 1), .room = 1 };
	struct curl_slist *headers = NULL;
	char *token = NULL, *type = NULL;
	void *easy = NULL;
	int err = curl_load(&l);

	if (!err &&
	    (!c.text || !(easy = l.init()) ||
	     asprintf(&type, "Content-Type: %s", r->type ? r->type : "application/sql") < 0 ||
	     !(headers = l.append(headers, type)) ||
	     (r->token && (asprintf(&token, "Authorization: Bearer %s", r->token) < 0 ||
			   !l.append(headers, token)))))
		err = -ENOMEM;
	if (!err)
		err = ask(&l, easy, r, headers, &c);
	if (err == -ENOMEM)
		log_error("%s", strerror(ENOMEM));
	if (headers)
		l.free_list(headers);
	if (easy)
		l.cleanup(easy);
	free(token);
	free(type);
	if (err) {
		free(c.text);
		return err;
	}
	*text = c.text;
	*size = c.size;
	return 0;
}

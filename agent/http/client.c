/* agent/http/client.c: asks a daemon by HTTP. */
#include "agent/http/client.h"

#include "agent/log.h"
#include "agent/sanitize.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define REPLY_MAX (size_t)(256u << 20)

/*
 * Of curl/curl.h, whose numbers never change. Its packages exclude one another, one for each TLS library,
 * so that none can be required.
 */
enum {
	OPTION_URL = 10002,
	OPTION_PROXY = 10004,
	OPTION_WRITE_FUNCTION = 20011,
	OPTION_WRITE_DATA = 10001,
	OPTION_ERROR_TEXT = 10010,
	OPTION_BODY = 10015,
	OPTION_HEADERS = 10023,
	OPTION_CONNECT_SECONDS = 78,
	OPTION_NO_SIGNALS = 99,
	OPTION_UNIX_SOCKET = 10231,
	INFO_STATUS = 0x200002,
	ERROR_TEXT = 256,
	CONNECT_SECONDS = 10,
	CANNOT_RESOLVE = 6,
	CANNOT_CONNECT = 7,
};

struct curl_slist;

struct library {
	void *handle;
	void *(*init)(void);
	int (*setopt)(void *easy, int option, ...);
	int (*perform)(void *easy);
	int (*getinfo)(void *easy, int info, ...);
	void (*cleanup)(void *easy);
	const char *(*error)(int code);
	struct curl_slist *(*append)(struct curl_slist *list, const char *text);
	void (*free_list)(struct curl_slist *list);
};

static int load(struct library *l)
{
	static const char *const names[] = { "libcurl-gnutls.so.4", "libcurl.so.4" };
	const struct {
		const char *name;
		void *to;
	} functions[] = {
		{ "curl_easy_init", &l->init },	      { "curl_easy_setopt", &l->setopt },
		{ "curl_easy_perform", &l->perform }, { "curl_easy_getinfo", &l->getinfo },
		{ "curl_easy_cleanup", &l->cleanup }, { "curl_easy_strerror", &l->error },
		{ "curl_slist_append", &l->append },  { "curl_slist_free_all", &l->free_list },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !l->handle; i++)
		l->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *function = l->handle ? dlsym(l->handle, functions[i].name) : NULL;

		if (!function) {
			log_error("libcurl, which asks daemons, is not installed");
			return -ENOENT;
		}
		memcpy(functions[i].to, &function, sizeof(function));
	}
	return 0;
}

struct content {
	char *text;
	size_t size, room;
	bool too_long;
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

/* Return whether a URL names this machine, which no proxy is asked for. */
static bool is_here(const char *url)
{
	const char *host = strstr(url, "://");

	host = host ? host + 3 : url;
	return !strncmp(host, "127.", 4) || !strncasecmp(host, "localhost", 9) ||
	       !strncmp(host, "[::1]", 5);
}

/* Report a status that is not 200, with what the daemon says about it. */
static int refused(const struct client_request *r, long status, const struct content *c)
{
	char said[512];

	c->text[strcspn(c->text, "\n")] = '\0';
	(void)sanitize_text(c->text, "", '?', said, sizeof(said));
	log_error("%s: %s (status %ld)%s", r->url, *said ? said : "no reason is given", status,
		  status == 401 ? "; see --token-file" : "");
	return -EIO;
}

static int ask(const struct library *l, void *easy, const struct client_request *r,
	       struct curl_slist *headers, struct content *c)
{
	bool local = !strncmp(r->url, "unix:", 5);
	char error[ERROR_TEXT] = "", *url = NULL;
	long status = 0;
	int rc;

	if (asprintf(&url, "%s%s", local ? "http://localhost" : r->url, r->path) < 0)
		return -ENOMEM;
	(void)l->setopt(easy, OPTION_URL, url);
	if (local)
		(void)l->setopt(easy, OPTION_UNIX_SOCKET, r->url + 5);
	if (local || is_here(r->url))
		(void)l->setopt(easy, OPTION_PROXY, "");
	if (r->body)
		(void)l->setopt(easy, OPTION_BODY, r->body);
	(void)l->setopt(easy, OPTION_HEADERS, headers);
	(void)l->setopt(easy, OPTION_WRITE_FUNCTION, take);
	(void)l->setopt(easy, OPTION_WRITE_DATA, c);
	(void)l->setopt(easy, OPTION_ERROR_TEXT, error);
	(void)l->setopt(easy, OPTION_NO_SIGNALS, 1L);
	(void)l->setopt(easy, OPTION_CONNECT_SECONDS, (long)CONNECT_SECONDS);
	rc = l->perform(easy);
	(void)l->getinfo(easy, INFO_STATUS, &status);
	free(url);
	if (c->too_long)
		log_error("%s: the reply has more than %zu MiB", r->url, REPLY_MAX >> 20);
	else if (rc)
		log_error("%s: %s%s", r->url, *error ? error : l->error(rc),
			  rc == CANNOT_CONNECT || rc == CANNOT_RESOLVE
				  ? "; does offwind daemon run there?"
				  : "");
	else if (status != 200)
		return refused(r, status, c);
	return rc ? -EIO : 0;
}

int client_ask(const struct client_request *r, char **text, size_t *size)
{
	struct library l = { .handle = NULL };
	struct content c = { .text = calloc(1, 1), .room = 1 };
	struct curl_slist *headers = NULL;
	char *token = NULL;
	void *easy = NULL;
	int err = load(&l);

	if (!err && (!c.text || !(easy = l.init()) ||
		     !(headers = l.append(headers, "Content-Type: application/sql")) ||
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
	if (err) {
		free(c.text);
		return err;
	}
	*text = c.text;
	*size = c.size;
	return 0;
}

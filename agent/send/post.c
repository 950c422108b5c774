/* agent/send/post.c: sends requests by HTTP with libcurl. */
#include "agent/send/post.h"

#include "agent/http/curl.h"
#include "agent/log.h"
#include "agent/sanitize.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { CONNECT_SECONDS = 10, RETRY_SECONDS_MAX = 3600, FILE_SECONDS = 600 };

struct post {
	const struct target *target;
	struct curl curl;
	void *easy;
	char *body; /* of the reply */
	size_t size, room;
	bool too_long;
	char type[128], grpc_text[256];
	char error[CURL_ERROR_TEXT]; /* libcurl's, until the handle is freed */
	uint64_t retry_ns;
	int grpc_status;
};

int post_new(const struct target *target, struct post **out)
{
	struct post *p = calloc(1, sizeof(*p));
	int err = p ? curl_load(&p->curl) : -ENOMEM;

	if (!err && (p->curl.global_init(CURL_GLOBAL_ALL) || !(p->easy = p->curl.init())))
		err = -ENOMEM;
	if (err == -ENOMEM)
		log_error("%s", strerror(ENOMEM));
	if (err) {
		post_free(p);
		return err;
	}
	p->target = target;
	*out = p;
	return 0;
}

void post_free(struct post *p)
{
	if (p && p->easy)
		p->curl.cleanup(p->easy);
	if (p)
		free(p->body);
	free(p);
}

char *post_url(const char *base, const char *path)
{
	size_t n = strlen(base), n_path = strlen(path);
	char *url;

	while (n && base[n - 1] == '/')
		n--;
	if (n >= n_path && !strncmp(base + n - n_path, path, n_path))
		path = "";
	return asprintf(&url, "%.*s%s", (int)n, base, path) < 0 ? NULL : url;
}

int post_open(const struct target *target, const char *path, struct post **out, char **url)
{
	int err = post_new(target, out);

	*url = err ? NULL : post_url(target->url, path);
	return err ? err : *url ? 0 : -ENOMEM;
}

void post_say(struct send_report *report, const char *reason, const char *text)
{
	size_t n = (size_t)snprintf(report->text, sizeof(report->text), "%s", reason);

	if (!text || !*text || n + 3 >= sizeof(report->text))
		return;
	memcpy(report->text + n, ": ", 2);
	(void)sanitize_text(text, "", '?', report->text + n + 2, sizeof(report->text) - n - 2);
}

/* ---- the reply --------------------------------------------------------------------------- */

static size_t take_body(const char *data, size_t one, size_t n, void *ctx) /* for libcurl */
{
	struct post *p = ctx;
	size_t size = one * n;

	if (size >= POST_REPLY_MAX - p->size) {
		p->too_long = true;
		return 0;
	}
	if (p->room - p->size <= size) {
		size_t room = 2 * (p->size + size) + 256;
		char *longer = realloc(p->body, room);

		if (!longer)
			return 0;
		p->body = longer;
		p->room = room;
	}
	memcpy(p->body + p->size, data, size);
	p->size += size;
	p->body[p->size] = '\0';
	return size;
}

/* If a line of a header has this name, copy its value, cut to size, and return true. */
static bool header_is(const char *line, size_t n, const char *name, char *out, size_t size)
{
	size_t n_name = strlen(name);

	if (n <= n_name || strncasecmp(line, name, n_name) != 0 || line[n_name] != ':')
		return false;
	line += n_name + 1;
	n -= n_name + 1;
	while (n && isspace((unsigned char)*line)) {
		line++;
		n--;
	}
	while (n && isspace((unsigned char)line[n - 1]))
		n--;
	if (n >= size)
		n = size - 1;
	memcpy(out, line, n);
	out[n] = '\0';
	return true;
}

static void forget_reply(struct post *p)
{
	p->size = 0;
	p->too_long = false;
	p->type[0] = p->grpc_text[0] = p->error[0] = '\0';
	p->retry_ns = 0;
	p->grpc_status = -1;
	if (p->body)
		p->body[0] = '\0';
}

static size_t take_header(const char *line, size_t one, size_t n, void *ctx) /* for libcurl */
{
	struct post *p = ctx;
	char value[32], *end;
	unsigned long number;

	n *= one;
	if (header_is(line, n, "retry-after", value, sizeof(value))) {
		number = strtoul(value, &end, 10); /* a date is not read */
		if (end != value && !*end)
			p->retry_ns = (number < RETRY_SECONDS_MAX ? number : RETRY_SECONDS_MAX) *
				      UINT64_C(1000000000);
	} else if (header_is(line, n, "grpc-status", value, sizeof(value))) {
		number = strtoul(value, &end, 10);
		p->grpc_status = end != value && !*end && number < 1000 ? (int)number : -1;
	} else if (!header_is(line, n, "content-type", p->type, sizeof(p->type))) {
		(void)header_is(line, n, "grpc-message", p->grpc_text, sizeof(p->grpc_text));
	}
	return n;
}

/* ---- the request ------------------------------------------------------------------------- */

static size_t give_file(char *out, size_t one, size_t n, void *ctx) /* for libcurl */
{
	ssize_t size = read(*(const int *)ctx, out, one * n);

	return size < 0 ? 0x10000000 /* CURL_READFUNC_ABORT */ : (size_t)size;
}

static int add_header(const struct post *p, struct curl_slist **list, const char *text)
{
	struct curl_slist *longer = p->curl.append(*list, text);

	if (longer)
		*list = longer;
	return longer ? 0 : -ENOMEM;
}

/* Put the headers together. The caller frees the list in each case. */
static int make_headers(const struct post *p, const struct post_request *r,
			struct curl_slist **list)
{
	const struct target *t = p->target;
	int err = add_header(p, list, "User-Agent: offwind/" OFFWIND_VERSION);
	char *token;

	/* Else libcurl waits for a second whether the receiver wants a long body. */
	if (!err)
		err = add_header(p, list, "Expect:");
	for (size_t i = 0; !err && i < r->n_headers; i++)
		err = add_header(p, list, r->headers[i]);
	for (size_t i = 0; !err && !r->anonymous && i < t->n_headers; i++)
		err = add_header(p, list, t->headers[i]);
	if (err || r->anonymous || !t->token)
		return err;
	if (asprintf(&token, "Authorization: Bearer %s", t->token) < 0)
		return -ENOMEM;
	err = add_header(p, list, token);
	free(token);
	return err;
}

static void set_options(struct post *p, const struct post_request *r, struct curl_slist *headers)
{
	int (*set)(void *easy, int option, ...) = p->curl.setopt;
	bool tls = !strncasecmp(r->url, "https:", 6);
	void *easy = p->easy;

	p->curl.reset(easy);
	(void)set(easy, CURL_OPTION_URL, r->url);
	(void)set(easy, CURL_OPTION_PROTOCOLS, (long)(CURL_PROTOCOL_HTTP | CURL_PROTOCOL_HTTPS));
	if (curl_is_here(r->url))
		(void)set(easy, CURL_OPTION_PROXY, "");
	if (r->http2) {
		(void)set(easy, CURL_OPTION_HTTP_VERSION,
			  (long)(tls ? CURL_HTTP_2_TLS : CURL_HTTP_2_AT_ONCE));
		/* libcurl 7.88 fails in the second request of such a connection (Debian 12). */
		(void)set(easy, CURL_OPTION_CLOSE_AFTER, 1L);
	}
	if (p->target->ca_file)
		(void)set(easy, CURL_OPTION_CA_FILE, p->target->ca_file);
	if (r->file) {
		(void)set(easy, CURL_OPTION_UPLOAD, 1L);
		(void)set(easy, CURL_OPTION_READ_FUNCTION, give_file);
		(void)set(easy, CURL_OPTION_READ_DATA, &r->file);
		(void)set(easy, CURL_OPTION_UPLOAD_SIZE, (int64_t)r->size);
	} else {
		(void)set(easy, CURL_OPTION_BODY_SIZE, (int64_t)r->size);
		(void)set(easy, CURL_OPTION_BODY, r->body);
	}
	(void)set(easy, CURL_OPTION_HEADERS, headers);
	(void)set(easy, CURL_OPTION_WRITE_FUNCTION, take_body);
	(void)set(easy, CURL_OPTION_WRITE_DATA, p);
	(void)set(easy, CURL_OPTION_HEADER_FUNCTION, take_header);
	(void)set(easy, CURL_OPTION_HEADER_DATA, p);
	(void)set(easy, CURL_OPTION_ERROR_TEXT, p->error);
	(void)set(easy, CURL_OPTION_NO_SIGNALS, 1L);
	(void)set(easy, CURL_OPTION_CONNECT_SECONDS, (long)CONNECT_SECONDS);
	(void)set(easy, CURL_OPTION_SECONDS, (long)(r->file ? FILE_SECONDS : p->target->timeout_s));
}

static enum sending_fault fault_of(const struct post *p, int rc)
{
	switch (rc) {
	case CURL_TIMED_OUT:
		return SENDING_FAULT_TIMEOUT;
	case CURL_TLS_FAILED:
	case CURL_CERTIFICATE_REFUSED:
	case CURL_NO_CA_FILE:
		return SENDING_FAULT_TLS;
	default:
		return p->too_long ? SENDING_FAULT_REPLY : SENDING_FAULT_CONNECT;
	}
}

bool post_send(struct post *p, const struct post_request *r, struct post_reply *reply,
	       struct send_report *report)
{
	struct curl_slist *headers = NULL;
	long status = 0;
	int rc = 0, err;

	forget_reply(p);
	err = make_headers(p, r, &headers);
	if (err) {
		report->fault = SENDING_FAULT_MEMORY;
		post_say(report, strerror(-err), NULL);
	} else {
		set_options(p, r, headers);
		rc = p->curl.perform(p->easy);
		(void)p->curl.getinfo(p->easy, CURL_INFO_STATUS, &status);
	}
	if (headers)
		p->curl.free_list(headers);
	if (!err && rc) {
		report->fault = fault_of(p, rc);
		post_say(report, p->too_long ? "the reply is too long" : p->curl.error(rc),
			 p->too_long ? NULL : p->error);
	}
	*reply = (struct post_reply){ .status = status,
				      .body = p->body ? p->body : "",
				      .size = p->size,
				      .type = p->type,
				      .retry_ns = p->retry_ns,
				      .grpc_status = p->grpc_status,
				      .grpc_text = p->grpc_text };
	report->n_bytes += err || rc ? 0 : r->size;
	return !err && !rc;
}

enum send_outcome post_outcome(const struct post_reply *reply, struct send_report *report)
{
	char reason[32];

	if (reply->status / 100 == 2)
		return SEND_DONE;
	(void)snprintf(reason, sizeof(reason), "status %ld", reply->status);
	report->after_ns = reply->retry_ns;
	post_say(report, reason, NULL);
	switch (reply->status) {
	case 401:
	case 403:
	case 404:
	case 407:
		report->fault = SENDING_FAULT_ACCESS;
		return SEND_AGAIN;
	case 408:
	case 429:
	case 502:
	case 503:
	case 504:
		report->fault = SENDING_FAULT_BUSY;
		return SEND_AGAIN;
	default:
		/* Nothing of HTTP: a redirection, or another protocol. */
		if (reply->status >= 400)
			return SEND_REFUSED;
		report->fault = SENDING_FAULT_REPLY;
		return SEND_AGAIN;
	}
}

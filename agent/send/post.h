/*
 * agent/send/post.h: requests by HTTP with libcurl, one after the other over one connection.
 *
 * What a receiver sends is not trusted: a reply has at most POST_REPLY_MAX bytes, and a request with its
 * reply takes at most the target's time.
 */
#ifndef AGENT_SEND_POST_H
#define AGENT_SEND_POST_H

#include "agent/send/target.h"

#include <stddef.h>

#define POST_REPLY_MAX ((size_t)1 << 20)

struct post;

struct post_request {
	const char *url;
	const char *const *headers; /* beside those of the target */
	size_t n_headers;
	const void *body;
	size_t size;
	bool http2;
	bool anonymous; /* without the target's token and headers */
	int file;	/* with PUT, the body is this file; 0: POST */
};

struct post_reply {
	long status;	  /* of HTTP */
	const char *body; /* with a NUL behind; borrowed until the next request */
	size_t size;
	const char *type;      /* Content-Type, "" if there is none */
	uint64_t retry_ns;     /* Retry-After; 0: none */
	int grpc_status;       /* -1: none */
	const char *grpc_text; /* "" if there is none */
};

/* Begin. The target is borrowed. Return 0 or a negative code after reporting it. */
int post_new(const struct target *target, struct post **out);
/*
 * Begin for requests to one path: *url, which the caller frees, is the target's URL with it (post_url). Errors as
 * post_new; *out and *url are set or NULL in each case.
 */
int post_open(const struct target *target, const char *path, struct post **out, char **url);
void post_free(struct post *post); /* NULL is fine */

/*
 * Send a request, and wait for its reply. Return whether there is one; else report->fault and
 * report->text say why not.
 */
bool post_send(struct post *post, const struct post_request *request, struct post_reply *reply,
	       struct send_report *report);

/*
 * Say what a reply by HTTP means, by its status alone: SEND_DONE if it is 200 to 299, else the report says why
 * not.
 */
enum send_outcome post_outcome(const struct post_reply *reply, struct send_report *report);

/* Put a receiver's text, which may be anything, behind a reason in the report. */
void post_say(struct send_report *report, const char *reason, const char *text);

/* Return base and path as one URL, unless base ends with that path; the caller frees it. NULL: no memory. */
char *post_url(const char *base, const char *path);

#endif

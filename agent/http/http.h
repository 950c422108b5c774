/*
 * agent/http/http.h: a request of HTTP and the reply to it, apart from how they are transported.
 */
#ifndef AGENT_HTTP_HTTP_H
#define AGENT_HTTP_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { HTTP_ARGUMENTS = 64, HTTP_ERROR = 512, HTTP_LATER = 0 };

struct recording;

struct http_argument {
	const char *key, *value; /* decoded; value "": none */
};

struct http_request { /* all borrowed */
	const char *method, *path;
	struct http_argument arguments[HTTP_ARGUMENTS];
	size_t n_arguments;
	const char *body; /* NUL-terminated */
	size_t body_size;
	uint64_t now_ns; /* since 1970 */
	/* What this request had recorded, or RECORDING_NONE; NULL: it can record nothing. */
	struct recording *recording;
};

struct http_reply {
	unsigned int status;	/* 200 … */
	const char *type;	/* of the content; static */
	const char *policy;	/* Content-Security-Policy; static; NULL: none */
	const char *allow;	/* with status 405: the methods of the path; static */
	const char *file;	/* name to save the content as; static; NULL: it is shown */
	FILE *out;		/* the content: a file, which has a descriptor */
	char error[HTTP_ERROR]; /* if status is not 200 and nothing was written */
};

/* Return an argument's value; NULL: it was not given. */
const char *http_argument(const struct http_request *request, const char *key);

/* Set an error as the reply. Return -EINVAL. */
int http_fail(struct http_reply *reply, unsigned int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif

/*
 * agent/http/client.h: asks a daemon by HTTP, with libcurl, which is loaded when it is needed, as few runs
 * of offwind need it.
 */
#ifndef AGENT_HTTP_CLIENT_H
#define AGENT_HTTP_CLIENT_H

#include <stddef.h>

struct client_request { /* all borrowed */
	const char
		*url; /* "http://127.0.0.1:7227", "https://…" or "unix:/run/offwind/offwind.sock" */
	const char *path;     /* with its arguments, encoded */
	const char *body;     /* NULL: GET, else POST */
	size_t body_size;     /* 0: body is a text */
	const char *type;     /* of the body; NULL: SQL */
	const char *token;    /* NULL: none */
	const char *ca_file;  /* certificates to trust, PEM; NULL: those of the system */
	unsigned int seconds; /* that the reply may take; 0: as long as it does */
	const char *asked;    /* what should answer there; NULL: offwind daemon */
};

/*
 * Ask, and set *text to the content of the reply, NUL-terminated, of *size bytes; the caller frees it.
 * A negative code after reporting what went wrong: nobody answers there, or what the daemon says is wrong.
 */
int client_ask(const struct client_request *request, char **text, size_t *size);

#endif

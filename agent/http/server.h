/*
 * agent/http/server.h: serves the history by HTTP, with GNU libmicrohttpd, which is loaded when it is
 * needed.
 */
#ifndef AGENT_HTTP_SERVER_H
#define AGENT_HTTP_SERVER_H

#include <stdbool.h>
#include <stdint.h>

enum { SERVER_SOCKETS = 8, SERVER_HOST = 256 };

/* What the processes of a daemon share. */
struct server_shared {
	/*
	 * The worker ends its window when it has all events until this time, CLOCK_MONOTONIC in ns, so
	 * that a request sees them.
	 */
	_Atomic uint64_t flush_ns;
};

struct server_socket {
	int fd;
	bool local; /* a UNIX socket: who may connect is decided by its file's mode */
	bool loopback;
	char host[SERVER_HOST]; /* "127.0.0.1:7227" or the socket's path */
};

struct server {
	struct server_socket sockets[SERVER_SOCKETS];
	int n_sockets;
	const char *token;	       /* required in Authorization: Bearer; NULL: none */
	const char *certificate, *key; /* PEM texts; NULL: no TLS */
	const char *history, *store;   /* paths of the databases */
	struct server_shared *shared;
};

/*
 * Open a socket to listen on: "127.0.0.1:7227", "[::1]:7227", "0.0.0.0:7227" or "unix:/run/offwind.sock".
 * An address that others can reach needs a token and TLS. Return 0, or a negative code after reporting
 * what is wrong.
 */
int server_listen(struct server *server, const char *address);
/* Close the sockets, and remove the files of UNIX sockets if remove is set. */
void server_close(struct server *server, bool remove);

/*
 * In a process of its own: give up all rights but those to serve, and do that until the process is
 * ended. Return a negative code after reporting why it cannot be done.
 */
int server_run(struct server *server);

#endif

/*
 * agent/http/server.h: serves the history by HTTP, with GNU libmicrohttpd, which is loaded when it is
 * needed.
 */
#ifndef AGENT_HTTP_SERVER_H
#define AGENT_HTTP_SERVER_H

#include "agent/http/recording.h"

#include <stdbool.h>
#include <stdint.h>

struct api_remote;
struct channels;
struct cost;
struct sandbox_sending;
struct sending;

enum { SERVER_SOCKETS = 8, SERVER_HOST = 256 };

/* What the processes of a daemon share. */
struct server_shared {
	/*
	 * The worker ends its window when it has all events until this time, CLOCK_MONOTONIC in ns, so
	 * that a request sees them.
	 */
	_Atomic uint64_t flush_ns;
	/* When the last window that was added ended, CLOCK_MONOTONIC. */
	_Atomic uint64_t written_ns;
	_Atomic bool serving; /* connections are accepted */
	struct recordings recordings;
};

struct server_socket {
	int fd;
	bool passed; /* by the service manager, which opened it */
	bool local;  /* a UNIX socket: who may connect is decided by its file's mode */
	bool loopback;
	char host[SERVER_HOST]; /* "127.0.0.1:7227" or the socket's path */
};

struct server {
	struct server_socket sockets[SERVER_SOCKETS];
	int n_sockets;
	const char *token;	       /* required in Authorization: Bearer; NULL: none */
	const char *certificate, *key; /* PEM texts; NULL: no TLS */
	const char *history, *store;   /* paths of the databases */
	/*
	 * Another store than a history (agent/http/api.h): gives what the next thread asks, until the process ends.
	 * NULL: the history is served.
	 */
	int (*remote)(void *ctx, struct api_remote *out);
	const struct sandbox_sending *reach; /* with remote: what it connects to */
	struct server_shared *shared;
	struct cost *cost; /* of the daemon's processes; NULL: it is not known */
	/*
	 * In the process that serves: returns the channel by which recordings are asked for; NULL: there
	 * is none.
	 */
	struct channels *(*supervisor)(void *ctx);
	void *ctx;		 /* of supervisor and remote */
	struct sending *sending; /* what is sent to other systems; NULL: nothing */
	bool check;		 /* server_listen only checks addresses, and opens nothing */
	/* Sockets that a program before this one listened on, which server_listen uses again. */
	int inherited[SERVER_SOCKETS];
	int n_inherited;
};

/*
 * Open a socket to listen on: "127.0.0.1:7227", "[::1]:7227", "0.0.0.0:7227" or "unix:/run/offwind.sock".
 * An address that others can reach needs a token and TLS. Return 0, or a negative code after reporting
 * what is wrong.
 */
int server_listen(struct server *server, const char *address);
/* Read a small file as a text. NULL after reporting why not. The caller frees it. */
enum server_text {
	SERVER_TEXT_PUBLIC, /* a certificate */
	SERVER_TEXT_SECRET, /* a key: nobody else may be able to read the file */
	SERVER_TEXT_TOKEN,  /* likewise; the first line of it */
};
char *server_read_text(const char *path, enum server_text kind);
/*
 * Listen on the sockets that the service manager passed, if it did (sd_listen_fds(3)); the same rules hold
 * for their addresses. Return 0, or a negative code after reporting what is wrong.
 */
int server_take_passed(struct server *server);
/*
 * Let a program that this process executes now have the sockets, and in that program: take them. When
 * server_listen was called for each address, server_listened closes those that are no longer wanted.
 */
void server_lend(const struct server *server);
void server_inherit(struct server *server);
void server_listened(struct server *server);
/* Close the sockets, and remove the files of UNIX sockets if remove is set. */
void server_close(struct server *server, bool remove);

/*
 * In a process of its own: give up all rights but those to serve, and do that until the process is
 * ended. Return a negative code after reporting why it cannot be done.
 */
int server_run(struct server *server);

#endif

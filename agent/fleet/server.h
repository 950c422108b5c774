/* agent/fleet/server.h: a ClickHouse server by HTTP, for commands. */
#ifndef AGENT_FLEET_SERVER_H
#define AGENT_FLEET_SERVER_H

#include "agent/fleet/fleet.h"

#include <stdbool.h>

/* The database of the hosts' own tables; those over all shards are in the one with SERVER_ALL behind its name. */
#define SERVER_DATABASE "offwind"
#define SERVER_ALL	"_all"

struct server_url {
	char *base;	/* "http://user:password@host:8123"; owned */
	char *database; /* owned */
	char *shown;	/* base as messages have it, without a user and a password; owned */
};

/*
 * Take a URL apart: http://[USER:PASSWORD@]HOST[:PORT][/DATABASE]. Return 0, -EINVAL after reporting what is wrong, or
 * -ENOMEM.
 */
int server_url_parse(const char *text, struct server_url *out);
void server_url_fini(struct server_url *url);

struct fleet_server {
	const struct server_url *url; /* borrowed */
	const char *database;	      /* "": none */
	unsigned int seconds;	      /* that a query may take; 0: as long as it does */
};

/* fleet_ask_fn, for a struct fleet_server. The reply is complete, or it is an error. */
int server_ask(void *ctx, const char *sql, const struct fleet_ids *ids, char **text, size_t *size);

struct block;
/* Insert rows. Errors are reported. */
int server_insert(const struct fleet_server *server, const struct block *block);
/* Do a statement without a reply. */
int server_do(const struct fleet_server *server, const char *sql);
/* Ask for one number. -EBADMSG after reporting that the reply is none. */
int server_number(const struct fleet_server *server, const char *sql, uint64_t *out);

/*
 * Give the database to ask: that over all shards if there is one. The caller frees it. Errors are reported.
 */
int server_find_database(const struct server_url *url, char **out);
/* Make the tables that are not there yet, on one server; cluster NULL: those over all shards are not made. */
int server_init(const struct server_url *url, const char *cluster);

#endif

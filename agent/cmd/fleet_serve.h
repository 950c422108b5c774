/* agent/cmd/fleet_serve.h: serves the page over all hosts of a fleet. */
#ifndef AGENT_CMD_FLEET_SERVE_H
#define AGENT_CMD_FLEET_SERVE_H

struct fleet_serve {				    /* what the command line says; all borrowed */
	const char *url;			    /* of a ClickHouse server */
	const char *listen;			    /* NULL: 127.0.0.1:7228 */
	const char *token_file, *certificate, *key; /* paths; NULL: none */
};

/* Serve until a signal comes. Return the exit code. */
int fleet_serve(const struct fleet_serve *o);

#endif

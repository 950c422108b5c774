/* agent/cmd/fleet_answer.h: answers a request for the history from a fleet's ClickHouse, in this process. */
#ifndef AGENT_CMD_FLEET_ANSWER_H
#define AGENT_CMD_FLEET_ANSWER_H

#include "agent/http/http.h"

#include <stdbool.h>
#include <stddef.h>

struct fleet_asked {
	const char *url;
	const struct http_request *request;
	bool sql;   /* give the queries instead of the answer */
	bool posts; /* the request's body is a query for the server */
};

/*
 * Set *text to the answer, NUL-terminated, of *size bytes; the caller frees it. A negative code after reporting what
 * went wrong.
 */
int fleet_answer(const struct fleet_asked *asked, char **text, size_t *size);

#endif

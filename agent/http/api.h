/*
 * agent/http/api.h: answers the requests for the history (docs/api.md). It transports nothing, and knows
 * nothing of who asks.
 */
#ifndef AGENT_HTTP_API_H
#define AGENT_HTTP_API_H

#include "agent/history/history.h"
#include "agent/http/http.h"

struct channels;
struct cost;
struct recordings;
struct sending;

struct api { /* what one thread answers from; borrowed */
	struct history *history;
	struct sqlite3 *sql;	       /* api_sql_open; NULL: SQL and unwind tables are not there */
	struct cost *cost;	       /* what the daemon's processes use; NULL: it is not known */
	struct channels *supervisor;   /* which records for requests; NULL: nobody does */
	struct recordings *recordings; /* what became of these; NULL: it is not known */
	struct sending *sending;       /* what is sent to other systems; NULL: nothing */
};

/*
 * Open a connection for queries in SQL and for unwind tables: to the store, with the history attached as
 * "history". Errors are reported.
 */
int api_sql_open(const char *store, const char *history, struct sqlite3 **out);
void api_sql_close(struct sqlite3 *sql);

/*
 * Answer a request. Everything that goes wrong is in the reply. Status HTTP_LATER: it is to be answered again
 * when request->recording is over.
 */
void api_answer(struct api *api, const struct http_request *request, struct http_reply *reply);

/* Return for how many seconds a request wants to be profiled before it is answered; 0: not at all. */
uint32_t api_seconds(const struct http_request *request);

#endif

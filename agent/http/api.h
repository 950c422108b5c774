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

struct api_range {
	uint64_t from_ns, to_ns; /* since 1970 */
};

/* A sum over the samples of a slot of time with one value of a label. */
typedef int (*api_sum_fn)(void *ctx, const struct history_point *sum, const char *value);

/*
 * A store of many hosts that answers instead of a history. It fulfils the conditions of the request; what goes wrong
 * is in the reply, and a negative code.
 */
struct api_remote {
	void *ctx;
	/*
	 * Add the samples of a range to a profile, added up by stack and by the value of a label; key NULL: none,
	 * "*": all labels. frames: the stacks are wanted.
	 */
	int (*read)(void *ctx, const struct http_request *r, struct http_reply *reply,
		    const struct history_query *query, const char *key, bool frames,
		    struct stacks *stacks, struct history_found *found);
	/*
	 * Call fn for the sums by slot and by the value of a label; key NULL: of none. times false: all slots are one,
	 * which begins with the range. *type and *unit are borrowed until the next call.
	 */
	int (*scan)(void *ctx, const struct http_request *r, struct http_reply *reply,
		    const struct api_range *range, const char *key, bool times, api_sum_fn fn,
		    void *to, const char **type, const char **unit);
	/* Call fn for each key of labels, and for each name of a sample type. */
	int (*keys)(void *ctx, struct http_reply *reply, history_key_fn fn, void *to);
	int (*types)(void *ctx, struct http_reply *reply, history_key_fn fn, void *to);
	/* Call fn for the sum of each counter of a range, in their order by what and reason. */
	int (*counters)(void *ctx, struct http_reply *reply, const struct api_range *range,
			history_counter_fn fn, void *to);
	/* Give how long a slot is; 0: there are none in the range. */
	int (*slot)(void *ctx, struct http_reply *reply, const struct api_range *range,
		    uint64_t *ns);
};

struct api { /* what one thread answers from; borrowed */
	struct history *history;
	const struct api_remote *remote; /* NULL: history answers */
	struct sqlite3 *sql;	       /* api_sql_open; NULL: SQL and unwind tables are not there */
	struct cost *cost;	       /* what the daemon's processes use; NULL: it is not known */
	struct channels *supervisor;   /* which records for requests; NULL: nobody does */
	struct recordings *recordings; /* what became of these; NULL: it is not known */
	struct sending *sending;       /* what is sent to other systems; NULL: nothing */
};

/*
 * Open a connection for queries in SQL and for unwind tables: to the store, with the history attached as
 * "history". It borrows opened, which is that history, for the names of stacks. Errors are reported.
 */
int api_sql_open(const char *store, const char *history, struct history *opened,
		 struct sqlite3 **out);
void api_sql_close(struct sqlite3 *sql);

/*
 * Answer a request. Everything that goes wrong is in the reply. Status HTTP_LATER: it is to be answered again
 * when request->recording is over.
 */
void api_answer(struct api *api, const struct http_request *request, struct http_reply *reply);

/* Return whether an argument is a condition on a label: KEY=VALUE, not base.KEY=VALUE. */
bool api_is_label(const struct http_argument *argument);
/* Return the key of a condition on a label of the base, "comm" of "base.comm"; NULL: it is none. */
const char *api_base_key(const struct http_argument *argument);
/* Read the range of time of a request. -EINVAL: it is wrong; the reply says so. */
int api_range(const struct http_request *r, struct http_reply *reply, struct api_range *out);

/* Return for how many seconds a request wants to be profiled before it is answered; 0: not at all. */
uint32_t api_seconds(const struct http_request *request);

#endif

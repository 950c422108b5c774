/* agent/http/api_internal.h: what the files that answer requests share. */
#ifndef AGENT_HTTP_API_INTERNAL_H
#define AGENT_HTTP_API_INTERNAL_H

#include "agent/export/formats.h"
#include "agent/http/api.h"

#define API_LATE_NS UINT64_C(60000000000) /* without a window for so long, nothing is recorded */
enum { API_SECONDS_MAX = 3600 };	  /* that a request can wait for samples */

/* What of the samples is needed. */
struct api_wanted {
	const char *key; /* of the label that tells them apart; NULL: none; "*": all labels */
	bool times;
	uint32_t parts; /* as history_query.parts */
	bool no_frames; /* a store of many hosts need not give the stacks */
};

struct api_profile {
	struct api_range range;
	struct history_found found;
	struct stacks *stacks; /* the caller frees it */
	size_t type;	       /* the sample type that was asked for */
};

/* Set an error of the history as the reply. Return -EINVAL. */
int api_failed(struct http_reply *reply, int err);
/*
 * Read an argument that is a number, into *value if it was given. -EINVAL: it is wrong; the reply says so.
 * The functions that follow do the same.
 */
int api_number(const struct http_request *r, struct http_reply *reply, const char *key,
	       uint64_t least, uint64_t most, uint64_t *value);
/* Read the profile that from, to, type and the conditions on labels and functions describe. */
int api_load(struct api *api, const struct http_request *r, struct http_reply *reply,
	     const struct api_wanted *wanted, struct api_profile *out);

/* api.c: what is made of whole profiles, and how the daemon is. */
void api_profile(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_flamegraph(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_top(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_counters(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_health(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_ready(struct api *api, const struct http_request *r, struct http_reply *reply);

/* Read the argument format, by default pprof. -EINVAL: it is wrong; the reply says so. */
int api_format(const struct http_request *r, struct http_reply *reply, enum format *out);
/* Return the Content-Type of a format. */
const char *api_type_of(enum format format);

/* api_completeness.c: where stacks end that are not whole, by module and reason, as the rows of a table. */
void api_completeness(struct api *api, const struct http_request *r, struct http_reply *reply);

/* api_page.c: the page for browsers. */
void api_page(struct api *api, const struct http_request *r, struct http_reply *reply);

/* api_points.c: what single samples are needed for. */
void api_labels(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_timeline(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_heatmap(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_samples(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_explain(struct api *api, const struct http_request *r, struct http_reply *reply);

/* api_sql.c: unwind tables, and what is asked in SQL. */
void api_query(struct api *api, const struct http_request *r, struct http_reply *reply);
void api_unwind(struct api *api, const struct http_request *r, struct http_reply *reply);
/* Write the rule at an address of a file as a JSON string; null if no table has it. */
void api_put_rule(struct api *api, const char *build_id, uint64_t address, FILE *out);

/* api_record.c */
void api_record(struct api *api, const struct http_request *r, struct http_reply *reply);

/* api_metrics.c */
void api_metrics(struct api *api, const struct http_request *r, struct http_reply *reply);

#endif

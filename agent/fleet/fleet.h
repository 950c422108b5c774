/*
 * agent/fleet/fleet.h: asks ClickHouse what ran on all hosts (docs/fleet.md). The SQL is made here, and what the
 * server replies, in the format RowBinary, is read here; it is not trusted.
 */
#ifndef AGENT_FLEET_FLEET_H
#define AGENT_FLEET_FLEET_H

#include "agent/http/api.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Numbers that a query has as the table `ids`, with a column `id`. */
struct fleet_ids {
	const uint64_t *ids;
	size_t n;
};

/*
 * Ask one query. ids NULL: it needs none. *text is the reply, which the caller frees. A negative code after
 * reporting what is wrong.
 */
typedef int (*fleet_ask_fn)(void *ctx, const char *sql, const struct fleet_ids *ids, char **text,
			    size_t *size);

struct fleet { /* what one thread asks; all borrowed */
	fleet_ask_fn ask;
	void *ctx;
	FILE *sql;     /* each query is written there; NULL: it is not */
	size_t n_rows; /* stacks with the most of a value that are read; the rest is one row */
	char type[256], unit[256]; /* of the last question */
};

enum { FLEET_ROWS = 100000 };

/* What answers requests for the history from the fleet. The result borrows fleet. */
struct api_remote fleet_remote(struct fleet *fleet);

#endif

/* agent/fleet/queries.h: the queries to the fleet's tables in ClickHouse's SQL (schema/fleet_1.sql). */
#ifndef AGENT_FLEET_QUERIES_H
#define AGENT_FLEET_QUERIES_H

#include "agent/fleet/condition.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * The tables that can have what is asked for, the smallest first. Those by hour have whole hours, and another one has the rest
 * of a range.
 */
enum query_table {
	QUERY_HOST_TOTALS, /* by slot and host */
	QUERY_HOUR_SUMS,   /* by hour and stack; the rest is in sums */
	QUERY_SUMS,	   /* by slot and stack */
	QUERY_HOST_SUMS,   /* by hour, stack and host; the rest is in samples */
	QUERY_SAMPLES,	   /* all labels, too */
	QUERY_MERGED,	   /* samples, whose rows may be there twice: they are merged before */
};

struct query_sums { /* which samples are added up; all borrowed */
	const struct http_request *request;
	struct http_reply *reply;
	struct condition_range range;
	uint32_t type;
	bool counted; /* what was asked for is in n, not in value */
	enum query_table table;
	/* By the value of this label, which may be host; NULL: of none; "*": by all labels and host. */
	const char *key;
	bool stacks; /* by stack, too */
	bool times;  /* by slot, too */
	/* Of QUERY_HOST_SUMS: QUERY_HOST_TOTALS less the sums of the other stacks, which are fewer. */
	bool subtracts;
	size_t n_rows;
};

/* id, type, unit, counts of each sample type. */
void query_types(FILE *sql);
/* The keys of labels. */
void query_keys(FILE *sql);
/* what, reason, sum of n of the counters. */
void query_counters(FILE *sql, const struct condition_range *range);
/*
 * How many batches the range has, their slot, first and last time, how many rows they have (more: some are there twice), and the sum
 * of the ends of these rows.
 * -EINVAL: see condition_write.
 */
int query_batches(FILE *sql, struct http_reply *reply, const struct condition_range *range);
/* Whether a table is there, and the one that has the rest; and how many batches they have in the range, and the sum of their ends. */
void query_has_sums(FILE *sql, enum query_table table);
int query_summed_batches(FILE *sql, struct http_reply *reply, const struct condition_range *range,
			 enum query_table table);
/*
 * How many stacks there are, of all times, and for how many of them the conditions on functions and files are met; there must be
 * some. -EINVAL: see condition_write.
 */
int query_share(FILE *sql, const struct query_sums *asked);
/* stack, labels, value of the label, sum of n, sum of value: the rows with the most. -EINVAL: see condition_write. */
int query_sums(FILE *sql, const struct query_sums *asked);
/* Sum of n, sum of value of all of them. */
int query_total(FILE *sql, const struct query_sums *asked);
/* When a slot begins (0: not asked for), value of the label, sum of n, sum of value. */
int query_points(FILE *sql, const struct query_sums *asked);

/* Of what ids has: stack, frames; frame, build_id, vaddr, module, functions, files, lines, version; labels, keys, vals. */
void query_stacks(FILE *sql);
void query_names(FILE *sql);
void query_labels(FILE *sql);

#endif

/* agent/fleet/queries.c: writes the queries to the fleet's tables in ClickHouse's SQL. */
#include "agent/fleet/queries.h"

#include <string.h>

/* Return the table of samples; rows that may be there twice are merged before. */
static const char *samples_of(const struct query_sums *q)
{
	return q->summed ? "sums" : q->twice ? "samples FINAL" : "samples";
}

static bool is_host(const struct query_sums *q)
{
	return q->key && !strcmp(q->key, "host");
}

static bool has_all(const struct query_sums *q)
{
	return q->key && !strcmp(q->key, "*");
}

/* Return whether the sums need the rows of label_sets. */
static bool is_joined(const struct query_sums *q)
{
	return q->key && !is_host(q) && !has_all(q);
}

static int put_conditions(FILE *sql, const struct query_sums *q)
{
	return condition_write(sql, q->request, q->reply, &q->range, q->type);
}

void query_types(FILE *sql)
{
	(void)fputs("SELECT DISTINCT id, type, unit, counts FROM types ORDER BY type", sql);
}

void query_keys(FILE *sql)
{
	(void)fputs(
		"SELECT DISTINCT arrayJoin(keys) AS key FROM label_sets ORDER BY key LIMIT 1000",
		sql);
}

void query_counters(FILE *sql, const struct condition_range *range)
{
	(void)fputs("SELECT what, reason, toInt64(sum(n)) FROM counters FINAL WHERE ", sql);
	condition_time(sql, range);
	(void)fputs(" GROUP BY what, reason ORDER BY what, reason", sql);
}

int query_batches(FILE *sql, struct http_reply *reply, const struct condition_range *range)
{
	const struct http_request none = { .n_arguments = 0 };
	int err;

	(void)fputs("SELECT toUInt64(count()), toUInt64(max(slot)), toUInt64(toUInt32(min(time))), "
		    "toUInt64(toUInt32(max(time))), toUInt64(max(times)), toInt64(sum(until)) FROM "
		    "(SELECT host, time, window, max(n) AS slot, max(value) AS until, "
		    "count() AS times FROM samples WHERE ",
		    sql);
	err = condition_write(sql, &none, reply, range, 0);
	(void)fputs(" GROUP BY host, time, window)", sql);
	return err;
}

void query_has_sums(FILE *sql)
{
	(void)fputs("SELECT toUInt64(count()) FROM system.tables WHERE database = "
		    "currentDatabase() AND name = 'sums'",
		    sql);
}

int query_summed_batches(FILE *sql, struct http_reply *reply, const struct condition_range *range)
{
	const struct http_request none = { .n_arguments = 0 };

	(void)fputs("SELECT toUInt64(sum(rows)), toInt64(sum(value)) FROM sums WHERE ", sql);
	return condition_write(sql, &none, reply, range, 0);
}

/* The columns that rows of samples are added up by. */
static const char *columns_of(const struct query_sums *q)
{
	if (is_joined(q))
		return q->stacks ? "stack, labels" : "labels";
	if (!q->stacks)
		return is_host(q) || has_all(q) ? "host" : "type";
	return has_all(q) ? "stack, labels, host" : is_host(q) ? "stack, host" : "stack";
}

/* Sums by a label: the rows of samples are added up before the labels are joined. Since 19.14, what is joined needs a name. */
static int put_joined(FILE *sql, const struct query_sums *q, const char *first, const char *columns,
		      const char *groups)
{
	int err;

	(void)fprintf(sql, "SELECT %s", first);
	condition_value(sql, q->key);
	(void)fprintf(sql,
		      " AS word, toUInt64(sum(part_n)), toInt64(sum(part_value)) FROM (SELECT %s, "
		      "sum(n) AS part_n, sum(value) AS part_value FROM %s WHERE ",
		      columns, samples_of(q));
	err = put_conditions(sql, q);
	(void)fprintf(sql,
		      " GROUP BY %s) AS parts ANY LEFT JOIN (SELECT labels, keys, vals FROM "
		      "label_sets) AS sets USING labels GROUP BY %s",
		      columns, groups);
	return err;
}

int query_sums(FILE *sql, const struct query_sums *q)
{
	const char *columns = columns_of(q), *stack = q->stacks ? "stack" : "toUInt64(0)";
	const char *part = is_joined(q) ? "part_" : "";
	char first[64];
	int err;

	if (is_joined(q)) {
		(void)snprintf(first, sizeof(first), "%s, toUInt64(0), ", stack);
		err = put_joined(sql, q, first, columns, q->stacks ? "stack, word" : "word");
	} else {
		(void)fprintf(sql,
			      "SELECT %s, %s, %s, toUInt64(sum(n)), toInt64(sum(value)) FROM %s "
			      "WHERE ",
			      stack, has_all(q) ? "labels" : "toUInt64(0)",
			      has_all(q) || is_host(q) ? "host" : "''", samples_of(q));
		err = put_conditions(sql, q);
		(void)fprintf(sql, " GROUP BY %s", columns);
	}
	(void)fprintf(sql, " ORDER BY sum(%s%s) DESC LIMIT %zu", part, q->counted ? "n" : "value",
		      q->n_rows);
	return err;
}

int query_total(FILE *sql, const struct query_sums *q)
{
	(void)fprintf(sql, "SELECT toUInt64(sum(n)), toInt64(sum(value)) FROM %s WHERE ",
		      samples_of(q));
	return put_conditions(sql, q);
}

int query_points(FILE *sql, const struct query_sums *q)
{
	static const char first[] = "toUInt64(toUInt32(time)), ";
	int err;

	if (is_joined(q))
		return put_joined(sql, q, first, "time, labels", "time, word");
	(void)fprintf(sql,
		      "SELECT %s%s AS word, toUInt64(sum(n)), toInt64(sum(value)) FROM %s WHERE ",
		      first, is_host(q) ? "host" : "''", samples_of(q));
	err = put_conditions(sql, q);
	(void)fputs(" GROUP BY time, word", sql);
	return err;
}

void query_stacks(FILE *sql)
{
	/* Each shard has stacks of its own, and some come twice until they are merged. */
	(void)fputs("SELECT stack, frames FROM stacks WHERE stack GLOBAL IN ids LIMIT 1 BY stack",
		    sql);
}

void query_names(FILE *sql)
{
	(void)fputs("SELECT frame, build_id, vaddr, module, functions, files, lines, version FROM "
		    "names WHERE frame GLOBAL IN ids LIMIT 1 BY frame, version",
		    sql);
}

void query_labels(FILE *sql)
{
	(void)fputs("SELECT labels, keys, vals FROM label_sets WHERE labels GLOBAL IN ids "
		    "LIMIT 1 BY labels",
		    sql);
}

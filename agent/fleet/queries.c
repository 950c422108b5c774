/* agent/fleet/queries.c: writes the queries to the fleet's tables in ClickHouse's SQL. */
#include "agent/fleet/queries.h"

#include <string.h>

static const struct {
	const char *name;
	enum query_table rest; /* of one by hour: what has the rest of a range; else itself */
} tables[] = {
	[QUERY_HOST_TOTALS] = { "host_totals", QUERY_HOST_TOTALS },
	[QUERY_HOUR_SUMS] = { "hour_sums", QUERY_SUMS },
	[QUERY_SUMS] = { "sums", QUERY_SUMS },
	[QUERY_HOST_SUMS] = { "host_sums", QUERY_SAMPLES },
	[QUERY_SAMPLES] = { "samples", QUERY_SAMPLES },
	[QUERY_MERGED] = { "samples FINAL", QUERY_MERGED },
};

static bool is_by_hour(enum query_table table)
{
	return tables[table].rest != table;
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

/* Write the condition on the hours that lie in the range as a whole, or on the others; and on stacks. */
static int put_part(FILE *sql, const struct query_sums *q, enum condition_part part,
		    enum condition_stacks stacks)
{
	struct condition_range range = q->range;

	range.part = part;
	range.stacks = stacks;
	return condition_write(sql, q->request, q->reply, &range, q->type);
}

/* Return the table that has a part of the range. */
static const char *name_of(enum query_table table, enum condition_part part)
{
	return tables[part == CONDITION_OTHER_HOURS ? tables[table].rest : table].name;
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

	/* A set of hashes takes a third of the time that groups take. */
	(void)fputs("SELECT toUInt64(uniqExact(host, time, window)), toUInt64(max(n)), "
		    "toUInt64(toUInt32(min(time))), toUInt64(toUInt32(max(time))), "
		    "toUInt64(count()), toInt64(sum(value)) FROM samples WHERE ",
		    sql);
	return condition_write(sql, &none, reply, range, 0);
}

void query_has_sums(FILE *sql, enum query_table table)
{
	(void)fprintf(sql,
		      "SELECT toUInt64(count() = %d) FROM system.tables WHERE database = "
		      "currentDatabase() AND name IN ('%s', '%s')",
		      is_by_hour(table) ? 2 : 1, tables[table].name,
		      tables[tables[table].rest].name);
}

/* Write what adds up the batches of a table: each is a row of samples, and tables of sums count them. */
static void put_batches_of(FILE *sql, enum query_table table)
{
	(void)fprintf(sql, "SELECT %s AS part_rows, sum(value) AS part_value FROM %s WHERE ",
		      table == QUERY_SAMPLES ? "count()" : "sum(rows)", tables[table].name);
}

int query_summed_batches(FILE *sql, struct http_reply *reply, const struct condition_range *range,
			 enum query_table table)
{
	const struct http_request none = { .n_arguments = 0 };
	const struct query_sums all = { .request = &none, .reply = reply, .range = *range };
	int err;

	(void)fputs("SELECT toUInt64(sum(part_rows)), toInt64(sum(part_value)) FROM (", sql);
	put_batches_of(sql, table);
	err = put_part(sql, &all, is_by_hour(table) ? CONDITION_WHOLE_HOURS : CONDITION_ALL,
		       CONDITION_ALL_STACKS);
	if (!err && is_by_hour(table)) {
		(void)fputs(" UNION ALL ", sql);
		put_batches_of(sql, tables[table].rest);
		err = put_part(sql, &all, CONDITION_OTHER_HOURS, CONDITION_ALL_STACKS);
	}
	(void)fputs(") AS parts", sql);
	return err;
}

int query_share(FILE *sql, const struct query_sums *q)
{
	int err;

	(void)fputs("SELECT toUInt64(sum(part_all)), toUInt64(sum(part_matching)) FROM (SELECT "
		    "count() AS part_all, toUInt64(0) AS part_matching FROM stacks UNION ALL "
		    "SELECT toUInt64(0) AS part_all, count() AS part_matching FROM stacks WHERE ",
		    sql);
	err = condition_frames(sql, q->request, q->reply, CONDITION_MATCHING);
	(void)fputs(") AS parts", sql);
	return err;
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

/* Sums of rows by these columns, as part_n and part_value. */
static int put_sums_of(FILE *sql, const struct query_sums *q, const char *columns,
		       enum query_table table, enum condition_part part)
{
	int err;

	(void)fprintf(sql, "SELECT %s, sum(n) AS part_n, sum(value) AS part_value FROM %s WHERE ",
		      columns, tables[table].name);
	err = put_part(sql, q, part, CONDITION_MATCHING);
	(void)fprintf(sql, " GROUP BY %s", columns);
	return err;
}

/*
 * Write the sums of a part of the range by host that are to be subtracted. The sums of all hosts say which stacks there are
 * besides those asked for: as a list, they choose ranges of the table's key.
 */
static int put_others(FILE *sql, const struct query_sums *q, enum condition_part part)
{
	struct query_sums all = *q;
	int err;

	all.range.all_labels = true; /* sums of all hosts have none */
	(void)fprintf(sql,
		      " UNION ALL SELECT host, -toInt64(sum(n)) AS part_n, -toInt64(sum(value)) AS "
		      "part_value FROM %s WHERE ",
		      name_of(QUERY_HOST_SUMS, part));
	err = put_part(sql, q, part, CONDITION_ALL_STACKS);
	if (err)
		return err;
	(void)fprintf(sql, " AND stack IN (SELECT stack FROM %s WHERE ",
		      name_of(QUERY_HOUR_SUMS, part));
	err = put_part(sql, &all, part, CONDITION_OTHER_STACKS);
	(void)fputs(") GROUP BY host", sql);
	return err;
}

/* The sums of all stacks by host, and those of the others, negative, as a table in parentheses. */
static int put_difference(FILE *sql, const struct query_sums *q)
{
	int err;

	(void)fprintf(sql,
		      "(SELECT host, toInt64(sum(n)) AS part_n, toInt64(sum(value)) AS part_value "
		      "FROM %s WHERE ",
		      tables[QUERY_HOST_TOTALS].name);
	err = put_part(sql, q, CONDITION_ALL, CONDITION_ALL_STACKS);
	(void)fputs(" GROUP BY host", sql);
	if (!err)
		err = put_others(sql, q, CONDITION_WHOLE_HOURS);
	if (!err)
		err = put_others(sql, q, CONDITION_OTHER_HOURS);
	(void)fputs(") AS parts", sql);
	return err;
}

/* The same as a table in parentheses. Shards add up their own rows of each half. */
static int put_parts(FILE *sql, const struct query_sums *q, const char *columns)
{
	bool halves = is_by_hour(q->table);
	int err;

	(void)fputc('(', sql);
	err = put_sums_of(sql, q, columns, q->table,
			  halves ? CONDITION_WHOLE_HOURS : CONDITION_ALL);
	if (!err && halves) {
		(void)fputs(" UNION ALL ", sql);
		err = put_sums_of(sql, q, columns, tables[q->table].rest, CONDITION_OTHER_HOURS);
	}
	/* Since 19.14, what is joined needs a name. */
	(void)fputs(") AS parts", sql);
	return err;
}

/* Sums by a label: the rows of samples are added up before the labels are joined. */
static int put_joined(FILE *sql, const struct query_sums *q, const char *first, const char *columns,
		      const char *groups)
{
	int err;

	(void)fprintf(sql, "SELECT %s", first);
	condition_value(sql, q->key);
	(void)fputs(" AS word, toUInt64(sum(part_n)), toInt64(sum(part_value)) FROM ", sql);
	err = put_parts(sql, q, columns);
	(void)fprintf(sql,
		      " ANY LEFT JOIN (SELECT labels, keys, vals FROM label_sets) AS sets USING "
		      "labels GROUP BY %s",
		      groups);
	return err;
}

/* Write where sums come from, and the conditions. */
static int put_source(FILE *sql, const struct query_sums *q, const char *columns)
{
	if (q->subtracts)
		return put_difference(sql, q);
	if (is_by_hour(q->table))
		return put_parts(sql, q, columns);
	(void)fprintf(sql, "%s WHERE ", tables[q->table].name);
	return put_conditions(sql, q);
}

/* Return what comes before n and value where they are added up. */
static const char *part_of(const struct query_sums *q)
{
	return is_joined(q) || is_by_hour(q->table) ? "part_" : "";
}

int query_sums(FILE *sql, const struct query_sums *q)
{
	const char *columns = columns_of(q), *stack = q->stacks ? "stack" : "toUInt64(0)";
	const char *part = part_of(q);
	char first[64];
	int err;

	if (is_joined(q)) {
		(void)snprintf(first, sizeof(first), "%s, toUInt64(0), ", stack);
		err = put_joined(sql, q, first, columns, q->stacks ? "stack, word" : "word");
	} else {
		(void)fprintf(sql,
			      "SELECT %s, %s, %s, toUInt64(sum(%sn)), toInt64(sum(%svalue)) FROM ",
			      stack, has_all(q) ? "labels" : "toUInt64(0)",
			      has_all(q) || is_host(q) ? "host" : "''", part, part);
		err = put_source(sql, q, columns);
		(void)fprintf(sql, " GROUP BY %s", columns);
	}
	(void)fprintf(sql, " ORDER BY sum(%s%s) DESC LIMIT %zu", part, q->counted ? "n" : "value",
		      q->n_rows);
	return err;
}

int query_total(FILE *sql, const struct query_sums *q)
{
	const char *part = is_by_hour(q->table) ? "part_" : "";

	(void)fprintf(sql, "SELECT toUInt64(sum(%sn)), toInt64(sum(%svalue)) FROM ", part, part);
	return put_source(sql, q, "type");
}

int query_points(FILE *sql, const struct query_sums *q)
{
	const char *first = q->times ? "toUInt64(toUInt32(time)), " : "toUInt64(0), ";
	const char *part = part_of(q);
	int err;

	if (is_joined(q))
		return put_joined(sql, q, first, q->times ? "time, labels" : "labels",
				  q->times ? "time, word" : "word");
	(void)fprintf(sql, "SELECT %s%s AS word, toUInt64(sum(%sn)), toInt64(sum(%svalue)) FROM ",
		      first, is_host(q) ? "host" : "''", part, part);
	err = put_source(sql, q, is_host(q) ? "host" : "type");
	(void)fputs(q->times ? " GROUP BY time, word" : " GROUP BY word", sql);
	/* A host without the stacks has no row. */
	if (q->subtracts)
		(void)fputs(" HAVING sum(part_n) != 0 OR sum(part_value) != 0", sql);
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

/* agent/fleet/condition.c: writes the conditions of a request in ClickHouse's SQL. */
#include "agent/fleet/condition.h"

#include "agent/cli/selection.h"
#include "agent/http/api.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)

static void put_quoted(FILE *sql, const char *text, size_t size)
{
	(void)fputc('\'', sql);
	for (size_t i = 0; i < size; i++) {
		if (text[i] == '\'' || text[i] == '\\')
			(void)fputc('\\', sql);
		(void)fputc(text[i], sql);
	}
	(void)fputc('\'', sql);
}

void condition_text(FILE *sql, const char *text)
{
	put_quoted(sql, text, strlen(text));
}

void condition_value(FILE *sql, const char *key)
{
	(void)fputs("vals[indexOf(keys, ", sql);
	condition_text(sql, key);
	(void)fputs(")]", sql);
}

/* ---- labels ------------------------------------------------------------------------------- */

/* How values become a list in SQL. */
struct list {
	FILE *sql;
	const char *before, *after, *between;
	const char *empty; /* for an empty value; NULL: as for others */
	bool any;
};

static void put_item(struct list *l, const char *value, size_t size)
{
	(void)fputs(l->any ? l->between : "", l->sql);
	l->any = true;
	if (!size && l->empty) {
		(void)fputs(l->empty, l->sql);
		return;
	}
	(void)fputs(l->before, l->sql);
	put_quoted(l->sql, value, size);
	(void)fputs(l->after, l->sql);
}

/* Write the values, which commas separate; a comma behind a backslash is part of a value. */
static int put_items(struct list *l, const char *values)
{
	char *value = malloc(strlen(values) + 1);
	size_t n = 0;

	if (!value)
		return -ENOMEM;
	for (const char *at = values;; at++) {
		if (*at == '\\' && at[1] == ',') {
			value[n++] = *++at;
		} else if (*at && *at != ',') {
			value[n++] = *at;
		} else {
			put_item(l, value, n);
			n = 0;
		}
		if (!*at)
			break;
	}
	free(value);
	return 0;
}

/* Return the key of an argument that is a condition on a label; NULL: it is none. */
static const char *label_of(const struct http_argument *a, bool base)
{
	return base ? api_base_key(a) : api_is_label(a) ? a->key : NULL;
}

enum condition_labels condition_labels(const struct http_request *r, bool base)
{
	enum condition_labels found = CONDITION_NO_LABELS;

	for (size_t i = 0; i < r->n_arguments; i++) {
		const char *key = label_of(&r->arguments[i], base);

		if (key && strcmp(key, "host") != 0)
			return CONDITION_LABELS;
		if (key)
			found = CONDITION_HOSTS;
	}
	return found;
}

/* Return whether an argument before this one has the same key. */
static bool was_before(const struct http_request *r, size_t argument, const char *key, bool base)
{
	for (size_t i = 0; i < argument; i++) {
		const char *other = label_of(&r->arguments[i], base);

		if (other && !strcmp(other, key))
			return true;
	}
	return false;
}

/* Write the condition of one key; the values of all its arguments are alternatives. */
static int put_label(FILE *sql, const struct http_request *r, const char *key, bool base)
{
	static const char container[] = "startsWith(vals[indexOf(keys, 'container_id')], ";
	/* Each value begins with an empty one: that means no container. */
	static const char none[] = "vals[indexOf(keys, 'container_id')] = ''";
	bool host = !strcmp(key, "host"), begins = selection_takes_beginning(key);
	struct list list = { .sql = sql,
			     .before = begins ? container : "",
			     .after = begins ? ")" : "",
			     .between = begins ? " OR " : ", ",
			     .empty = begins ? none : NULL };
	int err = 0;

	(void)fputs(host ? " AND host" : " AND labels IN (SELECT labels FROM label_sets WHERE ",
		    sql);
	if (!host && !begins)
		condition_value(sql, key);
	(void)fputs(begins ? "(" : " IN (", sql);
	for (size_t i = 0; i < r->n_arguments && !err; i++) {
		const struct http_argument *a = &r->arguments[i];
		const char *other = label_of(a, base);

		if (!other || strcmp(other, key) != 0)
			continue;
		err = put_items(&list, a->value);
		/* A stack that ended at its root has no label stop. */
		if (!strcmp(key, "stop") && selection_has_value(a->value, false, "root"))
			put_item(&list, "", 0);
	}
	(void)fputs(host ? ")" : "))", sql);
	return err;
}

/* ---- functions and files ------------------------------------------------------------------ */

/* Return whether a regular expression is ^TEXT$, with no other special character; then write TEXT. */
static bool is_literal(const char *regex, char *text, size_t size)
{
	size_t n = strlen(regex);

	if (n < 3 || n - 2 >= size || regex[0] != '^' || regex[n - 1] != '$')
		return false;
	memcpy(text, regex + 1, n - 2);
	text[n - 2] = '\0';
	return !text[strcspn(text, ".[]{}()\\*+?|^$")];
}

/* Write that a column matches. */
static void put_match(FILE *sql, const char *column, const char *regex)
{
	char text[1024];

	if (is_literal(regex, text, sizeof(text))) {
		(void)fprintf(sql, "%s = ", column);
		condition_text(sql, text);
		return;
	}
	(void)fprintf(sql, "match(%s, ", column);
	condition_text(sql, regex);
	(void)fputc(')', sql);
}

static void put_stacks(FILE *sql, const char *key, const char *regex)
{
	(void)fprintf(sql,
		      "stack %sIN (SELECT stack FROM stacks_by_frame WHERE frame IN (SELECT "
		      "frame FROM ",
		      !strcmp(key, "ignore") ? "NOT " : "");
	if (!strcmp(key, "module")) {
		(void)fputs("names WHERE ", sql);
		put_match(sql, "module", regex);
	} else {
		/* The index may still have names that were replaced. */
		(void)fputs("names WHERE frame IN (SELECT frame FROM frames_by_function WHERE ",
			    sql);
		put_match(sql, "function", regex);
		(void)fputs(") AND arrayExists(f -> ", sql);
		put_match(sql, "f", regex);
		(void)fputs(", functions)", sql);
	}
	(void)fputs("))", sql);
}

static bool is_of_frames(const char *key)
{
	return !strcmp(key, "focus") || !strcmp(key, "ignore") || !strcmp(key, "module");
}

bool condition_has_frames(const struct http_request *r)
{
	for (size_t i = 0; i < r->n_arguments; i++)
		if (is_of_frames(r->arguments[i].key))
			return true;
	return false;
}

int condition_no_processes(struct http_reply *reply, const char *key)
{
	return http_fail(reply, 400, "the fleet's samples have no %s: ask the host itself", key);
}

static uint64_t second_of(uint64_t ns)
{
	return (ns + SECOND_NS - 1) / SECOND_NS;
}

void condition_time(FILE *sql, const struct condition_range *range)
{
	(void)fprintf(sql, "time >= toDateTime(%" PRIu64 ") AND time < toDateTime(%" PRIu64 ")",
		      second_of(range->from_ns), second_of(range->to_ns));
}

/* Return when the last hour begins that is over before the range ends; 0: there is none. */
static uint64_t last_hour_of(const struct condition_range *range)
{
	uint64_t to = second_of(range->to_ns);

	return to > 3600 ? to - 3600 : 0;
}

/*
 * Write the same for the hours, which follows from it, and which the keys of samples and sums have: ClickHouse 18.16
 * does not see that it follows, and would read all rows of a day.
 */
static void put_hours(FILE *sql, const struct condition_range *range)
{
	(void)fprintf(sql,
		      " AND toStartOfHour(time) >= toStartOfHour(toDateTime(%" PRIu64
		      ")) AND toStartOfHour(time) <= toStartOfHour(toDateTime(%" PRIu64 "))",
		      second_of(range->from_ns), second_of(range->to_ns));
}

/* When hours begin is left to the server: its time zone may differ from others by half an hour. */
static void put_range(FILE *sql, const struct condition_range *range)
{
	uint64_t from = second_of(range->from_ns), last = last_hour_of(range);

	if (range->part == CONDITION_WHOLE_HOURS) {
		(void)fprintf(sql,
			      "hour >= toDateTime(%" PRIu64 ") AND hour <= toDateTime(%" PRIu64 ")",
			      from, last);
		return;
	}
	condition_time(sql, range);
	put_hours(sql, range);
	if (range->part == CONDITION_OTHER_HOURS)
		(void)fprintf(sql,
			      " AND (toStartOfHour(time) < toDateTime(%" PRIu64
			      ") OR toStartOfHour(time) > toDateTime(%" PRIu64 "))",
			      from, last);
}

int condition_frames(FILE *sql, const struct http_request *r, struct http_reply *reply,
		     enum condition_stacks stacks)
{
	bool others = stacks == CONDITION_OTHER_STACKS;
	char why[SELECTION_WHY];
	const char *before = others ? "NOT (" : "";

	for (size_t i = 0; i < r->n_arguments; i++) {
		const struct http_argument *a = &r->arguments[i];

		if (!is_of_frames(a->key))
			continue;
		if (!selection_is_regex(a->value, why))
			return http_fail(reply, 400, "%s: '%.100s' is no valid condition: %s",
					 a->key, a->value, why);
		(void)fputs(before, sql);
		put_stacks(sql, a->key, a->value);
		before = " AND ";
	}
	(void)fputs(others ? ")" : "", sql);
	return 0;
}

int condition_write(FILE *sql, const struct http_request *r, struct http_reply *reply,
		    const struct condition_range *range, uint32_t type)
{
	int err = 0;

	(void)fprintf(sql, "type = %" PRIu32 " AND ", type);
	put_range(sql, range);
	if (range->stacks != CONDITION_ALL_STACKS && condition_has_frames(r)) {
		(void)fputs(" AND ", sql);
		err = condition_frames(sql, r, reply, range->stacks);
	}
	if (err)
		return err;
	for (size_t i = 0; i < r->n_arguments && !range->all_labels; i++) {
		const char *key = label_of(&r->arguments[i], range->base);

		if (!key || was_before(r, i, key, range->base))
			continue;
		if (!strcmp(key, "pid") || !strcmp(key, "tid"))
			return condition_no_processes(reply, key);
		if (put_label(sql, r, key, range->base))
			return http_fail(reply, 503, "there is no memory");
	}
	return 0;
}

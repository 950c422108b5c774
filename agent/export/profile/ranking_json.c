/* agent/export/profile/ranking_json.c: the JSON form of a ranking. */
#include "agent/export/profile/ranking_json.h"

#include "agent/export/json.h"

#include <inttypes.h>
#include <time.h>

/* values of "by" */
static const char *const kinds[] = {
	[RANKING_SYMBOL] = "symbol", [RANKING_MODULE] = "module",
	[RANKING_SOURCE] = "source", [RANKING_PID] = "pid",
	[RANKING_COMM] = "comm",     [RANKING_THREAD] = "thread",
	[RANKING_STOP] = "stop",     [RANKING_CONTAINER] = "container",
	[RANKING_UNIT] = "unit",     [RANKING_SERVICE] = "service",
	[RANKING_EXE] = "exe",	     [RANKING_USER] = "user",
	[RANKING_HOST] = "host",     [RANKING_WAKER] = "waker",
};

/* keys of the rows' names */
static const char *const names[] = {
	[RANKING_SYMBOL] = "function", [RANKING_MODULE] = "module",
	[RANKING_SOURCE] = "source",   [RANKING_PID] = "comm",
	[RANKING_COMM] = "comm",       [RANKING_THREAD] = "thread",
	[RANKING_STOP] = "stop",       [RANKING_CONTAINER] = "container",
	[RANKING_UNIT] = "unit",       [RANKING_SERVICE] = "service",
	[RANKING_EXE] = "exe",	       [RANKING_USER] = "user",
	[RANKING_HOST] = "host",       [RANKING_WAKER] = "waker",
};

/* Write an array of strings, and a comma. */
static void put_texts(const char *key, const char *const *texts, size_t n, FILE *out)
{
	(void)fprintf(out, "\"%s\":[", key);
	for (size_t i = 0; i < n; i++) {
		if (i)
			(void)fputc(',', out);
		json_text(out, texts[i]);
	}
	(void)fputs("],\n", out);
}

/* Write the members before "rows". */
static void put_head(const struct stacks *s, size_t type, const struct ranking *r,
		     const struct ranking_json *o, FILE *out)
{
	size_t counter = stacks_counter_of(s, type);
	put_texts("files", (const char *const *)o->paths, (size_t)o->n_paths, out);
	if (o->base) {
		(void)fputs("\"base\":", out);
		json_text(out, o->base);
		(void)fprintf(out, ",\"base_value\":%" PRId64 ",\n", r->base_total);
	}
	if (s->time_ns >= 1000000000) {
		time_t when = (time_t)(s->time_ns / 1000000000);
		struct tm tm;
		char text[64];

		if (gmtime_r(&when, &tm) && strftime(text, sizeof(text), "%FT%TZ", &tm))
			(void)fprintf(out, "\"begun\":\"%s\",\n", text);
	}
	if (s->duration_ns > 0)
		(void)fprintf(out, "\"duration_ns\":%" PRId64 ",\n", s->duration_ns);
	put_texts("comments", s->comments, s->n_comments, out);
	if (counter < s->n_types)
		(void)fprintf(out, "\"samples\":%" PRId64 ",\n", stacks_total(s, counter));
	(void)fputs("\"type\":", out);
	json_text(out, s->types[type].type);
	(void)fputs(",\"unit\":", out);
	json_text(out, s->types[type].unit);
	(void)fprintf(out, ",\"value\":%" PRId64 ",\n\"by\":\"%s\",\"sort\":\"%s\",\n", r->total,
		      kinds[r->by], o->sort);
}

/* Write a value and its share: ,"self":12,"self_percent":3.5 */
static void put_value(const char *key, int64_t value, int64_t whole, FILE *out)
{
	(void)fprintf(out, ",\"%s\":%" PRId64 ",\"%s_percent\":%.6g", key, value, key,
		      ranking_percent(value, whole));
}

/*
 * Write a row. ranking_row.where is the module of a function, or the numbers of a process or
 * thread.
 */
static void put_row(const struct ranking *r, const struct ranking_row *row,
		    const struct ranking_json *o, FILE *out)
{
	uint64_t pid, tid;

	(void)fprintf(out, "{\"%s\":", names[r->by]);
	json_text(out, row->name);
	if (r->by == RANKING_SYMBOL) {
		(void)fputs(",\"module\":", out);
		json_text(out, row->where);
	} else if (r->by == RANKING_PID && sscanf(row->where, "%" SCNu64, &pid) == 1) {
		(void)fprintf(out, ",\"pid\":%" PRIu64, pid);
	} else if (r->by == RANKING_THREAD &&
		   sscanf(row->where, "%" SCNu64 "/%" SCNu64, &pid, &tid) == 2) {
		(void)fprintf(out, ",\"pid\":%" PRIu64 ",\"tid\":%" PRIu64, pid, tid);
	}
	put_value("self", row->self, r->total, out);
	put_value("total", row->total, r->total, out);
	if (o->base) {
		put_value("base_self", row->base_self, r->base_total, out);
		put_value("base_total", row->base_total, r->base_total, out);
	}
	(void)fputc('}', out);
}

void ranking_json_print(const struct stacks *s, size_t type, const struct ranking *r,
			const struct ranking_json *o, FILE *out)
{
	size_t n = o->n && o->n < r->n_rows ? o->n : r->n_rows;

	(void)fputc('{', out);
	put_head(s, type, r, o, out);
	(void)fputs("\"rows\":[", out);
	for (size_t i = 0; i < n; i++) {
		(void)fputs(i ? ",\n" : "\n", out);
		put_row(r, &r->rows[i], o, out);
	}
	(void)fprintf(out, "],\n\"rows_left_out\":%zu}\n", r->n_rows - n);
}

/* agent/http/api_points.c: answers for which single samples are needed: timeline, heat map, labels. */
#include "agent/http/api_internal.h"

#include "agent/array.h"
#include "agent/cli/selection.h"
#include "agent/export/json.h"
#include "agent/history/matching.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	LABEL_MAX = 4096,
	SERIES_DEFAULT = 12,
	SERIES_MAX = 1000,
	STEPS_MAX = 20000,
	ROWS_MAX = 1000,
	HOUR_MS = 3600000,
};
#define CELLS_MAX	 2000000
#define SERIES_CELLS_MAX 8000000 /* as the page asks: 20,000 containers, and 400 steps */
#define NONE		 UINT32_MAX

/* ---- which samples ------------------------------------------------------------------------ */

/* The values of a label, numbered, and what is known of each row in labels. */
struct points {
	struct api *api;
	const struct http_request *r;
	struct api_range range;
	const char *key; /* whose values are told apart; NULL: none */
	bool any_time;	 /* what is asked for does not depend on when it was */
	bool by_pid, by_tid;
	bool asks_pid, asks_tid; /* there are conditions on them */
	const char *value; /* of the sum that another store gives; NULL: the history is read */
	struct selection *focus; /* NULL: stacks need no function */
	char *focus_text;
	struct matching matching;
	struct strings texts;
	const char **values; /* by number */
	size_t n_values, room_values;
	/* By id in labels: the number of the value + 1; 0: not looked up; NONE: not wanted. */
	uint32_t *of;
	size_t n_of;
	struct uw_hash_index by_value;
	/* By number, the pid or tid whose text is the value: a text for each point would take most of the time. */
	uint32_t *ids;
	size_t n_ids, room_ids;
	struct uw_hash_index by_id;
};

static void points_fini(struct points *p)
{
	strings_fini(&p->texts);
	free(p->values);
	free(p->of);
	uw_hash_fini(&p->by_value);
	free(p->ids);
	uw_hash_fini(&p->by_id);
	matching_fini(&p->matching);
	if (p->focus)
		selection_fini(p->focus);
	free(p->focus);
	free(p->focus_text);
}

/* Forget which values there were. */
static void points_forget(struct points *p)
{
	p->n_values = p->n_ids = 0;
	if (p->n_of)
		memset(p->of, 0, p->n_of * sizeof(*p->of));
	uw_hash_clear(&p->by_value);
	uw_hash_clear(&p->by_id);
}

/* Write the value of a label; a stack that ended at its root has no label stop. */
static int read_label(struct points *p, uint64_t labels, const char *key, char value[LABEL_MAX])
{
	int err = history_label(p->api->history, labels, key, value, LABEL_MAX);

	if (!err && !*value && !strcmp(key, "stop"))
		(void)snprintf(value, LABEL_MAX, "root");
	return err;
}

/* Return whether a value meets one of the conditions on its label, if there are any. */
static bool value_is_wanted(const struct points *p, const char *key, const char *value)
{
	bool any = false;

	for (size_t i = 0; i < p->r->n_arguments; i++) {
		const struct http_argument *a = &p->r->arguments[i];

		if (strcmp(a->key, key) != 0)
			continue;
		if (selection_has_value(a->value, selection_takes_beginning(key), value))
			return true;
		any = true;
	}
	return !any;
}

/* Return whether the labels with that id fulfil all conditions, but those on pid and tid. */
static int are_wanted(struct points *p, uint64_t labels, bool *out)
{
	char value[LABEL_MAX];
	int err = 0;

	*out = true;
	for (size_t i = 0; i < p->r->n_arguments && !err && *out; i++) {
		const struct http_argument *a = &p->r->arguments[i];

		if (!api_is_label(a) || !strcmp(a->key, "pid") || !strcmp(a->key, "tid"))
			continue;
		err = read_label(p, labels, a->key, value);
		*out = value_is_wanted(p, a->key, value);
	}
	return err;
}

/* Write a pid or tid as the label has it: merged windows do not tell which thread it was, and have none then. */
static void number_text(uint32_t number, char out[16])
{
	*out = '\0';
	if (number)
		(void)snprintf(out, 16, "%" PRIu32, number);
}

static bool number_is_wanted(const struct points *p, const char *key, uint32_t number)
{
	char text[16];

	number_text(number, text);
	return value_is_wanted(p, key, text);
}

static int number_value(struct points *p, const char *value, uint32_t *out)
{
	const char *text = strings_keep(&p->texts, value, strlen(value));
	uint64_t hash = hash_u64(0, (uint64_t)(uintptr_t)text);
	int err;

	if (!text)
		return -ENOMEM;
	*out = UW_HASH_FIND(i, &p->by_value, hash, p->values[i] == text);
	if (*out != UW_HASH_NONE)
		return 0;
	err = array_grow(p->values, p->n_values, p->room_values);
	if (!err)
		err = uw_hash_add(&p->by_value, hash, (uint32_t)p->n_values);
	if (err)
		return err;
	*out = (uint32_t)p->n_values;
	p->values[p->n_values++] = text;
	return 0;
}

/* Give the number of a pid or tid; all values are such. */
static int number_id(struct points *p, uint32_t id, uint32_t *out)
{
	const uint64_t hash = hash_u64(0, id);
	char text[16];
	int err;

	*out = UW_HASH_FIND(i, &p->by_id, hash, p->ids[i] == id);
	if (*out != UW_HASH_NONE)
		return 0;
	number_text(id, text);
	err = array_grow(p->ids, p->n_ids, p->room_ids);
	if (!err)
		err = number_value(p, text, out);
	if (err)
		return err;
	p->ids[p->n_ids++] = id;
	return uw_hash_add(&p->by_id, hash, *out);
}

/* Give the number of a point's value; NONE: the point is not wanted. */
static int classify(struct points *p, const struct history_point *point, uint32_t *out)
{
	char value[LABEL_MAX];
	size_t before = p->n_of;
	bool wanted;
	int err = 0;

	if (p->value) /* the store has fulfilled the conditions */
		return number_value(p, p->value, out);
	*out = NONE;
	if ((p->asks_pid && !number_is_wanted(p, "pid", point->pid)) ||
	    (p->asks_tid && !number_is_wanted(p, "tid", point->tid)))
		return 0;
	if (point->labels >= UINT32_MAX)
		return -EBADMSG;
	if (point->labels >= p->n_of) {
		err = array_reserve(p->of, point->labels + 1, p->n_of);
		if (err)
			return err;
		memset(p->of + before, 0, (p->n_of - before) * sizeof(*p->of));
	}
	if (!p->of[point->labels]) {
		uint32_t number = 0;

		err = are_wanted(p, point->labels, &wanted);
		if (!err && wanted && p->key) {
			err = read_label(p, point->labels, p->key, value);
			if (!err)
				err = number_value(p, value, &number);
		}
		if (err)
			return err;
		p->of[point->labels] = wanted ? number + 1 : NONE;
	}
	if (p->of[point->labels] == NONE)
		return 0;
	if (p->focus) {
		err = matching_node(&p->matching, point->node, &wanted);
		if (err || !wanted)
			return err;
	}
	*out = p->of[point->labels] - 1;
	if (!p->by_pid && !p->by_tid)
		return 0;
	return number_id(p, p->by_pid ? point->pid : point->tid, out);
}

/* Check the arguments that are conditions, and begin. key NULL: nothing is told apart. */
static int points_init(struct points *p, struct api *api, const struct http_request *r,
		       struct http_reply *reply, const char *key)
{
	const char *focus = http_argument(r, "focus");
	char why[SELECTION_WHY] = "";

	*p = (struct points){ .api = api, .r = r };
	p->by_pid = key && !strcmp(key, "pid");
	p->by_tid = key && !strcmp(key, "tid");
	p->key = p->by_pid || p->by_tid ? NULL : key;
	p->asks_pid = http_argument(r, "pid");
	p->asks_tid = http_argument(r, "tid");
	if (focus &&
	    (!(p->focus = calloc(1, sizeof(*p->focus))) || !(p->focus_text = strdup(focus))))
		return http_fail(reply, 503, "there is no memory");
	if (focus) {
		p->focus->why = why;
		if (selection_focus(p->focus, "focus", p->focus_text))
			return http_fail(reply, 400, "focus: '%.100s' is no valid condition: %s",
					 focus, why);
		p->focus->why = NULL;
	}
	if (focus)
		p->matching = (struct matching){ .history = api->history,
						 .regex = &p->focus->regexes[0].regex };
	return api_range(r, reply, &p->range);
}

/* What takes the sums of a store of many hosts as points. */
struct sums {
	struct points *p;
	history_point_fn fn;
	void *ctx;
};

static int take_sum(void *ctx, const struct history_point *sum, const char *value)
{
	struct sums *s = ctx;

	s->p->value = value;
	return s->fn(s->ctx, sum);
}

static int points_scan(struct points *p, struct http_reply *reply, history_point_fn fn, void *ctx,
		       const char **type, const char **unit)
{
	const char *wanted = http_argument(p->r, "type");
	const struct api_remote *remote = p->api->remote;
	struct sums sums = { .p = p, .fn = fn, .ctx = ctx };
	int err;

	if (remote)
		return remote->scan(remote->ctx, p->r, reply, &p->range,
				    p->by_pid	? "pid"
				    : p->by_tid ? "tid"
						: p->key,
				    !p->any_time, take_sum, &sums, type, unit);
	err = history_scan(p->api->history, p->range.from_ns, p->range.to_ns, wanted, fn, ctx, type,
			   unit);

	if (err == -ENOENT && wanted)
		return http_fail(reply, 400, "there is no sample type '%.40s'", wanted);
	return err == -ENOENT ? http_fail(reply, 404, "the history is empty")
	       : err	      ? api_failed(reply, err)
			      : 0;
}

static void put_range(const struct points *p, FILE *out)
{
	(void)fprintf(out, "\"from_ns\":%" PRIu64 ",\"to_ns\":%" PRIu64 ",", p->range.from_ns,
		      p->range.to_ns);
}

static void put_type(const char *type, const char *unit, FILE *out)
{
	(void)fputs("\"type\":", out);
	json_text(out, type);
	(void)fputs(",\"unit\":", out);
	json_text(out, unit);
	(void)fputc(',', out);
}

/* ---- timeline ---------------------------------------------------------------------------- */

struct timeline {
	struct points p;
	uint64_t step_ns;
	size_t n_steps;
	int64_t *cells; /* n_steps for each row */
	size_t room;
	/*
	 * A value's row is its number, unless there are too many values and steps: then n_rows values have rows, and all others
	 * share the one after these. By number; and the numbers by row.
	 */
	uint32_t *row_of, *number_of;
	size_t n_row_of, n_rows;
};

struct line { /* a value, to be sorted */
	int64_t total;
	uint32_t number;
};

/* Return the part of a value that the beginning of a span has. */
static int64_t part_until(int64_t value, uint64_t beginning, uint64_t span)
{
	return !beginning	   ? 0
	       : beginning == span ? value
				   : (int64_t)((__int128)value * beginning / span);
}

/*
 * Add a value to the steps that a span of time covers, by their shares of it. A wait belongs to the whole time
 * that it took; what was before the range of time is left out.
 */
static void spread(const struct timeline *t, int64_t *row, const struct history_point *point)
{
	const bool waited = point->ended_ns > point->began_ns;
	const uint64_t began = waited ? point->began_ns : point->start_ns;
	const uint64_t ended = waited ? point->ended_ns : point->end_ns;
	uint64_t from = t->p.range.from_ns, start = began < from ? from : began;
	uint64_t span = ended - began;
	size_t i = (size_t)((start - from) / t->step_ns);
	/* What the time until the last step has; dividing such numbers takes long, so it is done once for each step. */
	int64_t until = span ? part_until(point->value, start - began, span) : 0;

	if (!span && i < t->n_steps)
		row[i] = stacks_sum(row[i], point->value);
	for (; span && i < t->n_steps && from + i * t->step_ns < ended; i++) {
		const uint64_t end = from + (i + 1) * t->step_ns;
		const int64_t before = until;

		until = part_until(point->value, (end > ended ? ended : end) - began, span);
		row[i] = stacks_sum(row[i], until - before);
	}
}

/* Let each row have one step, which is as long as all. */
static void fold_steps(struct timeline *t)
{
	const size_t n = t->room / t->n_steps;

	for (size_t i = 0; i < n; i++) {
		int64_t total = 0;

		for (size_t j = 0; j < t->n_steps; j++)
			total = stacks_sum(total, t->cells[i * t->n_steps + j]);
		t->cells[i] = total;
	}
	memset(t->cells + n, 0, (t->room - n) * sizeof(*t->cells));
	t->step_ns = t->p.range.to_ns - t->p.range.from_ns;
	t->n_steps = 1;
}

static int take_timeline(void *ctx, const struct history_point *point)
{
	struct timeline *t = ctx;
	size_t before = t->room;
	uint32_t number;
	int err;

	if (!point) { /* values without samples are left out in the end */
		if (t->room)
			memset(t->cells, 0, t->room * sizeof(*t->cells));
		return 0;
	}
	err = classify(&t->p, point, &number);
	if (err || number == NONE)
		return err;
	if (t->row_of)
		number = number < t->n_row_of ? t->row_of[number] : (uint32_t)t->n_rows;
	if ((number + 1) * t->n_steps > SERIES_CELLS_MAX && t->n_steps > 1)
		fold_steps(t);
	if ((number + 1) * t->n_steps > SERIES_CELLS_MAX)
		return -E2BIG;
	err = array_reserve(t->cells, (number + 1) * t->n_steps, t->room);
	if (err)
		return err;
	memset(t->cells + before, 0, (t->room - before) * sizeof(*t->cells));
	spread(t, t->cells + number * t->n_steps, point);
	return 0;
}

static int compare_lines(const void *a, const void *b) /* for qsort */
{
	const struct line *x = a, *y = b;

	return x->total != y->total ? (x->total < y->total ? 1 : -1)
				    : (x->number > y->number) - (x->number < y->number);
}

static void put_line(const struct timeline *t, const char *value, const int64_t *row, bool first,
		     FILE *out)
{
	(void)fputs(first ? "\n{\"value\":" : ",\n{\"value\":", out);
	if (value)
		json_text(out, value);
	else
		(void)fputs("null", out);
	(void)fputs(",\"values\":[", out);
	for (size_t i = 0; i < t->n_steps; i++)
		(void)fprintf(out, "%s%" PRId64, i ? "," : "", row[i]);
	(void)fputs("]}", out);
}

/* Give the rows of values in the order of their totals, the largest first. The caller frees *out. -ENOMEM. */
static int sort_lines(const struct timeline *t, struct line **out, size_t *n)
{
	struct line *lines;

	*n = t->row_of ? t->n_rows : t->room ? (t->p.n_values ? t->p.n_values : 1) : 0;
	if (*n > t->room / t->n_steps)
		*n = t->room / t->n_steps;
	lines = calloc(*n + 1, sizeof(*lines));
	if (!lines)
		return -ENOMEM;
	for (size_t i = 0; i < *n; i++) {
		lines[i].number = (uint32_t)i;
		for (size_t j = 0; j < t->n_steps; j++)
			lines[i].total = stacks_sum(lines[i].total, t->cells[i * t->n_steps + j]);
	}
	qsort(lines, *n, sizeof(*lines), compare_lines);
	while (*n && !lines[*n - 1].total)
		--*n; /* none of its stacks has the function */
	*out = lines;
	return 0;
}

/* Write the n largest values, and the sum of the rest with the value null. */
static int put_lines(struct timeline *t, size_t n, FILE *out)
{
	struct line *lines = NULL;
	size_t n_lines = 0;
	int64_t *rest = calloc(t->n_steps, sizeof(*rest));
	int err = rest ? sort_lines(t, &lines, &n_lines) : -ENOMEM;
	bool any_rest = n_lines > n || t->row_of;

	if (!err && t->row_of && (t->n_rows + 1) * t->n_steps <= t->room)
		memcpy(rest, t->cells + t->n_rows * t->n_steps, t->n_steps * sizeof(*rest));
	if (!err)
		(void)fputs("\"series\":[", out);
	for (size_t i = 0; !err && i < n_lines; i++) {
		const uint32_t number = lines[i].number;
		const int64_t *row = t->cells + number * t->n_steps;
		const char *value = "";

		if (t->p.n_values)
			value = t->p.values[t->row_of ? t->number_of[number] : number];
		if (i < n)
			put_line(t, value, row, !i, out);
		for (size_t j = 0; i >= n && j < t->n_steps; j++)
			rest[j] = stacks_sum(rest[j], row[j]);
	}
	if (!err && any_rest)
		put_line(t, NULL, rest, !n || !n_lines, out);
	if (!err)
		(void)fputs("\n]}\n", out);
	free(lines);
	free(rest);
	return err;
}

/* Let only the n largest values have rows; the steps were folded, so that only their totals are known. */
static int choose_rows(struct timeline *t, size_t n)
{
	struct line *lines = NULL;
	size_t n_lines = 0;
	int err = sort_lines(t, &lines, &n_lines);

	t->n_rows = n < n_lines ? n : n_lines;
	t->n_row_of = t->p.n_values;
	t->row_of = calloc(t->n_row_of + 1, sizeof(*t->row_of));
	t->number_of = calloc(t->n_rows + 1, sizeof(*t->number_of));
	if (!t->row_of || !t->number_of)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < t->n_row_of; i++)
		t->row_of[i] = (uint32_t)t->n_rows;
	for (size_t i = 0; !err && i < t->n_rows; i++) {
		t->row_of[lines[i].number] = (uint32_t)i;
		t->number_of[i] = lines[i].number;
	}
	free(lines);
	memset(t->cells, 0, t->room * sizeof(*t->cells));
	return err;
}

/* Go through the samples, and once more if there are too many values to tell all apart at once. */
static int scan_timeline(struct timeline *t, struct http_reply *reply, size_t n, const char **type,
			 const char **unit)
{
	const uint64_t step_ns = t->step_ns;
	const size_t n_steps = t->n_steps;
	int err = points_scan(&t->p, reply, take_timeline, t, type, unit);

	if (err || t->n_steps == n_steps)
		return err;
	if ((n + 1) * n_steps > SERIES_CELLS_MAX)
		return http_fail(reply, 400,
				 "there are too many values for so many steps: ask for a"
				 " longer step, or for fewer of them with n");
	if (choose_rows(t, n))
		return api_failed(reply, -ENOMEM);
	t->step_ns = step_ns;
	t->n_steps = n_steps;
	return points_scan(&t->p, reply, take_timeline, t, type, unit);
}

void api_timeline(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	struct timeline t = { .step_ns = 0 };
	const char *by = http_argument(r, "by"), *type, *unit;
	uint64_t step_ms = 0, n = SERIES_DEFAULT;
	int err = points_init(&t.p, api, r, reply, by && *by ? by : NULL);

	if (!err)
		err = api_number(r, reply, "step", 1, 86400000, &step_ms);
	if (!err)
		err = api_number(r, reply, "n", 0, SERIES_MAX, &n);
	if (!err) {
		uint64_t span = t.p.range.to_ns - t.p.range.from_ns;

		t.step_ns = step_ms ? step_ms * 1000000 : span / 600 + 1;
		if (span / t.step_ns >= STEPS_MAX)
			err = http_fail(reply, 400,
					"step is too short for this time: more than %d steps",
					STEPS_MAX);
		else
			t.n_steps = (size_t)(span / t.step_ns) + (span % t.step_ns != 0);
	}
	if (!err)
		err = scan_timeline(&t, reply, (size_t)n, &type, &unit);
	if (!err) {
		(void)fputc('{', reply->out);
		put_range(&t.p, reply->out);
		put_type(type, unit, reply->out);
		(void)fprintf(reply->out, "\"step_ns\":%" PRIu64 ",\"by\":", t.step_ns);
		json_text(reply->out, by);
		(void)fputs(",\n", reply->out);
		err = put_lines(&t, (size_t)n, reply->out);
		if (err)
			(void)api_failed(reply, err);
	}
	free(t.cells);
	free(t.row_of);
	free(t.number_of);
	points_fini(&t.p);
}

/* ---- heat map ---------------------------------------------------------------------------- */

struct heatmap {
	struct points p;
	uint64_t begin_ns, column_ns, row_ns; /* begin_ns: of the first column */
	size_t n_columns, n_rows;
	int64_t *cells;
	uint64_t n_merged; /* samples without times */
};

static int take_heatmap(void *ctx, const struct history_point *point)
{
	struct heatmap *h = ctx;
	uint32_t number;
	int64_t *cell;
	uint64_t at;
	int err;

	if (!point) {
		memset(h->cells, 0, h->n_columns * h->n_rows * sizeof(*h->cells));
		h->n_merged = 0;
		return 0;
	}
	err = classify(&h->p, point, &number);
	if (err || number == NONE)
		return err;
	if (point->start_ns != point->end_ns && !h->p.value) {
		h->n_merged += point->n;
		return 0;
	}
	at = point->start_ns - h->begin_ns;
	cell = &h->cells[at / h->column_ns * h->n_rows + at % h->column_ns / h->row_ns];
	*cell = stacks_sum(*cell, point->value);
	return 0;
}

/* Of a store of many hosts, which has no times of samples, a column is an hour and a row is a slot. */
static int set_slots(struct api *api, struct http_reply *reply, const struct api_range *range,
		     uint64_t *rows, uint64_t *step_ms)
{
	uint64_t slot_ns = 0;
	int err = api->remote->slot(api->remote->ctx, reply, range, &slot_ns);

	*step_ms = HOUR_MS;
	*rows = slot_ns ? HOUR_MS * UINT64_C(1000000) / slot_ns : 1;
	if (*rows < 1 || *rows > ROWS_MAX)
		*rows = *rows ? ROWS_MAX : 1;
	return err;
}

/* A column is a second, or so long that there are not too many; a row is a part of it. */
void api_heatmap(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	struct heatmap h = { .n_rows = 50 };
	uint64_t rows = 50, step_ms = 1000;
	const char *type, *unit;
	int err = points_init(&h.p, api, r, reply, NULL);

	if (!err && api->remote)
		err = set_slots(api, reply, &h.p.range, &rows, &step_ms);

	if (!err)
		err = api_number(r, reply, "rows", 1, ROWS_MAX, &rows);
	if (!err)
		err = api_number(r, reply, "step", 100, 86400000, &step_ms);
	if (!err) {
		h.n_rows = (size_t)rows;
		h.column_ns = step_ms * 1000000;
		h.row_ns = (h.column_ns + rows - 1) / rows;
		h.begin_ns = h.p.range.from_ns / h.column_ns * h.column_ns;
		h.n_columns =
			(size_t)((h.p.range.to_ns - h.begin_ns + h.column_ns - 1) / h.column_ns);
		if (h.n_columns > CELLS_MAX / h.n_rows)
			err = http_fail(reply, 400, "the heat map would have more than %d cells",
					CELLS_MAX);
	}
	if (!err) {
		h.cells = calloc(h.n_columns * h.n_rows, sizeof(*h.cells));
		err = h.cells ? points_scan(&h.p, reply, take_heatmap, &h, &type, &unit)
			      : api_failed(reply, -ENOMEM);
	}
	if (!err) {
		(void)fputc('{', reply->out);
		put_range(&h.p, reply->out);
		put_type(type, unit, reply->out);
		(void)fprintf(reply->out,
			      "\"begin_ns\":%" PRIu64 ",\"column_ns\":%" PRIu64
			      ",\"row_ns\":%" PRIu64
			      ",\"rows\":%zu,\"samples_without_time\":%" PRIu64 ",\n\"columns\":[",
			      h.begin_ns, h.column_ns, h.row_ns, h.n_rows, h.n_merged);
		for (size_t i = 0; i < h.n_columns; i++) {
			(void)fputs(i ? ",\n[" : "\n[", reply->out);
			for (size_t j = 0; j < h.n_rows; j++)
				(void)fprintf(reply->out, "%s%" PRId64, j ? "," : "",
					      h.cells[i * h.n_rows + j]);
			(void)fputc(']', reply->out);
		}
		(void)fputs("\n]}\n", reply->out);
	}
	free(h.cells);
	points_fini(&h.p);
}

/* ---- labels ------------------------------------------------------------------------------ */

struct label_values {
	struct points p;
	struct value_sum {
		int64_t value;
		uint64_t n;
	} * sums; /* by number */
	size_t n_sums;
};

static int take_label(void *ctx, const struct history_point *point)
{
	struct label_values *l = ctx;
	size_t before = l->n_sums;
	uint32_t number;
	int err;

	if (!point) {
		points_forget(&l->p);
		if (l->n_sums)
			memset(l->sums, 0, l->n_sums * sizeof(*l->sums));
		return 0;
	}
	err = classify(&l->p, point, &number);
	if (err || number == NONE)
		return err;
	if (number >= l->n_sums) {
		err = array_reserve(l->sums, number + 1, l->n_sums);
		if (err)
			return err;
		memset(l->sums + before, 0, (l->n_sums - before) * sizeof(*l->sums));
	}
	l->sums[number].value = stacks_sum(l->sums[number].value, point->value);
	l->sums[number].n += point->n;
	return 0;
}

/* Return the sentence of a stop reason; "": there is none. */
static const char *meaning_of(const char *stop)
{
	for (unsigned int i = 0; i < UW_STOP_N; i++)
		if (!strcmp(stop, uw_stop_name((enum uw_stop)i)))
			return uw_stop_sentence((enum uw_stop)i);
	return "";
}

/* Write the values of one label. */
static int put_values(struct label_values *l, size_t n, const char *type, const char *unit,
		      FILE *out)
{
	struct line *lines = calloc(l->p.n_values + 1, sizeof(*lines));
	const char *key = http_argument(l->p.r, "key");
	size_t n_lines = 0;

	if (!lines)
		return -ENOMEM;
	/* Values whose samples do not fulfil the conditions have no sum. */
	for (size_t i = 0; i < l->p.n_values && i < l->n_sums; i++)
		if (l->sums[i].n || l->sums[i].value)
			lines[n_lines++] =
				(struct line){ .number = (uint32_t)i, .total = l->sums[i].value };
	qsort(lines, n_lines, sizeof(*lines), compare_lines);
	(void)fputc('{', out);
	put_range(&l->p, out);
	put_type(type, unit, out);
	(void)fputs("\"key\":", out);
	json_text(out, key);
	(void)fputs(",\"values\":[", out);
	for (size_t i = 0; i < n_lines && i < n; i++) {
		(void)fputs(i ? ",\n{\"value\":" : "\n{\"value\":", out);
		json_text(out, l->p.values[lines[i].number]);
		(void)fprintf(out, ",\"samples\":%" PRIu64 ",\"sum\":%" PRId64,
			      l->sums[lines[i].number].n, lines[i].total);
		if (!strcmp(key, "stop")) {
			(void)fputs(",\"meaning\":", out);
			json_text(out, meaning_of(l->p.values[lines[i].number]));
		}
		(void)fputc('}', out);
	}
	(void)fprintf(out, "\n],\"values_left_out\":%zu}\n", n_lines > n ? n_lines - n : 0);
	free(lines);
	return 0;
}

struct names {
	FILE *out;
	bool any;
};

static void put_name(void *ctx, const char *name)
{
	struct names *to = ctx;

	(void)fputs(to->any ? "," : "", to->out);
	json_text(to->out, name);
	to->any = true;
}

/* Write what there is to choose from: the keys of all labels, and the names of all sample types. */
static void put_choices(struct api *api, struct http_reply *reply)
{
	const struct api_remote *remote = api->remote;
	struct names keys = { .out = reply->out }, types = { .out = reply->out };
	int err;

	(void)fputs("{\"keys\":[", reply->out);
	err = remote ? remote->keys(remote->ctx, reply, put_name, &keys)
		     : history_label_keys(api->history, put_name, &keys);
	if (!remote) {
		put_name(&keys, "pid");
		put_name(&keys, "tid");
	}
	(void)fputs("],\"types\":[", reply->out);
	if (!err)
		err = remote ? remote->types(remote->ctx, reply, put_name, &types)
			     : history_type_names(api->history, put_name, &types);
	(void)fputs("]}\n", reply->out);
	if (err && reply->status == 200)
		(void)api_failed(reply, err);
}

void api_labels(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	const char *key = http_argument(r, "key"), *type, *unit;
	struct label_values l = { .sums = NULL };
	uint64_t n = 1000;
	int err;

	if (!key) {
		put_choices(api, reply);
		return;
	}
	err = points_init(&l.p, api, r, reply, key);
	if (!err && !*key)
		err = http_fail(reply, 400, "key is the name of a label, such as comm");
	l.p.any_time = true;
	if (!err)
		err = api_number(r, reply, "n", 1, 1000000, &n);
	if (!err)
		err = points_scan(&l.p, reply, take_label, &l, &type, &unit);
	if (!err) {
		err = put_values(&l, (size_t)n, type, unit, reply->out);
		if (err)
			(void)api_failed(reply, err);
	}
	free(l.sums);
	points_fini(&l.p);
}

/* ---- samples ----------------------------------------------------------------------------- */

static uint64_t time_of(const struct stacks *s, size_t i)
{
	const struct stacks_label *l = stacks_label(s, &s->samples[i], HISTORY_TIME_LABEL);

	return l ? (uint64_t)l->number : 0;
}

/* Write frames; api NULL: without the rules by which their callers are found. */
static void put_frames(struct api *api, const struct stacks *s, const struct stacks_frames *frames,
		       FILE *out)
{
	(void)fputs("\"frames\":[", out);
	for (size_t i = 0; i < frames->n; i++) {
		const struct stacks_frame *f = &frames->frames[i];
		const struct stacks_function *function = &s->functions[f->function];
		const struct stacks_module *module = &s->modules[f->module];

		(void)fputs(i ? ",\n  {\"function\":" : "\n  {\"function\":", out);
		json_text(out, function->name);
		(void)fputs(",\"module\":", out);
		json_text(out, module->path);
		(void)fputs(",\"build_id\":", out);
		json_text(out, module->build_id);
		(void)fputs(",\"file\":", out);
		json_text(out, function->file);
		/* An address may have more digits than a number of JSON. */
		(void)fprintf(out,
			      ",\"line\":%" PRId64 ",\"address\":\"0x%" PRIx64 "\",\"inlined\":%s",
			      f->line, f->address, f->inlined ? "true" : "false");
		if (api) {
			(void)fputs(",\"rule\":", out);
			/* An inlined call has no frame of its own. */
			api_put_rule(api, f->inlined ? "" : module->build_id, f->address, out);
		}
		(void)fputc('}', out);
	}
	(void)fputs("]}", out);
}

static void put_labels(const struct stacks *s, const struct stacks_sample *sample, FILE *out)
{
	bool any = false;

	(void)fputs("\"labels\":{", out);
	for (uint32_t i = 0; i < sample->n_labels; i++) {
		const struct stacks_label *l = &s->labels[s->label_ids[sample->first_label + i]];

		if (!strcmp(l->key, HISTORY_TIME_LABEL))
			continue;
		(void)fputs(any ? "," : "", out);
		json_text(out, l->key);
		(void)fputc(':', out);
		if (l->text)
			json_text(out, l->text);
		else
			(void)fprintf(out, "%" PRId64, l->number);
		any = true;
	}
	(void)fputs("},", out);
}

struct timed {
	uint64_t time_ns;
	size_t index;
};

static int compare_times(const void *a, const void *b) /* for qsort */
{
	const struct timed *x = a, *y = b;

	return x->time_ns != y->time_ns ? (x->time_ns > y->time_ns ? 1 : -1)
					: (x->index > y->index) - (x->index < y->index);
}

/*
 * Return the samples in the order of time, and their number, those without a value of the type only if all
 * is set; NULL: no memory. The caller frees the array.
 */
static struct timed *in_time(const struct stacks *s, size_t type, bool all, size_t *n)
{
	struct timed *order = calloc(s->n_samples + 1, sizeof(*order));

	*n = 0;
	for (size_t i = 0; order && i < s->n_samples; i++)
		if (all || stacks_value(s, i, type))
			order[(*n)++] = (struct timed){ time_of(s, i), i };
	if (order)
		qsort(order, *n, sizeof(*order), compare_times);
	return order;
}

/* Write why a stack ends where it does; one that has no label stop ends at its root. */
static void put_ending(const struct stacks *s, const struct stacks_sample *sample, FILE *out)
{
	const struct stacks_label *stop = stacks_label(s, sample, "stop");
	const char *name = stop && stop->text ? stop->text : "root";

	(void)fputs("\"stop\":", out);
	json_text(out, name);
	(void)fputs(",\"meaning\":", out);
	json_text(out, meaning_of(name));
	(void)fputc(',', out);
}

/* Write all values of a sample that are not 0, by type. */
static void put_all_values(const struct stacks *s, size_t index, FILE *out)
{
	bool any = false;

	(void)fputs("\"values\":{", out);
	for (size_t type = 0; type < s->n_types; type++) {
		int64_t value = stacks_value(s, index, type);

		if (!value)
			continue;
		(void)fputs(any ? "," : "", out);
		json_text(out, s->types[type].type);
		(void)fprintf(out, ":%" PRId64, value);
		any = true;
	}
	(void)fputs("},", out);
}

static int put_sample(struct api *api, const struct api_profile *p, size_t index,
		      struct stacks_frames *frames, FILE *out)
{
	const struct stacks_sample *sample = &p->stacks->samples[index];
	int err = stacks_unfold(p->stacks, sample, frames);

	if (err)
		return err;
	(void)fprintf(out, "{\"time_ns\":%" PRIu64 ",\"value\":%" PRId64 ",",
		      time_of(p->stacks, index), stacks_value(p->stacks, index, p->type));
	put_all_values(p->stacks, index, out);
	put_labels(p->stacks, sample, out);
	if (api)
		put_ending(p->stacks, sample, out);
	put_frames(api, p->stacks, frames, out);
	return 0;
}

/* Write single samples in the order of time, frame by frame. */
static void write_samples(struct api *api, const struct http_request *r, struct http_reply *reply,
			  bool explain)
{
	struct stacks_frames frames = { .n = 0 };
	struct timed *order = NULL;
	struct api_profile p;
	size_t i = 0, n_samples = 0;
	uint64_t n = 100;
	int err = 0;

	if (api_number(r, reply, "n", 1, 10000, &n) ||
	    api_load(api, r, reply, &(struct api_wanted){ .key = "*", .times = true }, &p))
		return;
	order = in_time(p.stacks, p.type, explain, &n_samples);
	(void)fprintf(reply->out, "{\"from_ns\":%" PRIu64 ",\"to_ns\":%" PRIu64 ",",
		      p.range.from_ns, p.range.to_ns);
	put_type(p.stacks->types[p.type].type, p.stacks->types[p.type].unit, reply->out);
	(void)fputs("\"samples\":[", reply->out);
	for (; i < n_samples && i < n && !err; i++) {
		(void)fputs(i ? ",\n" : "\n", reply->out);
		err = put_sample(explain ? api : NULL, &p, order[i].index, &frames, reply->out);
	}
	(void)fprintf(reply->out, "\n],\"samples_left_out\":%zu}\n", n_samples - i);
	if (err || !order)
		(void)api_failed(reply, err ? err : -ENOMEM);
	free(order);
	free(frames.frames);
	stacks_free(p.stacks);
}

void api_samples(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	write_samples(api, r, reply, false);
}

/* The samples of one moment, with the rules of their frames. */
void api_explain(struct api *api, const struct http_request *r, struct http_reply *reply)
{
	struct http_request one = *r;
	char from[32], to[32];
	uint64_t time_ns = 0;

	if (api_number(r, reply, "time_ns", 1, INT64_MAX, &time_ns))
		return;
	if (!time_ns || r->n_arguments + 2 > HTTP_ARGUMENTS) {
		(void)http_fail(reply, 400,
				"time_ns is missing: the time of a sample, from /api/v1/samples");
		return;
	}
	(void)snprintf(from, sizeof(from), "%" PRIu64 "ns", time_ns);
	(void)snprintf(to, sizeof(to), "%" PRIu64 "ns", time_ns + 1);
	one.arguments[one.n_arguments++] = (struct http_argument){ "from", from };
	one.arguments[one.n_arguments++] = (struct http_argument){ "to", to };
	write_samples(api, &one, reply, true);
}

/* agent/export/profile/ranking.c: rankings of functions, modules, files, processes and threads. */
#include "agent/export/profile/ranking.h"

#include "agent/export/profile/inner.h"

#include "agent/array.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return the index of a row, which is added if it is new. UW_HASH_NONE: out of memory. */
static uint32_t row_id(struct ranking *r, const char *name, const char *where)
{
	/* Equal texts are the same pointer. */
	const struct ranking_row row = { .name = strings_keep(&r->texts, name, strlen(name)),
					 .where = strings_keep(&r->texts, where, strlen(where)) };
	uint64_t hash = hash_u64((uint64_t)(uintptr_t)row.name, (uint64_t)(uintptr_t)row.where);
	uint32_t id;

	if (!row.name || !row.where)
		return UW_HASH_NONE;
	id = UW_HASH_FIND(i, &r->by_name, hash,
			  r->rows[i].name == row.name && r->rows[i].where == row.where);
	if (id != UW_HASH_NONE)
		return id;
	if (r->n_rows >= UW_HASH_NONE || array_grow(r->rows, r->n_rows, r->room_rows))
		return UW_HASH_NONE;
	if (uw_hash_add(&r->by_name, hash, (uint32_t)r->n_rows))
		return UW_HASH_NONE;
	r->rows[r->n_rows] = row;
	return (uint32_t)r->n_rows++;
}

static void add_to(int64_t *sum, int64_t value)
{
	*sum = stacks_sum(*sum, value);
}

static void add_self(struct ranking_row *row, int64_t value, bool base)
{
	add_to(base ? &row->base_self : &row->self, value);
}

static void add_total(struct ranking_row *row, int64_t value, bool base)
{
	add_to(base ? &row->base_total : &row->total, value);
}

struct wanted_label { /* restricts the samples; key NULL: all samples */
	const char *key;
	int64_t number;
};

/* Return whether the sample has the wanted label. */
static bool is_wanted(const struct stacks *s, const struct stacks_sample *sample,
		      const struct wanted_label *only)
{
	const struct stacks_label *label = only->key ? stacks_label(s, sample, only->key) : NULL;

	return !only->key || (label && !label->text && label->number == only->number);
}

/* ---- by properties of frames ---------------------------------------------------- */

/* The row of a function's frames in one module; row UW_HASH_NONE: none yet. */
struct function_row {
	uint32_t row, module;
};

/* Return the row of a frame. UW_HASH_NONE: out of memory. */
static uint32_t frame_row(struct ranking *r, const struct stacks *s, const struct stacks_line *line,
			  const struct stacks_module *module)
{
	const struct stacks_function *f = &s->functions[line->function];

	if (r->by == RANKING_MODULE)
		return row_id(r, *module->name ? module->name : "[unknown]", "");
	if (r->by == RANKING_SOURCE)
		return row_id(r, *f->file ? f->file : "[unknown]", "");
	return row_id(r, f->name, module->name);
}

/* Do the same, and remember it for the function. */
static uint32_t known_row(struct ranking *r, const struct stacks *s, const struct stacks_line *line,
			  uint32_t module, struct function_row *known)
{
	struct function_row *of = &known[line->function];

	if (of->row == UW_HASH_NONE || of->module != module)
		*of = (struct function_row){ frame_row(r, s, line, &s->modules[module]), module };
	return of->row;
}

/* Return whether the sample has a function that is not in passed_over. */
static bool has_others(const struct stacks *s, const struct stacks_sample *sample,
		       const bool *passed_over)
{
	for (uint32_t j = 0; j < sample->n_locations; j++) {
		const struct stacks_location *l =
			&s->locations[s->location_ids[sample->first_location + j]];

		for (uint32_t k = 0; k < l->n_lines; k++)
			if (!passed_over[s->lines[l->first_line + k].function])
				return true;
	}
	return false;
}

/* A location of the stack at hand, and what the samples had in which it was at this place. */
struct step {
	uint32_t location;
	int64_t value, base_value;
};

/* Samples that are added to the rows of their frames. */
struct adding {
	struct ranking *r;
	const struct stacks *s;
	uint32_t *row_of; /* by line, if its location has several; UW_HASH_NONE: not known yet */
	/*
	 * By location: the row of its only line; UW_HASH_NONE: not known, or it has several lines. This and on_way are
	 * apart from the locations and rows, as small arrays stay in the CPU's caches.
	 */
	uint32_t *only_row;
	uint32_t *on_way; /* by row: how many frames of the stack at hand have it */
	size_t room_on_way;
	/* A function is mostly in one module, at several addresses. */
	struct function_row *known;
	bool *passed_over; /* by function: skipped for self */
	/*
	 * The stack at hand, outermost location first. What a sample has in common with the one before it is gone
	 * through once: samples of a history are in the order of their stacks.
	 */
	struct step *way;
	uint32_t n_way;
};

/* Return where the row of a line of a location is remembered. */
static uint32_t *row_of_line(const struct adding *a, uint32_t location, uint32_t line)
{
	const struct stacks_location *l = &a->s->locations[location];

	return l->n_lines == 1 ? &a->only_row[location] : &a->row_of[l->first_line + line];
}

/* Let the stack at hand have one more frame of a line's row. */
static int enter_line(struct adding *a, uint32_t location, uint32_t line)
{
	const struct stacks_location *l = &a->s->locations[location];
	uint32_t *row = row_of_line(a, location, line);
	const size_t room = a->room_on_way;
	int err = 0;

	if (*row == UW_HASH_NONE)
		*row = known_row(a->r, a->s, &a->s->lines[l->first_line + line], l->module,
				 a->known);
	if (*row == UW_HASH_NONE)
		return -ENOMEM;
	if (*row >= room)
		err = array_reserve(a->on_way, (size_t)*row + 1, a->room_on_way);
	if (err)
		return err;
	memset(a->on_way + room, 0, (a->room_on_way - room) * sizeof(*a->on_way));
	a->on_way[*row]++;
	return 0;
}

/* Go to a location that the one at hand calls. */
static int enter(struct adding *a, uint32_t location)
{
	const uint32_t row = a->only_row[location];
	const struct stacks_location *l = &a->s->locations[location];
	int err = 0;

	a->way[a->n_way++] = (struct step){ .location = location };
	if (row != UW_HASH_NONE) {
		a->on_way[row]++;
		__builtin_prefetch(&a->r->rows[row]);
		return 0;
	}
	for (uint32_t i = 0; i < l->n_lines && !err; i++)
		err = enter_line(a, location, i);
	return err;
}

/* Take a frame of a row from the stack. The outermost one takes what its samples had, so that recursion counts once. */
static void leave_row(struct adding *a, uint32_t row, const struct step *step)
{
	if (--a->on_way[row])
		return;
	if (step->value)
		add_total(&a->r->rows[row], step->value, false);
	if (step->base_value)
		add_total(&a->r->rows[row], step->base_value, true);
}

/* Go back to the caller. */
static void leave(struct adding *a)
{
	const struct step *step = &a->way[--a->n_way];
	const uint32_t row = a->only_row[step->location];
	const struct stacks_location *l = &a->s->locations[step->location];

	if (row != UW_HASH_NONE)
		leave_row(a, row, step);
	else
		for (uint32_t i = 0; i < l->n_lines; i++)
			leave_row(a, a->row_of[l->first_line + i], step);
	if (a->n_way) {
		add_to(&a->way[a->n_way - 1].value, step->value);
		add_to(&a->way[a->n_way - 1].base_value, step->base_value);
	}
}

/* Add a sample's value to the row of its innermost frame. pass: of the innermost that is not passed over. */
static void add_innermost(struct adding *a, const struct stacks_sample *sample, int64_t value,
			  bool pass)
{
	const struct stacks *s = a->s;
	const uint32_t only = sample->n_locations
				      ? a->only_row[s->location_ids[sample->first_location]]
				      : UW_HASH_NONE;

	if (!pass && only != UW_HASH_NONE) {
		add_self(&a->r->rows[only], value, sample->base);
		return;
	}
	/* If all functions are to be skipped, the innermost one counts. */
	pass = pass && has_others(s, sample, a->passed_over);
	for (uint32_t j = 0; j < sample->n_locations; j++) {
		const uint32_t location = s->location_ids[sample->first_location + j];
		const struct stacks_location *l = &s->locations[location];

		for (uint32_t k = 0; k < l->n_lines; k++) {
			if (pass && a->passed_over[s->lines[l->first_line + k].function])
				continue;
			add_self(&a->r->rows[*row_of_line(a, location, k)], value, sample->base);
			return;
		}
	}
}

static int add_stack(struct adding *a, const struct stacks_sample *sample, int64_t value)
{
	const uint32_t n = sample->n_locations;
	const uint32_t *ids = n ? a->s->location_ids + sample->first_location : NULL;
	uint32_t same = 0;
	int err = 0;

	while (same < n && same < a->n_way && a->way[same].location == ids[n - 1 - same])
		same++;
	while (a->n_way > same)
		leave(a);
	for (uint32_t i = n - same; !err && i-- > 0;)
		err = enter(a, ids[i]);
	if (!err && n)
		add_to(sample->base ? &a->way[n - 1].base_value : &a->way[n - 1].value, value);
	return err;
}

/* Add the samples to the rows of their frames. */
static int add_frames(struct ranking *r, const struct stacks *s, size_t type,
		      const struct wanted_label *only)
{
	struct adding a = { .r = r,
			    .s = s,
			    .row_of = malloc((s->n_lines + 1) * sizeof(*a.row_of)),
			    .only_row = malloc((s->n_locations + 1) * sizeof(*a.only_row)),
			    .known = malloc((s->n_functions + 1) * sizeof(*a.known)) };
	size_t passing = type; /* skip only in samples with a value of this type */
	uint32_t most = 0;
	int err = a.row_of && a.only_row && a.known ? 0 : -ENOMEM;

	for (size_t i = 0; i < s->n_samples; i++)
		most = s->samples[i].n_locations > most ? s->samples[i].n_locations : most;
	a.way = calloc((size_t)most + 1, sizeof(*a.way));
	if (!a.way)
		err = -ENOMEM;
	if (!err && r->outside)
		err = inner_functions(s, type, &a.passed_over, &passing);
	if (a.row_of)
		memset(a.row_of, 0xff, (s->n_lines + 1) * sizeof(*a.row_of)); /* UW_HASH_NONE */
	if (a.only_row)
		memset(a.only_row, 0xff, (s->n_locations + 1) * sizeof(*a.only_row));
	if (a.known)
		memset(a.known, 0xff, (s->n_functions + 1) * sizeof(*a.known));
	for (size_t i = 0; !err && i < s->n_samples; i++) {
		const struct stacks_sample *sample = &s->samples[i];
		const int64_t value = stacks_value(s, i, type);

		stacks_fetch(s, i, a.only_row);
		if (!is_wanted(s, sample, only))
			continue;
		err = add_stack(&a, sample, value);
		if (!err)
			add_innermost(&a, sample, value,
				      a.passed_over && stacks_value(s, i, passing));
	}
	while (!err && a.n_way)
		leave(&a);
	free(a.way);
	free(a.passed_over);
	free(a.known);
	free(a.on_way);
	free(a.only_row);
	free(a.row_of);
	return err;
}

/* ---- by properties of samples --------------------------------------------------- */

const char *ranking_label(enum ranking_by by)
{
	static const char *const keys[] = {
		[RANKING_PID] = "pid",
		[RANKING_COMM] = "comm",
		[RANKING_THREAD] = "thread",
		[RANKING_CONTAINER] = "container_id",
		[RANKING_STOP] = "stop",
		[RANKING_UNIT] = "unit",
		[RANKING_SERVICE] = "service.name",
		[RANKING_EXE] = "exe",
		[RANKING_USER] = "user",
		[RANKING_HOST] = "host",
		[RANKING_WAKER] = "waker",
	};

	return keys[by];
}

/* Return the row of a sample by its labels. UW_HASH_NONE: out of memory. */
static uint32_t sample_row(struct ranking *r, const struct stacks *s,
			   const struct stacks_sample *sample)
{
	char numbers[3][STACKS_NUMBER], where[2 * STACKS_NUMBER + 2];
	const char *pid = stacks_label_text(stacks_label(s, sample, "pid"), numbers[0]);
	const char *tid = stacks_label_text(stacks_label(s, sample, "tid"), numbers[1]);
	const char *key = r->by == RANKING_PID ? "comm" : ranking_label(r->by);
	const char *name = stacks_label_text(stacks_label(s, sample, key), numbers[2]);

	if (!*name)
		name = r->by == RANKING_STOP ? "root" : "-";
	where[0] = '\0';
	if (r->by == RANKING_PID)
		(void)snprintf(where, sizeof(where), "%.*s", STACKS_NUMBER, pid);
	if (r->by == RANKING_THREAD)
		(void)snprintf(where, sizeof(where), "%.*s/%.*s", STACKS_NUMBER, pid, STACKS_NUMBER,
			       tid);
	return row_id(r, name, where);
}

/* Add each sample to the row of its labels. */
static int add_samples(struct ranking *r, const struct stacks *s, size_t type,
		       const struct wanted_label *only)
{
	for (size_t i = 0; i < s->n_samples; i++) {
		uint32_t row;

		if (!is_wanted(s, &s->samples[i], only))
			continue;
		row = sample_row(r, s, &s->samples[i]);
		if (row == UW_HASH_NONE)
			return -ENOMEM;
		add_self(&r->rows[row], stacks_value(s, i, type), s->samples[i].base);
		add_total(&r->rows[row], stacks_value(s, i, type), s->samples[i].base);
	}
	return 0;
}

int ranking_add_of(struct ranking *r, const struct stacks *s, size_t type, const char *key,
		   int64_t number)
{
	const struct wanted_label only = { key, number };

	for (size_t i = 0; i < s->n_samples; i++) {
		int64_t *total = s->samples[i].base ? &r->base_total : &r->total;

		if (is_wanted(s, &s->samples[i], &only))
			*total = stacks_sum(*total, stacks_value(s, i, type));
	}
	return r->by <= RANKING_SOURCE ? add_frames(r, s, type, &only)
				       : add_samples(r, s, type, &only);
}

int ranking_add(struct ranking *r, const struct stacks *s, size_t type)
{
	return ranking_add_of(r, s, type, NULL, 0);
}

void ranking_fini(struct ranking *r)
{
	free(r->rows);
	strings_fini(&r->texts);
	uw_hash_fini(&r->by_name);
	*r = (struct ranking){ .by = r->by };
}

/* ---- sorting ---------------------------------------------------------------------- */

double ranking_percent(int64_t part, int64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* Compare for a descending order. */
static int compare(int64_t a, int64_t b)
{
	return (a < b) - (a > b);
}

static int by_name(const void *a, const void *b)
{
	const struct ranking_row *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : strcmp(x->where, y->where);
}

static int by_self(const void *a, const void *b)
{
	const struct ranking_row *x = a, *y = b;
	int order = compare(x->self, y->self);

	order = order ? order : compare(x->total, y->total);
	return order ? order : by_name(x, y);
}

static int by_total(const void *a, const void *b)
{
	const struct ranking_row *x = a, *y = b;
	int order = compare(x->total, y->total);

	order = order ? order : compare(x->self, y->self);
	return order ? order : by_name(x, y);
}

struct by_change {
	const struct ranking *r;
	bool total;
};

/* Return the absolute change of a row's share, in percentage points. */
static double change(const struct by_change *by, const struct ranking_row *row)
{
	double d = by->total ? ranking_percent(row->total, by->r->total) -
				       ranking_percent(row->base_total, by->r->base_total)
			     : ranking_percent(row->self, by->r->total) -
				       ranking_percent(row->base_self, by->r->base_total);

	return d < 0 ? -d : d;
}

static int by_change(const void *a, const void *b, void *ctx)
{
	double x = change(ctx, a), y = change(ctx, b);

	return x != y ? (x < y ? 1 : -1) : by_name(a, b);
}

void ranking_sort(struct ranking *r, enum ranking_order order)
{
	struct by_change by = { .r = r, .total = order == RANKING_BY_TOTAL_CHANGE };

	if (!r->n_rows)
		return;
	if (order == RANKING_BY_CHANGE || order == RANKING_BY_TOTAL_CHANGE)
		qsort_r(r->rows, r->n_rows, sizeof(*r->rows), by_change, &by);
	else
		qsort(r->rows, r->n_rows, sizeof(*r->rows),
		      order == RANKING_BY_SELF	  ? by_self
		      : order == RANKING_BY_TOTAL ? by_total
						  : by_name);
	/* The index refers to the old positions. */
	uw_hash_clear(&r->by_name);
}

/*
 * agent/export/parquet.c: writes a profile as a table for databases: a row for each sample, with its values, labels and
 * frames, in an Apache Parquet file.
 */
#include "agent/export/formats.h"

#include "agent/export/parquet_file.h"
#include "agent/sanitize.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TYPES_MAX = 32, COLUMN_NAME = 64, NAME_PART = 31 };

/* Of a sample with its own time: nanoseconds since 1970, as OpenTelemetry's attribute is called in pprof. */
static const char time_label[] = "end_timestamp_ns";

struct table {
	const struct stacks *s;
	struct parquet *p;
	size_t time, values[TYPES_MAX], key, value; /* columns */
	size_t function, file, line, inlined, module, build_id, address;
	struct stacks_frames frames;
};

/* Append a text, cut between characters: readers refuse a file with half of one. */
static void append(char *to, size_t size, const char *text)
{
	size_t n = strlen(to);

	(void)sanitize_text(text, "", '?', to + n, size - n);
}

static bool is_taken(char names[][COLUMN_NAME], size_t n, const char *name)
{
	if (!strcmp(name, "time") || !strcmp(name, "labels") || !strcmp(name, "stack"))
		return true;
	for (size_t i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

/* Add a column for each sample type, which has its name; of two with one name, the second has its unit and a number, too. */
static int add_types(struct table *t)
{
	char names[TYPES_MAX][COLUMN_NAME];

	if (t->s->n_types > TYPES_MAX)
		return -E2BIG;
	for (size_t i = 0; i < t->s->n_types; i++) {
		char number[24];

		names[i][0] = '\0';
		append(names[i], NAME_PART, t->s->types[i].type);
		if (is_taken(names, i, names[i])) {
			(void)snprintf(number, sizeof(number), "_%zu", i + 1);
			append(names[i], NAME_PART + 1, "_");
			append(names[i], COLUMN_NAME - sizeof(number), t->s->types[i].unit);
			append(names[i], COLUMN_NAME, number);
		}
		t->values[i] = parquet_column(t->p, names[i], PARQUET_REQUIRED, PARQUET_INT64);
	}
	return 0;
}

static int add_columns(struct table *t)
{
	struct parquet *p = t->p;
	int err;

	t->time = parquet_column(p, "time", PARQUET_OPTIONAL, PARQUET_TIME_NS);
	err = add_types(t);
	parquet_group(p, "labels", PARQUET_REQUIRED, PARQUET_MAP, 1);
	parquet_group(p, "key_value", PARQUET_REPEATED, PARQUET_PLAIN, 2);
	t->key = parquet_column(p, "key", PARQUET_REQUIRED, PARQUET_TEXT);
	t->value = parquet_column(p, "value", PARQUET_REQUIRED, PARQUET_TEXT);
	parquet_group(p, "stack", PARQUET_REQUIRED, PARQUET_LIST, 1);
	parquet_group(p, "list", PARQUET_REPEATED, PARQUET_PLAIN, 1);
	parquet_group(p, "element", PARQUET_REQUIRED, PARQUET_PLAIN, 7);
	t->function = parquet_column(p, "function", PARQUET_REQUIRED, PARQUET_TEXT);
	t->file = parquet_column(p, "file", PARQUET_OPTIONAL, PARQUET_TEXT);
	t->line = parquet_column(p, "line", PARQUET_OPTIONAL, PARQUET_INT32);
	t->inlined = parquet_column(p, "inlined", PARQUET_REQUIRED, PARQUET_BOOLEAN);
	t->module = parquet_column(p, "module", PARQUET_OPTIONAL, PARQUET_TEXT);
	t->build_id = parquet_column(p, "build_id", PARQUET_OPTIONAL, PARQUET_TEXT);
	t->address = parquet_column(p, "address", PARQUET_REQUIRED, PARQUET_UINT64);
	parquet_begin(p);
	return err;
}

/* Append an optional text of a frame; "": there is none. */
static void put_text(struct table *t, size_t column, unsigned int repetition, const char *text)
{
	if (*text)
		parquet_text(t->p, column, (struct parquet_level){ repetition, 2 }, text);
	else
		parquet_none(t->p, column, (struct parquet_level){ repetition, 1 });
}

static void put_frame(struct table *t, const struct stacks_frame *f, unsigned int repetition)
{
	const struct stacks_function *function = &t->s->functions[f->function];
	const struct stacks_module *m = &t->s->modules[f->module];
	const struct parquet_level there = { repetition, 2 }, none = { repetition, 1 };

	parquet_text(t->p, t->function, none, function->name);
	put_text(t, t->file, repetition, function->file);
	if (f->line > 0 && f->line <= INT32_MAX)
		parquet_number(t->p, t->line, there, f->line);
	else
		parquet_none(t->p, t->line, none);
	parquet_number(t->p, t->inlined, none, f->inlined);
	put_text(t, t->module, repetition, m->path);
	put_text(t, t->build_id, repetition, m->build_id);
	parquet_number(t->p, t->address, none, (int64_t)f->address);
}

static int put_stack(struct table *t, const struct stacks_sample *sample)
{
	const size_t columns[] = { t->function, t->file,     t->line,	t->inlined,
				   t->module,	t->build_id, t->address };
	const struct parquet_level empty = { 0, 0 };
	int err = stacks_unfold(t->s, sample, &t->frames);

	if (err)
		return err;
	for (size_t i = 0; i < t->frames.n; i++)
		put_frame(t, &t->frames.frames[i], i > 0);
	for (size_t i = 0; !t->frames.n && i < sizeof(columns) / sizeof(columns[0]); i++)
		parquet_none(t->p, columns[i], empty);
	return 0;
}

static void put_labels(struct table *t, const struct stacks_sample *sample)
{
	const struct parquet_level empty = { 0, 0 };
	char number[STACKS_NUMBER];
	unsigned int n = 0;

	for (uint32_t i = 0; i < sample->n_labels; i++) {
		const struct stacks_label *l =
			&t->s->labels[t->s->label_ids[sample->first_label + i]];
		const struct parquet_level there = { n > 0, 1 };

		if (!strcmp(l->key, time_label))
			continue;
		parquet_text(t->p, t->key, there, l->key);
		parquet_text(t->p, t->value, there, stacks_label_text(l, number));
		n++;
	}
	if (n)
		return;
	parquet_none(t->p, t->key, empty);
	parquet_none(t->p, t->value, empty);
}

/* When a sample was taken, or else when the profile began; 0: it is not known. */
static int64_t time_of(const struct stacks *s, const struct stacks_sample *sample)
{
	const struct stacks_label *l = stacks_label(s, sample, time_label);

	return l && !l->text ? l->number : s->time_ns;
}

static int put_sample(struct table *t, size_t i)
{
	const struct stacks_sample *sample = &t->s->samples[i];
	int64_t time = time_of(t->s, sample);
	int err;

	if (time)
		parquet_number(t->p, t->time, (struct parquet_level){ 0, 1 }, time);
	else
		parquet_none(t->p, t->time, (struct parquet_level){ 0, 0 });
	for (size_t type = 0; type < t->s->n_types; type++)
		parquet_number(t->p, t->values[type], (struct parquet_level){ 0, 0 },
			       stacks_value(t->s, i, type));
	put_labels(t, sample);
	err = put_stack(t, sample);
	parquet_row(t->p);
	return err;
}

int format_parquet(const struct stacks *s, size_t type, FILE *out)
{
	struct table t = { .s = s };
	char start[32], duration[32], units[1024];
	const char *const pairs[] = {
		"time_ns", start,	   "duration_ns",	duration, "sample_types",
		units,	   "default_type", s->types[type].type, NULL
	};
	int err = parquet_new(out, &t.p);

	(void)snprintf(start, sizeof(start), "%" PRId64, s->time_ns);
	(void)snprintf(duration, sizeof(duration), "%" PRId64, s->duration_ns);
	units[0] = '\0';
	for (size_t i = 0; i < s->n_types; i++) {
		append(units, sizeof(units), i ? "," : "");
		append(units, sizeof(units), s->types[i].type);
		append(units, sizeof(units), ":");
		append(units, sizeof(units), s->types[i].unit);
	}
	if (!err)
		err = add_columns(&t);
	for (size_t i = 0; i < s->n_samples && !err; i++)
		err = put_sample(&t, i);
	if (!err)
		err = parquet_end(t.p, "offwind " OFFWIND_VERSION, pairs);
	parquet_free(t.p);
	free(t.frames.frames);
	return err;
}

/* agent/export/profile/types.c: names sample types and computes their values. */
#include "agent/export/profile/types.h"

#include "agent/log.h"
#include "agent/sanitize.h"
#include "agent/textbuf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Append a type; the array has room. */
static void add(struct types *t, const char *type, const char *unit)
{
	struct types_one *one = &t->all[t->n++];

	(void)snprintf(one->type, sizeof(one->type), "%s", type);
	(void)snprintf(one->unit, sizeof(one->unit), "%s", unit);
}

/* Write the name of an event, sanitized; the second event with the name "cpu" is "cpu_2". */
static void name_event(const struct source_info *info, size_t i, char *out, size_t size)
{
	size_t n_same = 0;

	for (size_t j = 0; j < i; j++)
		n_same += !strcmp(info->events[j].type, info->events[i].type);
	(void)sanitize_text(info->events[i].type, "", ' ', out, size / 2);
	if (n_same)
		(void)snprintf(out + strlen(out), size / 2, "_%zu", n_same + 1);
}

static bool is_off_cpu(const struct source_event *e)
{
	return !strcmp(e->type, SOURCE_OFF_CPU);
}

static bool is_alloc(const struct source_event *e)
{
	return !strcmp(e->type, SOURCE_ALLOC);
}

/* Append the types of an event. */
static void add_event(struct types *t, const struct source_info *info, size_t i)
{
	char type[160], samples[TYPES_NAME];

	t->first[i] = t->n;
	if (is_alloc(&info->events[i])) {
		add(t, "alloc_objects", "count");
		add(t, SOURCE_ALLOC, "bytes");
		add(t, "inuse_objects", "count");
		add(t, "inuse_space", "bytes");
		return;
	}
	name_event(info, i, type, sizeof(type));
	(void)snprintf(samples, sizeof(samples), "%.120s%s", i ? type : "samples",
		       i ? "_samples" : "");
	add(t, samples, "count");
	add(t, type, info->events[i].unit);
	if (!is_off_cpu(&info->events[i]))
		return;
	t->wall = true;
	add(t, "blocked", "nanoseconds");
	add(t, "runnable", "nanoseconds");
}

int types_of(const struct source_info *info, struct types *out)
{
	struct types t = { .all = calloc(4 * info->n_events + 3, sizeof(*t.all)),
			   .first = calloc(info->n_events + 1, sizeof(*t.first)) };

	if (!t.all || !t.first) {
		types_fini(&t);
		return -ENOMEM;
	}
	for (size_t i = 0; i < info->n_events; i++)
		add_event(&t, info, i);
	if (t.wall)
		add(&t, "wall", "nanoseconds");
	if (!info->n_events) {
		add(&t, "samples", "count");
		add(&t, "cpu", "nanoseconds");
	}
	t.default_type = t.wall ? t.n - 1 : 1;
	t.period_type = t.all[1].type;
	if (info->n_events && is_alloc(&info->events[0])) {
		t.default_type = t.wall ? t.n - 1 : 3;
		t.period_type = "space";
	}
	*out = t;
	return 0;
}

void types_fini(struct types *t)
{
	free(t->all);
	free(t->first);
	*t = (struct types){ 0 };
}

int types_choose(struct types *t, const char *name)
{
	char there[512] = "";

	for (size_t i = 0; i < t->n; i++) {
		if (!strcmp(t->all[i].type, name)) {
			t->default_type = i;
			return 0;
		}
		textbuf_add(there, sizeof(there), "%s%s", i ? ", " : "", t->all[i].type);
	}
	log_error("no sample type '%s'; there are: %s", name, there);
	return -ENOENT;
}

/* Convert to the signed numbers of pprof; larger values become INT64_MAX. */
static int64_t clip(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

/* Round units of 1 / EVENT_OBJECT to whole objects. */
static int64_t whole_objects(uint64_t objects)
{
	return clip(objects / EVENT_OBJECT + (objects % EVENT_OBJECT >= EVENT_OBJECT / 2));
}

void types_values(const struct types *t, const struct source_info *info, size_t event,
		  const struct types_counts *counts, int64_t *values)
{
	const struct source_event *e = event < info->n_events ? &info->events[event] : NULL;
	size_t first = e ? t->first[event] : 0;

	memset(values, 0, t->n * sizeof(*values));
	if (e && is_alloc(e)) {
		values[first] = whole_objects(counts->objects);
		values[first + 1] = clip(counts->value);
		values[first + 2] = whole_objects(counts->live_objects);
		values[first + 3] = clip(counts->live);
		return;
	}
	values[first] = clip(counts->n);
	values[first + 1] = clip(counts->value);
	if (e && is_off_cpu(e)) {
		const uint64_t runnable =
			counts->runnable < counts->value ? counts->runnable : counts->value;

		values[first] = clip(counts->n_off_cpu);
		values[first + 2] = clip(counts->value - runnable);
		values[first + 3] = clip(runnable);
	}
	if (t->wall && e && !strcmp(e->unit, "nanoseconds"))
		values[t->n - 1] = clip(counts->value);
}

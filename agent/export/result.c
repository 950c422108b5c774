/*
 * agent/export/result.c: names folded profiles, and encodes them as pprof or collects them as stacks.
 */
#include "agent/export/result.h"

#include "agent/export/export.h"
#include "agent/export/mapping_spans.h"
#include "agent/export/profile/guessed.h"
#include "agent/export/profile/types.h"
#include "agent/sanitize.h"
#include "agent/textbuf.h"
#include "proto/pprof.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct result {
	enum format format;
	struct pprof *pprof;   /* for pprof; else NULL */
	struct stacks *stacks; /* for every other format; else NULL */
	bool borrowed;	       /* the stacks are the caller's */
	bool base;
	bool begun;
	struct types types; /* those of the first profile's events */
	uint64_t wall_ns, duration_ns;
};

enum { SANITIZED_HOST = 256 };

struct adding { /* state while one profile is added */
	struct result *r;
	const struct profile *profile;
	struct names *names;
	const struct source_info *info;
	bool first;    /* it is the first profile */
	bool timeline; /* samples have times, and are shown as threads over time */
	struct types types;
	size_t *type_of; /* by type: its index in the stacks */
	struct spans spans;
	uint64_t *location_of;	   /* by location: its id in the result, or 0 */
	uint32_t *narrow;	   /* locations of one sample, for the stacks */
	char host[SANITIZED_HOST]; /* "": no label */
	int err;		   /* the first failure of an add_… function */
};

/* ---- what differs between pprof and stacks ----------------------------------------------- */

/*
 * The ids that these functions return are for the same result only. In pprof they count from 1; in
 * stacks they are an index + 1, but for a mapping, where the index 0 stands for none. Return any id
 * after a failure, which is in a->err or in the encoder.
 */
static uint64_t index_id(struct adding *a, uint32_t index)
{
	if (index == UW_HASH_NONE)
		a->err = -ENOMEM;
	return (uint64_t)index + 1;
}

static uint64_t add_mapping(struct adding *a, const struct pprof_mapping *m)
{
	struct stacks *s = a->r->stacks;

	if (!s)
		return pprof_mapping(a->r->pprof, m);
	return index_id(a,
			stacks_module(
				s, &(struct stacks_module){ .path = stacks_text(s, m->file),
							    .build_id = stacks_text(s, m->build_id),
							    .start = m->start,
							    .limit = m->limit,
							    .off = m->off })) -
	       1;
}

static uint64_t add_function(struct adding *a, const struct pprof_function *f)
{
	struct stacks *s = a->r->stacks;

	if (!s)
		return pprof_function(a->r->pprof, f);
	return index_id(a, stacks_function(s, &(struct stacks_function){
						      .name = stacks_text(s, f->name),
						      .system_name = stacks_text(s, f->system_name),
						      .file = stacks_text(s, f->file),
						      .start_line = f->start_line }));
}

static uint64_t add_location(struct adding *a, uint64_t mapping, uint64_t address,
			     const struct pprof_line *lines, size_t n)
{
	struct stacks_location to = { .module = (uint32_t)mapping,
				      .address = address,
				      .n_lines = (uint32_t)n };
	struct stacks_line *to_lines;
	uint64_t id;

	if (!a->r->stacks)
		return pprof_location(a->r->pprof, mapping, address, lines, n);
	to_lines = calloc(n, sizeof(*to_lines));
	for (size_t i = 0; to_lines && i < n; i++)
		to_lines[i] = (struct stacks_line){ .function = (uint32_t)(lines[i].function - 1),
						    .line = lines[i].line };
	id = index_id(a, to_lines ? stacks_location(a->r->stacks, &to, to_lines) : UW_HASH_NONE);
	free(to_lines);
	return id;
}

/* Return the id of a label with a text or, if text is NULL, with a number. */
static uint64_t add_label(struct adding *a, const char *key, const char *text, uint64_t number,
			  const char *unit)
{
	struct stacks *s = a->r->stacks;

	if (!s)
		return text ? pprof_label_text(a->r->pprof, key, text)
			    : pprof_label_number(a->r->pprof, key, (int64_t)number, unit);
	return index_id(a, stacks_keep_label(s, &(struct stacks_label){
							.key = stacks_text(s, key),
							.text = text ? stacks_text(s, text) : NULL,
							.unit = stacks_text(s, unit),
							.number = (int64_t)number }));
}

static void add_comment(struct adding *a, const char *text)
{
	if (a->r->pprof)
		pprof_comment(a->r->pprof, text);
	else if (stacks_add_comment(a->r->stacks, text))
		a->err = -ENOMEM;
}

/* ---- locations ----------------------------------------------------------------------------- */

/* Return the id of a span's mapping; 0: none. */
static uint64_t mapping_id(struct adding *a, struct span *span)
{
	const struct module *m = span->module;
	const struct uw_build_id *build_id = &m->build_id;
	char hex[2 * UW_BUILD_ID_MAX + 1];

	/*
	 * No mapping for an address that lay in none. None either if the last byte is UINT64_MAX:
	 * the limit after it cannot be represented.
	 */
	if (span->id || !strcmp(m->path, "[unknown]") || span->last == UINT64_MAX)
		return span->id;
	if (m->kind == MODULE_KERNEL && !build_id->size)
		build_id = &a->info->kernel_build_id;
	(void)textbuf_build_id(build_id, hex);
	span->id = add_mapping(a, &(struct pprof_mapping){ .start = span->first,
							   .limit = span->last + 1,
							   .off = span->off,
							   .file = m->path,
							   .build_id = hex });
	return span->id;
}

/*
 * Return the id of the mapping that a location lies in; 0: none. In a timeline a file is one module and
 * not one for each segment.
 */
static uint64_t mapping_of(struct adding *a, uint32_t id)
{
	const struct module *m = a->profile->locations[id].module;
	char hex[2 * UW_BUILD_ID_MAX + 1];

	if (!a->timeline)
		return mapping_id(a, &a->spans.all[a->spans.of[id]]);
	(void)textbuf_build_id(&m->build_id, hex);
	return add_mapping(a, &(struct pprof_mapping){ .file = m->path, .build_id = hex });
}

/*
 * Return the function of a name without lines; without a symbol its place is the name
 * (export_place).
 */
static uint64_t function_id(struct adding *a, const struct name *name)
{
	char place[SANITIZED_MAX];

	if (name->function && name->function[0])
		return add_function(a,
				    &(struct pprof_function){ .name = name->function,
							      .system_name = name->system_name });
	export_place(name, place, sizeof(place));
	return add_function(a, &(struct pprof_function){ .name = place });
}

/* Return the function of an inlined call or a frame with lines. */
static uint64_t place_id(struct adding *a, const struct name_place *place)
{
	return add_function(a, &(struct pprof_function){ .name = place->function,
							 .system_name = place->system_name,
							 .file = place->file,
							 .start_line = place->start_line });
}

/* Return the id in the result of a location of the profile, named once. */
static uint64_t location_id(struct adding *a, uint32_t id)
{
	const struct location *l = &a->profile->locations[id];
	struct pprof_line one, *lines = &one;
	size_t n = 1;
	struct name name;

	if (a->location_of[id])
		return a->location_of[id];
	names_find(a->names, l, &name);
	if (name.n_places > 1)
		lines = reallocarray(NULL, name.n_places, sizeof(*lines));
	if (name.n_places && lines) {
		n = name.n_places;
		for (size_t i = 0; i < n; i++)
			lines[i] = (struct pprof_line){ .function = place_id(a, &name.places[i]),
							.line = name.places[i].line };
	} else {
		lines = &one; /* if out of memory, the function alone */
		one = (struct pprof_line){ .function = function_id(a, &name) };
	}
	a->location_of[id] = add_location(a, mapping_of(a, id), l->vaddr, lines, n);
	if (lines != &one)
		free(lines);
	return a->location_of[id];
}

/* ---- types, comments, times ------------------------------------------------------------------ */

/* Convert to the signed numbers of pprof; larger values become INT64_MAX. */
static int64_t clip(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

/* Return the period of the first event: of the clock, the time between two samples. */
static int64_t period_of(const struct source_info *info)
{
	const struct source_event *first = info->n_events ? info->events : NULL;
	uint64_t period = first ? first->period : 0;

	if (first && !period && first->frequency_hz && !strcmp(first->unit, "nanoseconds"))
		period = 1000000000 / first->frequency_hz;
	return clip(period);
}

/*
 * Take the sample types of the first profile's events, and check that later profiles have the same:
 * only then can their samples be added up. -EINVAL: they have not.
 */
static int pprof_types(struct adding *a)
{
	struct result *r = a->r;
	const struct types *t = &a->types;

	if (!a->first) {
		for (size_t i = 0; i < t->n && i < r->types.n; i++)
			if (strcmp(t->all[i].type, r->types.all[i].type) != 0 ||
			    strcmp(t->all[i].unit, r->types.all[i].unit) != 0)
				return -EINVAL;
		return t->n == r->types.n ? 0 : -EINVAL;
	}
	for (size_t i = 0; i < t->n; i++)
		pprof_sample_type(r->pprof, t->all[i].type, t->all[i].unit);
	pprof_default_sample_type(r->pprof, t->all[t->default_type].type);
	pprof_period(r->pprof, t->period_type, t->all[1].unit, period_of(a->info));
	return 0;
}

/* Do the same for stacks, where the types may come in another order. */
static int stacks_types(struct adding *a)
{
	const struct types *t = &a->types;
	struct stacks_type *types = calloc(t->n, sizeof(*types));
	struct stacks *s = a->r->stacks;
	bool first = !s->n_types;
	int err;

	a->type_of = calloc(t->n, sizeof(*a->type_of));
	err = types && a->type_of ? 0 : -ENOMEM;
	for (size_t i = 0; !err && i < t->n; i++) {
		types[i] = (struct stacks_type){ .type = stacks_text(s, t->all[i].type),
						 .unit = stacks_text(s, t->all[i].unit) };
		err = types[i].type && types[i].unit ? 0 : -ENOMEM;
	}
	if (!err)
		err = stacks_take_types(s, types, t->n, a->type_of);
	free(types);
	if (err || !first)
		return err;
	s->timed = a->profile->separate;
	s->default_type = t->default_type;
	/* A timeline shows what was allocated, not what of it is still in use at the end. */
	if (s->timed && !strcmp(t->all[1].type, SOURCE_ALLOC) && !t->wall)
		s->default_type = 1;
	if (!a->r->base) {
		s->period_type.type = stacks_text(s, t->period_type);
		s->period_type.unit = s->types[1].unit;
	}
	return s->period_type.type ? 0 : -ENOMEM;
}

/* Add a comment "WHATtext" with the text sanitized; none if text is empty. */
static void comment(struct adding *a, const char *what, const char *text)
{
	char sanitized[1024], line[1100];

	if (!text[0])
		return;
	(void)sanitize_text(text, "", ' ', sanitized, sizeof(sanitized));
	(void)snprintf(line, sizeof(line), "%s%s", what, sanitized);
	add_comment(a, line);
}

/* Add a comment for each event: "event: cpu-clock, 99 samples a second on each CPU". */
static void comment_events(struct adding *a)
{
	for (size_t i = 0; i < a->info->n_events; i++) {
		const struct source_event *e = &a->info->events[i];
		char text[192];

		if (e->frequency_hz)
			(void)snprintf(text, sizeof(text),
				       "%s, %" PRIu64 " samples a second on each CPU", e->name,
				       e->frequency_hz);
		else if (e->period > 1)
			(void)snprintf(text, sizeof(text), "%s, one sample of %" PRIu64 "%s",
				       e->name, e->period,
				       !strcmp(e->unit, "nanoseconds") ? " ns" : "");
		else
			(void)snprintf(text, sizeof(text), "%s", e->name);
		comment(a, "event: ", text);
	}
}

/* Add the comments that result.h lists. */
static void add_comments(struct adding *a)
{
	char text[1024];

	if (a->first)
		comment(a, "offwind ", OFFWIND_VERSION);
	comment(a, "host: ", a->info->host);
	comment(a, "kernel: ", a->info->kernel);
	comment(a, "recorded by: ", a->info->recorder);
	comment(a, "command: ", a->info->command);
	comment_events(a);
	accounting_text(&a->profile->accounting, text, sizeof(text));
	comment(a, "", text);
}

/* Return what is to be added to a time of the source for ns since 1970. (It wraps correctly.) */
static uint64_t wall_offset(const struct adding *a)
{
	return a->profile->wall_offset_ns ? a->profile->wall_offset_ns
					  : a->info->wall_start_ns - a->info->wall_first_ns;
}

/* Add the profile's time: the earliest start, and the sum of the durations. */
static void add_time(struct adding *a)
{
	struct result *r = a->r;
	const struct profile *p = a->profile;
	uint64_t wall = a->info->wall_start_ns, duration = 0;

	if (wall && p->start_ns && !p->separate) /* otherwise nothing was sampled */
		wall = p->start_ns + wall_offset(a);
	if (p->end_ns > p->start_ns)
		duration = p->end_ns - p->start_ns;
	if (r->stacks) {
		stacks_add_time(r->stacks, clip(wall), clip(duration), period_of(a->info));
		return;
	}
	if (a->first || wall < r->wall_ns)
		r->wall_ns = wall;
	r->duration_ns += duration;
	pprof_time(r->pprof, clip(r->wall_ns), clip(r->duration_ns));
}

/* ---- samples ------------------------------------------------------------------------------- */

/* Write the label of the frames that no unwind rule led to. marks has room for all locations. */
static void guessed_text(const struct profile *p, const struct profile_entry *e, bool *marks,
			 char out[GUESSED_SIZE])
{
	const uint32_t *ids = p->location_ids + e->first_location;

	for (uint32_t i = 0; i < e->n_locations; i++)
		marks[i] = p->locations[ids[i]].confidence != UW_CONFIDENCE_RULE;
	guessed_write(marks, e->n_locations, out);
}

/* The most labels that a sample can have, including "guessed" and its time; others are left out. */
enum { LABELS_MAX = 64 };

/*
 * Return whether two entries have the same labels. Consecutive entries are mostly of one thread and
 * have the same texts.
 */
static bool same_labels(const struct profile_entry *a, const struct profile_entry *b)
{
	return a->pid == b->pid && a->tid == b->tid && a->comm == b->comm &&
	       a->process_comm == b->process_comm &&
	       !memcmp(a->labels, b->labels, sizeof(a->labels)) && a->cgroup_id == b->cgroup_id &&
	       a->has_user == b->has_user && a->stop == b->stop && a->confidence == b->confidence;
}

/* Add the labels of a text, of which there are n already; return their number. */
static size_t add_texts(struct adding *a, const char *text, uint64_t *labels, size_t n)
{
	struct label_item item;

	/* There is room for the labels that follow. */
	while (text && n < LABELS_MAX - 8 && labels_next(&text, &item))
		labels[n++] = add_label(a, item.key, item.value, 0, NULL);
	return n;
}

/* Add the labels of an entry except "guessed"; return their number. What the rules drop is not there. */
static size_t add_labels(struct adding *a, const struct profile_entry *e, uint64_t *labels)
{
	const struct label_rules *rules = a->profile->rules;
	const char *pid = label_rules_name(rules, "pid"), *tid = label_rules_name(rules, "tid");
	size_t n = 0;

	if (pid)
		labels[n++] = add_label(a, pid, NULL, e->pid, "pid");
	if (tid)
		labels[n++] = add_label(a, tid, NULL, e->tid, "tid");
	/* A label with an empty text would be read as the number 0. */
	if (e->comm && *e->comm)
		labels[n++] = add_label(a, label_rules_name(rules, "thread"), e->comm, 0, NULL);
	if (e->process_comm && *e->process_comm)
		labels[n++] =
			add_label(a, label_rules_name(rules, "comm"), e->process_comm, 0, NULL);
	if (e->cgroup_id)
		labels[n++] =
			add_label(a, label_rules_name(rules, "cgroup"), NULL, e->cgroup_id, "id");
	if (*a->host)
		labels[n++] = add_label(a, label_rules_name(rules, "host"), a->host, 0, NULL);
	for (size_t i = 0; i < PROFILE_LABELS; i++)
		n = add_texts(a, e->labels[i], labels, n);
	if (e->has_user && e->stop != UW_STOP_ROOT)
		labels[n++] = add_label(a, "stop", uw_stop_name((enum uw_stop)e->stop), 0, NULL);
	if (e->confidence != UW_CONFIDENCE_RULE)
		labels[n++] =
			add_label(a, "confidence",
				  uw_confidence_name((enum uw_confidence)e->confidence), 0, NULL);
	return n;
}

/*
 * Add a sample to the result. ids are the locations; values has room for the values in the order of
 * this profile's types and, behind them, in the order of the result's.
 */
static int add_sample(struct adding *a, const struct profile_entry *e, const uint64_t *ids,
		      const uint64_t *labels, size_t n_labels, int64_t *values)
{
	struct stacks_sample to = { .n_locations = e->n_locations,
				    .n_labels = (uint32_t)n_labels,
				    .base = a->r->base,
				    .time_ns = e->time_ns };
	int64_t *moved = values + a->types.n;
	uint32_t label_ids[LABELS_MAX];

	if (a->r->pprof) {
		pprof_sample(a->r->pprof, &(struct pprof_sample){ .locations = ids,
								  .n_locations = e->n_locations,
								  .values = values,
								  .labels = labels,
								  .n_labels = n_labels });
		return 0;
	}
	if (a->err)
		return a->err;
	for (uint32_t i = 0; i < e->n_locations; i++)
		a->narrow[i] = (uint32_t)(ids[i] - 1);
	for (size_t i = 0; i < n_labels; i++)
		label_ids[i] = (uint32_t)(labels[i] - 1);
	for (size_t i = 0; i < a->types.n; i++)
		moved[a->type_of[i]] = values[i];
	return stacks_add(a->r->stacks, &to, a->narrow, label_ids, moved);
}

/* Add one sample for each entry of the profile. */
static int add_samples(struct adding *a)
{
	const struct profile *p = a->profile;
	size_t n_events = a->info->n_events ? a->info->n_events : 1;
	int64_t *values = calloc(2 * a->types.n, sizeof(*values));
	uint64_t *ids = NULL, labels[LABELS_MAX];
	bool *marks = NULL;
	size_t room = 0, n_common = 0;
	int err = values ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < p->n_entries; i++) {
		const struct profile_entry *e = &p->entries[i];
		char guessed[GUESSED_SIZE];
		size_t n_labels;

		if (e->event >= n_events) {
			err = -EINVAL;
			break;
		}
		if (e->n_locations > room) {
			free(ids);
			free(a->narrow);
			free(marks);
			room = e->n_locations * (size_t)2;
			ids = calloc(room, sizeof(*ids));
			a->narrow = calloc(room, sizeof(*a->narrow));
			marks = calloc(room, sizeof(*marks));
			if (!ids || !a->narrow || !marks) {
				err = -ENOMEM;
				break;
			}
		}
		for (uint32_t j = 0; j < e->n_locations; j++)
			ids[j] = location_id(a, p->location_ids[e->first_location + j]);
		if (!i || !same_labels(e - 1, e))
			n_common = add_labels(a, e, labels);
		n_labels = n_common;
		guessed[0] = '\0';
		if (e->confidence != UW_CONFIDENCE_RULE)
			guessed_text(p, e, marks, guessed);
		if (guessed[0])
			labels[n_labels++] = add_label(a, "guessed", guessed, 0, NULL);
		if (p->separate && !a->timeline)
			labels[n_labels++] = add_label(a, "end_timestamp_ns", NULL,
						       e->time_ns + wall_offset(a), "nanoseconds");
		types_values(&a->types, a->info, e->event,
			     &(struct types_counts){ .n = e->n_samples,
						     .value = e->value,
						     .n_off_cpu = e->n_off_cpu,
						     .runnable = e->runnable,
						     .objects = e->objects,
						     .live_objects = e->live_objects,
						     .live = e->live },
			     values);
		err = add_sample(a, e, ids, labels, n_labels, values);
	}
	free(values);
	free(ids);
	free(marks);
	return err;
}

/* ---- the result ---------------------------------------------------------------------------- */

int result_new(enum format format, struct result **out)
{
	struct result *r = calloc(1, sizeof(*r));
	int err = -ENOMEM;

	if (r) {
		r->format = format;
		err = format == FORMAT_PPROF ? pprof_new(&r->pprof) : stacks_new(&r->stacks);
	}
	if (err) {
		free(r);
		return err;
	}
	*out = r;
	return 0;
}

int result_into(struct stacks *stacks, bool base, struct result **out)
{
	struct result *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	*r = (struct result){
		.format = FORMAT_N, .stacks = stacks, .borrowed = true, .base = base
	};
	stacks->compared |= base;
	*out = r;
	return 0;
}

void result_free(struct result *r)
{
	if (!r)
		return;
	types_fini(&r->types);
	pprof_free(r->pprof);
	if (!r->borrowed)
		stacks_free(r->stacks);
	free(r);
}

int result_add(struct result *r, const struct profile *profile, struct names *names,
	       const struct source_info *info)
{
	struct adding a = { .r = r, .profile = profile, .names = names, .info = info };
	struct span *program = NULL;
	int err = types_of(info, &a.types);

	if (label_rules_name(profile->rules, "host"))
		(void)sanitize_text(info->host, "", ' ', a.host, sizeof(a.host));
	a.first = !r->begun;
	a.timeline = profile->separate && r->stacks;
	r->begun = true;
	if (!err && a.first)
		err = types_of(info, &r->types);
	if (!err)
		err = r->pprof ? pprof_types(&a) : stacks_types(&a);
	a.location_of = calloc(profile->n_locations + 1, sizeof(*a.location_of));
	if (!err && !a.location_of)
		err = -ENOMEM;
	if (!err && !a.timeline)
		err = spans_make(profile, &a.spans);
	if (!err) {
		names_prepare(names, profile);
		/* Readers take the first mapping for the main program. */
		if (a.first && !a.timeline)
			program = spans_program(&a.spans, profile);
		if (program)
			(void)mapping_id(&a, program);
		if (!r->base) {
			add_comments(&a);
			add_time(&a);
		}
		err = add_samples(&a);
	}
	types_fini(&a.types);
	spans_fini(&a.spans);
	free(a.type_of);
	free(a.location_of);
	free(a.narrow);
	return err ? err : a.err;
}

int result_write(struct result *r, const char *type, FILE *out)
{
	int err = type ? types_choose(&r->types, type) : 0;

	if (err)
		return err;
	/* The stacks have the same types in the same order. */
	if (r->stacks)
		return format_write(r->format, r->stacks, type ? r->types.default_type : SIZE_MAX,
				    out);
	if (type)
		pprof_default_sample_type(r->pprof, type);
	return fflush(out) ? -errno : pprof_write(r->pprof, 1, fileno(out));
}

/* agent/export/pprof_profile.c: encodes folded profiles with their names as one pprof profile. */
#include "agent/export/export.h"
#include "agent/export/profile/types.h"
#include "agent/sanitize.h"

#include "agent/array.h"
#include "agent/container.h"
#include "agent/hash.h"
#include "agent/textbuf.h"
#include "proto/pprof.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

/*
 * A mapping in the making: a segment of a file or, for addresses of a module outside of segments,
 * the range of those that were sampled.
 */
struct span {
	const struct module *module;
	bool segment;	      /* the bounds are those of the file's segment */
	uint64_t first, last; /* address of the first and last byte */
	uint64_t off;	      /* file offset of first */
	uint64_t weight;      /* frames in it, weighted by their samples */
	uint64_t id;	      /* id in the profile; 0: not yet, or none */
};

struct mapping {		 /* a mapping that the profile has; the key is `of` */
	struct pprof_mapping of; /* texts owned */
	uint64_t id;
};

struct export_pprof {
	struct pprof *pprof;
	size_t n_added;
	struct types types; /* those of the first profile's events */
	uint64_t wall_ns, duration_ns;
	struct mapping *mappings;
	size_t n_mappings, room_mappings;
	struct hash_index by_mapping;
};

struct writer { /* state while one profile is added */
	struct export_pprof *e;
	const struct profile *profile;
	struct names *names;
	const struct source_info *info;
	struct pprof *pprof;
	struct span *spans;
	size_t n_spans, room_spans;
	struct hash_index by_place;
	uint32_t *span_of;     /* by location; NO_SPAN: not placed yet */
	uint64_t *location_of; /* by location: its id in the profile, or 0 */
};

#define NO_SPAN UINT32_MAX

/*
 * Return the segment that the location lies in; NULL if it lies in none or the module has no
 * object.
 */
static const struct uw_segment *segment_of(const struct location *location)
{
	size_t n = 0;
	const struct uw_segment *s =
		location->module->object ? uw_object_segments(location->module->object, &n) : NULL;

	for (size_t i = 0; i < n; i++)
		if (location->vaddr >= s[i].vaddr && location->vaddr - s[i].vaddr < s[i].mem_size)
			return &s[i];
	return NULL;
}

/* segment NULL: the span is for all locations of the module outside of its segments. */
static bool is_span_of(const struct span *s, const struct module *module,
		       const struct uw_segment *segment)
{
	return s->module == module && s->segment == (segment != NULL) &&
	       (!segment || s->first == (segment->vaddr & ~(uint64_t)(PAGE - 1)));
}

/*
 * Append the span of a segment, or an empty span that grows with its locations; index it by hash.
 */
static int add_span(struct writer *w, const struct module *module, const struct uw_segment *segment,
		    uint64_t hash, uint32_t *out)
{
	struct span *span;
	int err;

	err = array_grow(w->spans, w->n_spans, w->room_spans);
	if (err)
		return err;
	err = hash_add(&w->by_place, hash, (uint32_t)w->n_spans);
	if (err)
		return err;
	*out = (uint32_t)w->n_spans++;
	span = &w->spans[*out];
	*span = (struct span){ .module = module, .first = UINT64_MAX };
	if (segment) {
		/* The loader maps whole pages. */
		uint64_t skew = segment->vaddr & (PAGE - 1);
		uint64_t last = segment->vaddr + (segment->mem_size - 1);

		span->segment = true;
		span->first = segment->vaddr - skew;
		span->last = (last < segment->vaddr ? UINT64_MAX : last) | (PAGE - 1);
		span->off = segment->off - (segment->off < skew ? segment->off : skew);
	}
	return 0;
}

/*
 * Find or add the span of a location. A span without a segment is extended to contain the location.
 */
static int place_location(struct writer *w, uint32_t id)
{
	const struct location *l = &w->profile->locations[id];
	const struct uw_segment *segment = segment_of(l);
	uint64_t hash = hash_u64(l->module->id, segment ? segment->vaddr + 1 : 0);
	struct hash_search search;
	uint32_t at = hash_first(&w->by_place, hash, &search);
	struct span *span;

	while (at != HASH_NONE && !is_span_of(&w->spans[at], l->module, segment))
		at = hash_next(&search);
	if (at == HASH_NONE) {
		int err = add_span(w, l->module, segment, hash, &at);

		if (err)
			return err;
	}
	w->span_of[id] = at;
	span = &w->spans[at];
	if (span->segment)
		return 0;
	if (l->vaddr < span->first)
		span->first = l->vaddr & ~(uint64_t)(PAGE - 1);
	if (l->vaddr > span->last)
		span->last = l->vaddr | (PAGE - 1);
	/* In a file that could not be opened, addresses are file offsets. */
	span->off = l->module->kind == MODULE_FILE ? span->first : 0;
	return 0;
}

/* Find the spans of all locations that the profile uses. */
static int place_all(struct writer *w)
{
	const struct profile *p = w->profile;

	w->span_of = malloc((p->n_locations + 1) * sizeof(*w->span_of));
	w->location_of = calloc(p->n_locations + 1, sizeof(*w->location_of));
	if (!w->span_of || !w->location_of)
		return -ENOMEM;
	memset(w->span_of, 0xff, p->n_locations * sizeof(*w->span_of)); /* NO_SPAN */
	for (size_t i = 0; i < p->n_location_ids; i++) {
		uint32_t id = p->location_ids[i];

		if (w->span_of[id] == NO_SPAN) {
			int err = place_location(w, id);

			if (err)
				return err;
		}
	}
	return 0;
}

static bool same_mapping(const struct pprof_mapping *a, const struct pprof_mapping *b)
{
	return a->start == b->start && a->limit == b->limit && a->off == b->off &&
	       !strcmp(a->file, b->file) && !strcmp(a->build_id, b->build_id);
}

/* Return the mapping's id in the profile; equal mappings of several profiles have one id. */
static uint64_t keep_mapping(struct export_pprof *e, const struct pprof_mapping *of)
{
	uint64_t hash = hash_bytes(of->start ^ of->limit, of->file, strlen(of->file));
	struct hash_search search;
	uint32_t at = hash_first(&e->by_mapping, hash, &search);
	struct mapping *m;
	uint64_t id;

	while (at != HASH_NONE && !same_mapping(&e->mappings[at].of, of))
		at = hash_next(&search);
	if (at != HASH_NONE)
		return e->mappings[at].id;
	id = pprof_mapping(e->pprof, of);
	if (array_grow(e->mappings, e->n_mappings, e->room_mappings))
		return id; /* a later profile adds the mapping again, which does no harm */
	m = &e->mappings[e->n_mappings];
	*m = (struct mapping){ .of = *of, .id = id };
	m->of.file = strdup(of->file);
	m->of.build_id = strdup(of->build_id);
	if (!m->of.file || !m->of.build_id ||
	    hash_add(&e->by_mapping, hash, (uint32_t)e->n_mappings)) {
		free((void *)(uintptr_t)m->of.file);
		free((void *)(uintptr_t)m->of.build_id);
		return id;
	}
	e->n_mappings++;
	return id;
}

/* Return the id of a span's mapping; 0: none. */
static uint64_t mapping_id(struct writer *w, struct span *span)
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
		build_id = &w->info->kernel_build_id;
	(void)textbuf_build_id(build_id, hex);
	span->id = keep_mapping(w->e, &(struct pprof_mapping){ .start = span->first,
							       .limit = span->last + 1,
							       .off = span->off,
							       .file = m->path,
							       .build_id = hex });
	return span->id;
}

/* Return whether the base name is a library's: "libc.so.6", "ld-linux-x86-64.so.2", "module.so". */
static bool is_library(const char *path)
{
	const char *slash = strrchr(path, '/'), *so = strstr(slash ? slash : path, ".so");

	return so && (!so[3] || so[3] == '.');
}

/*
 * Give the main program the first mapping id, because readers take the first mapping for the
 * program. For a whole system, choose the program with the most frames.
 */
static void put_program_first(struct writer *w)
{
	const struct profile *p = w->profile;
	struct span *first = NULL;

	for (size_t i = 0; i < p->n_entries; i++) {
		const struct profile_entry *e = &p->entries[i];

		for (uint32_t j = 0; j < e->n_locations; j++)
			w->spans[w->span_of[p->location_ids[e->first_location + j]]].weight +=
				e->n_samples;
	}
	for (size_t i = 0; i < w->n_spans; i++)
		if (w->spans[i].module->kind == MODULE_FILE &&
		    !is_library(w->spans[i].module->path) &&
		    (!first || w->spans[i].weight > first->weight))
			first = &w->spans[i];
	if (first)
		(void)mapping_id(w, first);
}

/*
 * Return the function of a name without lines; without a symbol its place is the name
 * (export_place).
 */
static uint64_t function_id(struct writer *w, const struct name *name)
{
	char place[CLEAN_MAX];

	if (name->function && name->function[0])
		return pprof_function(w->pprof, name->function, name->system_name, NULL);
	export_place(name, place, sizeof(place));
	return pprof_function(w->pprof, place, NULL, NULL);
}

/* Return the function of an inlined call or a frame with lines. */
static uint64_t place_id(struct writer *w, const struct name_place *place)
{
	return pprof_function_in(w->pprof,
				 &(struct pprof_function){ .name = place->function,
							   .system_name = place->system_name,
							   .file = place->file,
							   .start_line = place->start_line });
}

/* Return the pprof id of a location of the profile, named once. */
static uint64_t location_id(struct writer *w, uint32_t id)
{
	const struct location *l = &w->profile->locations[id];
	struct pprof_line one, *lines = &one;
	size_t n = 1;
	struct name name;

	if (w->location_of[id])
		return w->location_of[id];
	names_find(w->names, l, &name);
	if (name.n_places > 1)
		lines = reallocarray(NULL, name.n_places, sizeof(*lines));
	if (name.n_places && lines) {
		n = name.n_places;
		for (size_t i = 0; i < n; i++)
			lines[i] = (struct pprof_line){ .function = place_id(w, &name.places[i]),
							.line = name.places[i].line };
	} else {
		lines = &one; /* if out of memory, the function alone */
		one = (struct pprof_line){ .function = function_id(w, &name) };
	}
	w->location_of[id] = pprof_location(w->pprof, mapping_id(w, &w->spans[w->span_of[id]]),
					    l->vaddr, lines, n);
	if (lines != &one)
		free(lines);
	return w->location_of[id];
}

/* Convert to the signed numbers of pprof; larger values become INT64_MAX. */
static int64_t clip(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : (int64_t)value;
}

/* State the sample types, the default type and the period. */
static void add_types(struct writer *w)
{
	const struct source_event *first = w->info->n_events ? w->info->events : NULL;
	uint64_t period = first ? first->period : 0;
	const struct types *t = &w->e->types;

	for (size_t i = 0; i < t->n; i++)
		pprof_sample_type(w->pprof, t->all[i].type, t->all[i].unit);
	if (first && !period && first->frequency_hz && !strcmp(first->unit, "nanoseconds"))
		period = 1000000000 / first->frequency_hz;
	pprof_default_sample_type(w->pprof, t->all[t->default_type].type);
	pprof_period(w->pprof, t->period_type, t->all[1].unit, clip(period));
}

/* Add a comment "WHATtext" with the text sanitized; none if text is empty. */
static void comment(struct writer *w, const char *what, const char *text)
{
	char clean[1024], line[1100];

	if (!text[0])
		return;
	(void)clean_text(text, "", ' ', clean, sizeof(clean));
	(void)snprintf(line, sizeof(line), "%s%s", what, clean);
	pprof_comment(w->pprof, line);
}

/* Add a comment for each event: "event: cpu-clock, 99 samples a second on each CPU". */
static void comment_events(struct writer *w)
{
	for (size_t i = 0; i < w->info->n_events; i++) {
		const struct source_event *e = &w->info->events[i];
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
		comment(w, "event: ", text);
	}
}

/* Add the comments that export.h lists. */
static void add_comments(struct writer *w, const char *const *comments, size_t n)
{
	char text[1024];

	if (!w->e->n_added)
		comment(w, "offwind ", OFFWIND_VERSION);
	comment(w, "host: ", w->info->host);
	comment(w, "kernel: ", w->info->kernel);
	comment(w, "recorded by: ", w->info->recorder);
	comment(w, "command: ", w->info->command);
	comment_events(w);
	accounting_text(&w->profile->accounting, text, sizeof(text));
	comment(w, "", text);
	for (size_t i = 0; i < n; i++)
		comment(w, "", comments[i]);
}

/* Add the profile's time: the earliest start, and the sum of the durations. */
static void add_time(struct writer *w)
{
	struct export_pprof *e = w->e;
	const struct profile *p = w->profile;
	uint64_t wall = w->info->wall_start_ns;

	if (wall && p->start_ns)			      /* otherwise nothing was sampled */
		wall += p->start_ns - w->info->wall_first_ns; /* negative: wraps correctly */
	if (!e->n_added || wall < e->wall_ns)
		e->wall_ns = wall;
	if (p->end_ns > p->start_ns)
		e->duration_ns += p->end_ns - p->start_ns;
	pprof_time(w->pprof, clip(e->wall_ns), clip(e->duration_ns));
}

/* Write the indices of the frames that no unwind rule led to, 0 the innermost, as in "2-5,9". */
static void guessed_text(const struct profile *p, const struct profile_entry *e, char *out,
			 size_t size)
{
	const uint32_t *ids = p->location_ids + e->first_location;
	size_t used = 0;

	out[0] = '\0';
	for (uint32_t i = 0, end; i < e->n_locations; i = end) {
		int n;

		end = i + 1;
		if (p->locations[ids[i]].confidence == UW_CONFIDENCE_RULE)
			continue;
		while (end < e->n_locations &&
		       p->locations[ids[end]].confidence != UW_CONFIDENCE_RULE)
			end++;
		n = end > i + 1
			    ? snprintf(out + used, size - used, "%s%" PRIu32 "-%" PRIu32,
				       used ? "," : "", i, end - 1)
			    : snprintf(out + used, size - used, "%s%" PRIu32, used ? "," : "", i);
		/*
		 * The size suffices for the walk's default depth, whatever the pattern; for deeper
		 * stacks the last indices are missing.
		 */
		if (n < 0 || (size_t)n >= size - used) {
			out[used] = '\0';
			return;
		}
		used += (size_t)n;
	}
}

/* The most labels that a sample can have, including "guessed". */
enum { LABELS_MAX = 9 };

/*
 * Return whether two entries have the same labels. Consecutive entries are mostly of one thread and
 * have the same texts.
 */
static bool same_labels(const struct profile_entry *a, const struct profile_entry *b)
{
	return a->pid == b->pid && a->tid == b->tid && a->comm == b->comm &&
	       a->process_comm == b->process_comm && a->cgroup == b->cgroup &&
	       a->cgroup_id == b->cgroup_id && a->has_user == b->has_user && a->stop == b->stop &&
	       a->confidence == b->confidence;
}

/* Add the labels of an entry except "guessed"; return their number. */
static size_t add_labels(struct writer *w, const struct profile_entry *e, uint64_t *labels)
{
	char container[CONTAINER_ID + 1];
	size_t n_labels = 0;

	labels[n_labels++] = pprof_label_quantity(w->pprof, "pid", e->pid, "pid");
	labels[n_labels++] = pprof_label_quantity(w->pprof, "tid", e->tid, "tid");
	/* A label with an empty text would be read as the number 0. */
	if (*e->comm)
		labels[n_labels++] = pprof_label_text(w->pprof, "thread", e->comm);
	if (*e->process_comm)
		labels[n_labels++] = pprof_label_text(w->pprof, "comm", e->process_comm);
	if (e->cgroup)
		labels[n_labels++] = pprof_label_text(w->pprof, "cgroup", e->cgroup);
	else if (e->cgroup_id)
		labels[n_labels++] =
			pprof_label_quantity(w->pprof, "cgroup", (int64_t)e->cgroup_id, "id");
	if (e->cgroup && container_of(e->cgroup, container))
		labels[n_labels++] = pprof_label_text(w->pprof, "container_id", container);
	if (e->has_user && e->stop != UW_STOP_ROOT)
		labels[n_labels++] =
			pprof_label_text(w->pprof, "stop", uw_stop_name((enum uw_stop)e->stop));
	if (e->confidence != UW_CONFIDENCE_RULE)
		labels[n_labels++] =
			pprof_label_text(w->pprof, "confidence",
					 uw_confidence_name((enum uw_confidence)e->confidence));
	return n_labels;
}

/* Add one pprof sample for each entry of the profile. */
static int add_samples(struct writer *w)
{
	const struct profile *p = w->profile;
	size_t n_events = w->info->n_events ? w->info->n_events : 1;
	const struct types *types = &w->e->types;
	int64_t *values = calloc(types->n + 1, sizeof(*values));
	uint64_t *ids = NULL, labels[LABELS_MAX];
	size_t room = 0, n_common = 0;
	int err = values ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < p->n_entries; i++) {
		const struct profile_entry *e = &p->entries[i];
		char guessed[4096];
		size_t n_labels;

		if (e->event >= n_events) {
			err = -EINVAL;
			break;
		}
		if (e->n_locations > room) {
			free(ids);
			room = e->n_locations * (size_t)2;
			ids = calloc(room, sizeof(*ids));
			if (!ids) {
				err = -ENOMEM;
				break;
			}
		}
		for (uint32_t j = 0; j < e->n_locations; j++)
			ids[j] = location_id(w, p->location_ids[e->first_location + j]);
		if (!i || !same_labels(e - 1, e))
			n_common = add_labels(w, e, labels);
		n_labels = n_common;
		guessed[0] = '\0';
		if (e->confidence != UW_CONFIDENCE_RULE)
			guessed_text(p, e, guessed, sizeof(guessed));
		if (guessed[0])
			labels[n_labels++] = pprof_label_text(w->pprof, "guessed", guessed);
		types_values(types, w->info, e->event,
			     &(struct types_counts){ .n = e->n_samples,
						     .value = e->value,
						     .objects = e->objects,
						     .live_objects = e->live_objects,
						     .live = e->live },
			     values);
		pprof_sample(w->pprof, &(struct pprof_sample){ .locations = ids,
							       .n_locations = e->n_locations,
							       .values = values,
							       .labels = labels,
							       .n_labels = n_labels });
	}
	free(values);
	free(ids);
	return err;
}

/*
 * Take the sample types of the first profile's events, and check that later profiles have the same
 * types and units: only then can their samples be added up. -EINVAL: they have not.
 */
static int check_types(struct export_pprof *e, const struct source_info *info)
{
	struct types types;
	int err = types_of(info, &types);

	if (err)
		return err;
	if (!e->n_added) {
		types_fini(&e->types);
		e->types = types;
		return 0;
	}
	if (types.n != e->types.n)
		err = -EINVAL;
	for (size_t i = 0; !err && i < types.n; i++)
		if (strcmp(types.all[i].type, e->types.all[i].type) != 0 ||
		    strcmp(types.all[i].unit, e->types.all[i].unit) != 0)
			err = -EINVAL;
	types_fini(&types);
	return err;
}

int export_pprof_new(struct export_pprof **out)
{
	struct export_pprof *e = calloc(1, sizeof(*e));
	int err = e ? pprof_new(&e->pprof) : -ENOMEM;

	if (err) {
		free(e);
		return err;
	}
	*out = e;
	return 0;
}

void export_pprof_free(struct export_pprof *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < e->n_mappings; i++) {
		free((void *)(uintptr_t)e->mappings[i].of.file);
		free((void *)(uintptr_t)e->mappings[i].of.build_id);
	}
	types_fini(&e->types);
	free(e->mappings);
	hash_fini(&e->by_mapping);
	pprof_free(e->pprof);
	free(e);
}

int export_pprof_add(struct export_pprof *e, const struct profile *profile, struct names *names,
		     const struct source_info *info, const char *const *comments, size_t n_comments)
{
	struct writer w = {
		.e = e, .profile = profile, .names = names, .info = info, .pprof = e->pprof
	};
	int err = check_types(e, info);

	if (!err)
		err = place_all(&w);
	if (!err) {
		names_prepare(names, profile);
		if (!e->n_added) {
			add_types(&w);
			put_program_first(&w);
		}
		add_comments(&w, comments, n_comments);
		add_time(&w);
		err = add_samples(&w);
		e->n_added++;
	}
	free(w.spans);
	free(w.span_of);
	free(w.location_of);
	hash_fini(&w.by_place);
	return err;
}

int export_pprof_default_type(struct export_pprof *e, const char *type)
{
	int err = types_choose(&e->types, type);

	if (!err)
		pprof_default_sample_type(e->pprof, type);
	return err;
}

int export_pprof_write(struct export_pprof *e, int gzip_level, int fd)
{
	return pprof_write(e->pprof, gzip_level, fd);
}

int export_pprof(const struct profile *profile, struct names *names, const struct source_info *info,
		 const char *const *comments, size_t n_comments, int gzip_level, int fd)
{
	struct export_pprof *e;
	int err = export_pprof_new(&e);

	if (err)
		return err;
	err = export_pprof_add(e, profile, names, info, comments, n_comments);
	if (!err)
		err = export_pprof_write(e, gzip_level, fd);
	export_pprof_free(e);
	return err;
}

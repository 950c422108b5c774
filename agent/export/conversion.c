/* agent/export/conversion.c: converts walked samples and folded profiles to any format. */
#include "agent/array.h"
#include "agent/export/export.h"
#include "agent/export/formats.h"
#include "agent/export/profile/types.h"
#include "agent/log.h"
#include "agent/sanitize.h"
#include "agent/textbuf.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- a folded profile ------------------------------------------------------------ */

/*
 * Give the index of a sample type; SIZE_MAX if name is NULL. -ENOENT, which is reported: there is
 * none of that name.
 */
static int find_type(const struct stacks *s, const char *name, size_t *out)
{
	char there[512] = "";

	*out = name ? stacks_find_type(s, name) : SIZE_MAX;
	if (!name || *out < s->n_types)
		return 0;
	for (size_t i = 0; i < s->n_types; i++)
		textbuf_add(there, sizeof(there), "%s%s", i ? ", " : "", s->types[i].type);
	log_error("no sample type '%s'; there are: %s", name, there);
	return -ENOENT;
}

int format_made(enum format format, struct export_pprof *made, const char *type, FILE *out)
{
	struct stacks *s = NULL;
	size_t at = SIZE_MAX;
	int fd, err;

	if (format == FORMAT_PPROF) {
		err = type ? export_pprof_default_type(made, type) : 0;
		if (!err && fflush(out))
			err = -errno;
		return err ? err : export_pprof_write(made, 1, fileno(out));
	}
	/*
	 * Encode the profile and read it back: the result is checked, and is what a file would
	 * contain.
	 */
	fd = memfd_create("profile", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = export_pprof_write(made, 0, fd);
	if (!err && lseek(fd, 0, SEEK_SET))
		err = -errno;
	if (!err)
		err = stacks_new(&s);
	if (!err)
		err = stacks_load_fd(s, fd, "the profile", false);
	(void)close(fd);
	if (!err)
		err = find_type(s, type, &at);
	if (!err)
		err = format_write(format, s, at, out);
	stacks_free(s);
	return err;
}

/* ---- single samples --------------------------------------------------------------- */

struct known { /* a location of the current input */
	struct location location;
	uint32_t id; /* its index in the stacks */
};

struct format_walked {
	struct stacks *s;
	struct types types;
	int64_t *values;
	struct known *known;
	size_t n_known, room_known;
	struct hash_index by_location;
	uint32_t *ids;
	size_t room_ids;
};

int format_walked_new(struct format_walked **out)
{
	struct format_walked *w = calloc(1, sizeof(*w));
	int err = w ? stacks_new(&w->s) : -ENOMEM;

	if (err) {
		free(w);
		return err;
	}
	w->s->timed = true;
	*out = w;
	return 0;
}

void format_walked_next(struct format_walked *w)
{
	w->n_known = 0;
	hash_clear(&w->by_location);
}

void format_walked_free(struct format_walked *w)
{
	if (!w)
		return;
	stacks_free(w->s);
	types_fini(&w->types);
	free(w->values);
	free(w->known);
	free(w->ids);
	hash_fini(&w->by_location);
	free(w);
}

/* Set the sample types at the first sample. -EINVAL: a further input has other types. */
static int begin(struct format_walked *w, const struct source_info *info)
{
	struct types types;
	int err = 0;

	if (w->types.n && w->n_known)
		return 0;
	err = types_of(info, &types);
	if (err)
		return err;
	if (w->types.n) {
		if (types.n != w->types.n)
			err = -EINVAL;
		for (size_t i = 0; !err && i < types.n; i++)
			if (strcmp(types.all[i].type, w->types.all[i].type) != 0 ||
			    strcmp(types.all[i].unit, w->types.all[i].unit) != 0)
				err = -EINVAL;
		types_fini(&types);
		return err;
	}
	w->types = types;
	w->values = calloc(types.n, sizeof(*w->values));
	if (!w->values)
		return -ENOMEM;
	for (size_t i = 0; !err && i < types.n; i++)
		err = stacks_add_type(w->s, types.all[i].type, types.all[i].unit);
	w->s->default_type = types.default_type;
	/*
	 * Memory in use is known only of a whole profile. Of a moment, only what was allocated is
	 * known.
	 */
	if (!strcmp(w->s->types[1].type, SOURCE_ALLOC) && !types.wall)
		w->s->default_type = 1;
	w->s->time_ns = (int64_t)info->wall_start_ns;
	if (info->n_events) {
		const struct source_event *e = &info->events[0];

		w->s->period_type = w->s->types[1];
		w->s->period = (int64_t)e->period;
		if (!e->period && e->frequency_hz && !strcmp(e->unit, "nanoseconds"))
			w->s->period = 1000000000 / (int64_t)e->frequency_hz;
	}
	return err;
}

static bool same_location(const struct location *a, const struct location *b)
{
	return a->module == b->module && a->vaddr == b->vaddr && a->ra_bytes == b->ra_bytes;
}

/* Add a module to the stacks. HASH_NONE: out of memory. */
static uint32_t make_module(struct stacks *s, const struct module *module)
{
	char hex[2 * UW_BUILD_ID_MAX + 1];

	(void)textbuf_build_id(&module->build_id, hex);
	return stacks_module(s, &(struct stacks_module){ .path = stacks_text(s, module->path),
							 .build_id = stacks_text(s, hex) });
}

/* Add a function without source lines; without a symbol its place is the name (export_place). */
static uint32_t make_function(struct stacks *s, const struct name *name)
{
	bool placed = !name->function || !*name->function;
	char place[CLEAN_MAX];

	if (placed)
		export_place(name, place, sizeof(place));
	return stacks_function(s, &(struct stacks_function){
					  .name = stacks_text(s, placed ? place : name->function),
					  .system_name = stacks_text(s, name->system_name),
					  .placed = placed });
}

/* Add the function of an inlined call or of a frame with source lines. */
static uint32_t make_place(struct stacks *s, const struct name_place *place)
{
	return stacks_function(
		s, &(struct stacks_function){ .name = stacks_text(s, place->function),
					      .system_name = stacks_text(s, place->system_name),
					      .file = stacks_text(s, place->file),
					      .start_line = place->start_line });
}

/* Name a location and add it to the stacks with its inlined calls. HASH_NONE: out of memory. */
static uint32_t make_location(struct stacks *s, const struct location *location,
			      struct names *names)
{
	struct stacks_location to = { .address = location->vaddr, .n_lines = 1 };
	struct stacks_line one = { 0 }, *lines = &one;
	uint32_t id = HASH_NONE;
	struct name name;

	names_find(names, location, &name);
	to.module = make_module(s, location->module);
	if (name.n_places) {
		lines = calloc(name.n_places, sizeof(*lines));
		to.n_lines = (uint32_t)name.n_places;
	}
	for (size_t i = 0; lines && i < name.n_places; i++) {
		lines[i].function = make_place(s, &name.places[i]);
		lines[i].line = name.places[i].line;
		if (lines[i].function == HASH_NONE)
			to.module = HASH_NONE;
	}
	if (!name.n_places)
		one.function = make_function(s, &name);
	if (lines && one.function != HASH_NONE && to.module != HASH_NONE)
		id = stacks_location(s, &to, lines);
	if (lines != &one)
		free(lines);
	return id;
}

/* Return the index of a location in the stacks; each is named once. HASH_NONE: out of memory. */
static uint32_t location_id(struct format_walked *w, const struct location *location,
			    struct names *names)
{
	uint64_t hash =
		hash_u64(hash_u64(location->vaddr, location->module->id), location->ra_bytes);
	struct hash_search search;
	uint32_t at = hash_first(&w->by_location, hash, &search), id;

	while (at != HASH_NONE && !same_location(&w->known[at].location, location))
		at = hash_next(&search);
	if (at != HASH_NONE)
		return w->known[at].id;
	id = make_location(w->s, location, names);
	if (id == HASH_NONE)
		return id;
	if (array_grow(w->known, w->n_known, w->room_known) ||
	    hash_add(&w->by_location, hash, (uint32_t)w->n_known))
		return HASH_NONE;
	w->known[w->n_known++] = (struct known){ *location, id };
	return id;
}

/*
 * Add a sample's labels, at most five, to the stacks. Return their number; HASH_NONE among them:
 * out of memory.
 */
static size_t add_labels(struct stacks *s, const struct walked *walked, uint32_t *out)
{
	const struct event *e = walked->event;
	size_t n = 0;

	out[n++] = stacks_keep_label(s, &(struct stacks_label){ .key = stacks_text(s, "pid"),
								.unit = stacks_text(s, "pid"),
								.number = e->pid });
	out[n++] = stacks_keep_label(s, &(struct stacks_label){ .key = stacks_text(s, "tid"),
								.unit = stacks_text(s, "tid"),
								.number = e->tid });
	if (walked->comm && *walked->comm)
		out[n++] = stacks_keep_label(
			s, &(struct stacks_label){ .key = stacks_text(s, "thread"),
						   .text = stacks_text(s, walked->comm) });
	if (walked->process_comm && *walked->process_comm)
		out[n++] = stacks_keep_label(
			s, &(struct stacks_label){ .key = stacks_text(s, "comm"),
						   .text = stacks_text(s, walked->process_comm) });
	if (walked->has_user && walked->stop != UW_STOP_ROOT)
		out[n++] = stacks_keep_label(
			s, &(struct stacks_label){
				   .key = stacks_text(s, "stop"),
				   .text = stacks_text(s, uw_stop_name(walked->stop)) });
	return n;
}

int format_walked_add(struct format_walked *w, const struct walked *walked, struct names *names,
		      const struct source_info *info)
{
	const struct event *e = walked->event;
	struct stacks_sample sample = { .time_ns = e->time_ns };
	struct types_counts counts = { .n = 1 };
	uint32_t labels[5];
	int err = begin(w, info);

	if (err)
		return err;
	if (walked->n_frames > w->room_ids) {
		free(w->ids);
		w->room_ids = 2 * walked->n_frames;
		w->ids = calloc(w->room_ids, sizeof(*w->ids));
		if (!w->ids)
			return -ENOMEM;
	}
	for (size_t i = 0; i < walked->n_frames; i++) {
		w->ids[i] = location_id(w, &walked->frames[i].location, names);
		if (w->ids[i] == HASH_NONE)
			return -ENOMEM;
	}
	sample.n_locations = (uint32_t)walked->n_frames;
	sample.n_labels = (uint32_t)add_labels(w->s, walked, labels);
	for (uint32_t i = 0; i < sample.n_labels; i++)
		if (labels[i] == HASH_NONE)
			return -ENOMEM;
	counts.value = e->sample.period;
	if (e->sample.alloc.id) {
		counts.objects = e->sample.alloc.objects;
		counts.value = event_alloc_bytes(&e->sample.alloc, e->sample.alloc.size);
	}
	types_values(&w->types, info, e->sample.event, &counts, w->values);
	return stacks_add(w->s, &sample, w->ids, labels, w->values);
}

int format_walked_write(struct format_walked *w, enum format format, const char *type, FILE *out)
{
	struct types types;
	size_t at;
	int err = 0;

	if (!w->types.n) { /* a profile may have no samples */
		err = types_of(&(struct source_info){ 0 }, &types);
		for (size_t i = 0; !err && i < types.n; i++)
			err = stacks_add_type(w->s, types.all[i].type, types.all[i].unit);
		if (!err)
			w->types = types;
	}
	if (!err)
		err = find_type(w->s, type, &at);
	return err ? err : format_write(format, w->s, at, out);
}

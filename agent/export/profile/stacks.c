/* agent/export/profile/stacks.c: builds a profile in memory and merges what is equal. */
#include "agent/export/profile/stacks.h"

#include "agent/array.h"
#include "agent/export/export.h"
#include "agent/export/profile/guessed.h"
#include "agent/runtime/runtime.h"
#include "agent/sanitize.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *stacks_text(struct stacks *s, const char *text)
{
	char sanitized[SANITIZED_MAX];
	size_t n = sanitize_text(text, "", '?', sanitized, sizeof(sanitized));

	return strings_keep(&s->texts, sanitized, n);
}

const char *stacks_sanitized_text(struct stacks *s, const char *text)
{
	return strings_keep(&s->texts, text, strlen(text));
}

/* ---- modules, functions, locations, labels --------------------------------------- */

/* Hash a text by its pointer: equal texts are the same pointer. */
static uint64_t hash_pointer(uint64_t seed, const char *text)
{
	return hash_u64(seed, (uint64_t)(uintptr_t)text);
}

/* Compare, like the functions below; equal texts are the same pointer. */
static bool same_module(const struct stacks_module *a, const struct stacks_module *b)
{
	return a->path == b->path && a->build_id == b->build_id && a->start == b->start &&
	       a->limit == b->limit && a->off == b->off && a->nameless == b->nameless;
}

uint32_t stacks_module(struct stacks *s, const struct stacks_module *module)
{
	struct stacks_module m = *module;
	const char *slash;
	uint64_t hash;
	uint32_t id;

	m.path = m.path ? m.path : s->empty;
	m.build_id = m.build_id ? m.build_id : s->empty;
	slash = strrchr(m.path, '/');
	m.name = slash && slash[1] ? slash + 1 : m.path;
	/*
	 * "[kernel]"; in files of other writers also "[kernel.kallsyms]" and
	 * "[kernel.kallsyms]_text"
	 */
	m.kernel = !strncmp(m.path, "[kernel", 7) || !strncmp(m.path, "[guest.kernel", 13);
	m.runtime = runtime_of_module(m.path);
	hash = hash_u64(hash_u64(hash_pointer(hash_pointer(m.start, m.path), m.build_id), m.limit),
			m.off);
	id = UW_HASH_FIND(i, &s->by_module, hash, same_module(&s->modules[i], &m));
	if (id != UW_HASH_NONE)
		return id;
	if (array_grow(s->modules, s->n_modules, s->room_modules) ||
	    uw_hash_add(&s->by_module, hash, (uint32_t)s->n_modules))
		return UW_HASH_NONE;
	s->modules[s->n_modules] = m;
	return (uint32_t)s->n_modules++;
}

static bool same_function(const struct stacks_function *a, const struct stacks_function *b)
{
	return a->name == b->name && a->system_name == b->system_name && a->file == b->file &&
	       a->start_line == b->start_line && a->placed == b->placed;
}

uint32_t stacks_function(struct stacks *s, const struct stacks_function *function)
{
	struct stacks_function f = *function;
	uint64_t hash;
	uint32_t id;

	if (!f.name || !*f.name)
		f.name = stacks_text(s, "[unknown]");
	if (!f.system_name || !*f.system_name)
		f.system_name = f.name;
	f.file = f.file ? f.file : s->empty;
	if (!f.name)
		return UW_HASH_NONE;
	hash = hash_pointer(hash_pointer(hash_pointer((uint64_t)f.start_line, f.name), f.file),
			    f.system_name);
	id = UW_HASH_FIND(i, &s->by_function, hash, same_function(&s->functions[i], &f));
	if (id != UW_HASH_NONE)
		return id;
	if (array_grow(s->functions, s->n_functions, s->room_functions) ||
	    uw_hash_add(&s->by_function, hash, (uint32_t)s->n_functions))
		return UW_HASH_NONE;
	s->functions[s->n_functions] = f;
	return (uint32_t)s->n_functions++;
}

uint32_t stacks_placed_function(struct stacks *s, uint32_t module)
{
	char text[SANITIZED_MAX];
	const char *name;

	export_place(&(struct name){ .module = s->modules[module].name }, text, sizeof(text));
	name = stacks_text(s, text);
	return name ? stacks_function(s, &(struct stacks_function){ .name = name, .placed = true })
		    : UW_HASH_NONE;
}

static bool same_location(const struct stacks *s, const struct stacks_location *a,
			  const struct stacks_location *b, const struct stacks_line *lines)
{
	if (a->module != b->module || a->address != b->address || a->n_lines != b->n_lines ||
	    a->folded != b->folded)
		return false;
	for (uint32_t i = 0; i < a->n_lines; i++) {
		const struct stacks_line *line = &s->lines[a->first_line + i];

		if (line->function != lines[i].function || line->line != lines[i].line)
			return false;
	}
	return true;
}

uint32_t stacks_location(struct stacks *s, const struct stacks_location *location,
			 const struct stacks_line *lines)
{
	uint64_t hash = hash_u64(location->module, location->address);
	uint32_t id;

	for (uint32_t i = 0; i < location->n_lines; i++)
		hash = hash_u64(hash_u64(hash, (uint64_t)lines[i].line), lines[i].function);
	id = UW_HASH_FIND(k, &s->by_location, hash,
			  same_location(s, &s->locations[k], location, lines));
	if (id != UW_HASH_NONE)
		return id;
	if (array_grow(s->locations, s->n_locations, s->room_locations) ||
	    array_reserve(s->lines, s->n_lines + location->n_lines, s->room_lines) ||
	    uw_hash_add(&s->by_location, hash, (uint32_t)s->n_locations))
		return UW_HASH_NONE;
	s->locations[s->n_locations] = *location;
	s->locations[s->n_locations].first_line = s->n_lines;
	for (uint32_t i = 0; i < location->n_lines; i++)
		s->lines[s->n_lines++] = lines[i];
	return (uint32_t)s->n_locations++;
}

static bool same_label(const struct stacks_label *a, const struct stacks_label *b)
{
	return a->key == b->key && a->text == b->text && a->unit == b->unit &&
	       a->number == b->number;
}

uint32_t stacks_keep_label(struct stacks *s, const struct stacks_label *label)
{
	struct stacks_label l = *label;
	uint64_t hash;
	uint32_t id;

	l.key = l.key ? l.key : s->empty;
	l.unit = l.unit ? l.unit : s->empty;
	hash = hash_pointer(hash_pointer(hash_pointer((uint64_t)l.number, l.key), l.text), l.unit);
	id = UW_HASH_FIND(i, &s->by_label, hash, same_label(&s->labels[i], &l));
	if (id != UW_HASH_NONE)
		return id;
	if (array_grow(s->labels, s->n_labels, s->room_labels) ||
	    uw_hash_add(&s->by_label, hash, (uint32_t)s->n_labels))
		return UW_HASH_NONE;
	s->labels[s->n_labels] = l;
	return (uint32_t)s->n_labels++;
}

/* ---- the profile ------------------------------------------------------------------ */

int stacks_new(struct stacks **out)
{
	struct stacks *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->empty = s->period_type.type = s->period_type.unit = stacks_text(s, "");
	if (!s->empty || stacks_module(s, &(struct stacks_module){ 0 }) == UW_HASH_NONE) {
		stacks_free(s);
		return -ENOMEM;
	}
	*out = s;
	return 0;
}

void stacks_free(struct stacks *s)
{
	if (!s)
		return;
	free(s->types);
	free(s->modules);
	free(s->functions);
	free(s->lines);
	free(s->locations);
	free(s->labels);
	free(s->samples);
	free(s->location_ids);
	free(s->label_ids);
	free(s->values);
	free(s->comments);
	uw_hash_fini(&s->by_module);
	uw_hash_fini(&s->by_function);
	uw_hash_fini(&s->by_location);
	uw_hash_fini(&s->by_label);
	uw_hash_fini(&s->by_sample);
	strings_fini(&s->texts);
	free(s);
}

int stacks_add_type(struct stacks *s, const char *type, const char *unit)
{
	struct stacks_type *types = reallocarray(s->types, s->n_types + 1, sizeof(*types));

	if (!types)
		return -ENOMEM;
	s->types = types;
	types[s->n_types] =
		(struct stacks_type){ .type = stacks_text(s, type), .unit = stacks_text(s, unit) };
	if (!types[s->n_types].type || !types[s->n_types].unit)
		return -ENOMEM;
	s->n_types++;
	return 0;
}

/* Return whether one of the first n indices is at. */
static bool is_taken(const size_t *index, size_t n, size_t at)
{
	while (n > 0)
		if (index[--n] == at)
			return true;
	return false;
}

int stacks_take_types(struct stacks *s, const struct stacks_type *types, size_t n, size_t *index)
{
	bool first = !s->n_types;

	if (!first && n != s->n_types)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		size_t at = 0;

		if (first && stacks_add_type(s, types[i].type, types[i].unit))
			return -ENOMEM;
		while (at < s->n_types &&
		       (is_taken(index, i, at) || strcmp(s->types[at].type, types[i].type) != 0 ||
			strcmp(s->types[at].unit, types[i].unit) != 0))
			at++;
		if (at == s->n_types)
			return -EINVAL;
		index[i] = at;
	}
	return 0;
}

void stacks_add_time(struct stacks *s, int64_t time_ns, int64_t duration_ns, int64_t period)
{
	if (period > s->period)
		s->period = period;
	if (time_ns && (!s->time_ns || time_ns < s->time_ns))
		s->time_ns = time_ns;
	s->duration_ns = stacks_sum(s->duration_ns, duration_ns);
}

int stacks_add_comment(struct stacks *s, const char *text)
{
	const char *stored = stacks_text(s, text);

	if (!stored)
		return -ENOMEM;
	/* Compare with the first 1000 only: a foreign file may have a million comments. */
	for (size_t i = 0; i < s->n_comments && i < 1000; i++)
		if (s->comments[i] == stored)
			return 0;
	if (array_grow(s->comments, s->n_comments, s->room_comments))
		return -ENOMEM;
	s->comments[s->n_comments++] = stored;
	return 0;
}

static bool same_sample(const struct stacks *s, const struct stacks_sample *a,
			const struct stacks_sample *b, const uint32_t *location_ids,
			const uint32_t *label_ids)
{
	return a->n_locations == b->n_locations && a->n_labels == b->n_labels &&
	       a->base == b->base &&
	       (!a->n_locations || !memcmp(s->location_ids + a->first_location, location_ids,
					   a->n_locations * sizeof(uint32_t))) &&
	       (!a->n_labels ||
		!memcmp(s->label_ids + a->first_label, label_ids, a->n_labels * sizeof(uint32_t)));
}

static uint64_t hash_sample(const struct stacks_sample *sample, const uint32_t *location_ids,
			    const uint32_t *label_ids)
{
	const uint64_t hash =
		hash_bytes(sample->base, location_ids, sample->n_locations * sizeof(uint32_t));

	return hash_bytes(hash, label_ids, sample->n_labels * sizeof(uint32_t));
}

/* Let all samples be found that were added without a look for equal ones. */
static int index_apart(struct stacks *s)
{
	for (size_t i = 0; i < s->n_samples && s->n_apart; i++) {
		struct stacks_sample *sample = &s->samples[i];
		uint64_t hash;

		if (sample->equal != STACKS_EQUAL_NONE)
			continue;
		hash = hash_sample(sample,
				   sample->n_locations ? s->location_ids + sample->first_location
						       : NULL,
				   sample->n_labels ? s->label_ids + sample->first_label : NULL);
		if (uw_hash_add(&s->by_sample, hash, (uint32_t)i))
			return -ENOMEM;
		sample->equal = STACKS_EQUAL_ANY;
		s->n_apart--;
	}
	return 0;
}

/* Let no sample be found from now on. */
static void forget_samples(struct stacks *s)
{
	uw_hash_clear(&s->by_sample);
	for (size_t i = 0; i < s->n_samples; i++)
		s->samples[i].equal = STACKS_EQUAL_ANY;
	s->n_apart = 0;
}

/* Find an equal sample. *id: UW_HASH_NONE: there is none. *hash: for by_sample. */
static int find_sample(struct stacks *s, const struct stacks_sample *sample,
		       const uint32_t *location_ids, const uint32_t *label_ids, uint64_t *hash,
		       uint32_t *id)
{
	int err = sample->equal == STACKS_EQUAL_ANY && s->n_apart ? index_apart(s) : 0;

	*hash = hash_sample(sample, location_ids, label_ids);
	*id = UW_HASH_FIND(k, &s->by_sample, *hash,
			   same_sample(s, &s->samples[k], sample, location_ids, label_ids));
	return err;
}

int stacks_add(struct stacks *s, const struct stacks_sample *sample, const uint32_t *location_ids,
	       const uint32_t *label_ids, const int64_t *values)
{
	const bool apart = sample->equal == STACKS_EQUAL_NONE && !s->timed;
	uint64_t hash = 0, n_frames = sample->n_frames;
	struct stacks_sample *fresh;
	uint32_t id = UW_HASH_NONE;

	s->compared |= sample->base;
	if (!s->timed && !apart && find_sample(s, sample, location_ids, label_ids, &hash, &id))
		return -ENOMEM;
	if (id != UW_HASH_NONE) {
		for (size_t i = 0; i < s->n_types; i++) {
			int64_t *have = &s->values[id * s->n_types + i];

			*have = stacks_sum(*have, values[i]);
		}
		return 0;
	}
	for (uint32_t i = 0; i < sample->n_locations && !sample->n_frames; i++)
		n_frames += s->locations[location_ids[i]].n_lines;
	if (n_frames > STACKS_DEPTH || n_frames > STACKS_FRAMES - s->n_frames ||
	    s->n_samples >= UW_HASH_NONE)
		return -EFBIG;
	if (array_grow(s->samples, s->n_samples, s->room_samples) ||
	    array_reserve(s->location_ids, s->n_location_ids + sample->n_locations,
			  s->room_location_ids) ||
	    array_reserve(s->label_ids, s->n_label_ids + sample->n_labels, s->room_label_ids) ||
	    array_reserve(s->values, (s->n_samples + 1) * s->n_types, s->room_values))
		return -ENOMEM;
	if (!s->timed && !apart && uw_hash_add(&s->by_sample, hash, (uint32_t)s->n_samples))
		return -ENOMEM;
	fresh = &s->samples[s->n_samples];
	*fresh = *sample;
	fresh->n_frames = (uint32_t)n_frames;
	fresh->first_location = s->n_location_ids;
	fresh->first_label = s->n_label_ids;
	if (sample->n_locations)
		memcpy(s->location_ids + s->n_location_ids, location_ids,
		       sample->n_locations * sizeof(*location_ids));
	s->n_location_ids += sample->n_locations;
	for (uint32_t i = 0; i < sample->n_labels; i++)
		s->label_ids[s->n_label_ids++] = label_ids[i];
	for (size_t i = 0; i < s->n_types; i++)
		s->values[s->n_samples * s->n_types + i] = values[i];
	s->n_frames += n_frames;
	s->n_apart += apart;
	s->n_samples++;
	return 0;
}

/* ---- looking at it ----------------------------------------------------------------- */

int stacks_unfold(const struct stacks *s, const struct stacks_sample *sample,
		  struct stacks_frames *out)
{
	out->n = 0;
	for (uint32_t i = 0; i < sample->n_locations; i++) {
		uint32_t id = s->location_ids[sample->first_location + i];
		const struct stacks_location *l = &s->locations[id];

		if (array_reserve(out->frames, out->n + l->n_lines, out->room))
			return -ENOMEM;
		for (uint32_t j = 0; j < l->n_lines; j++) {
			const struct stacks_line *line = &s->lines[l->first_line + j];

			out->frames[out->n++] =
				(struct stacks_frame){ .function = line->function,
						       .module = l->module,
						       .location = id,
						       .line = line->line,
						       .address = l->address,
						       .inlined = j + 1 < l->n_lines };
		}
	}
	return 0;
}

int64_t stacks_value(const struct stacks *s, size_t sample, size_t type)
{
	return s->values[sample * s->n_types + type];
}

void stacks_filter(struct stacks *s, bool (*keep)(void *ctx, size_t sample), void *ctx)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_samples; i++) {
		if (!keep(ctx, i))
			continue;
		s->samples[n] = s->samples[i];
		if (n != i)
			memcpy(s->values + n * s->n_types, s->values + i * s->n_types,
			       s->n_types * sizeof(*s->values));
		n++;
	}
	/*
	 * The samples have moved, so the index is invalid. Samples added from now on are not merged
	 * with these.
	 */
	s->n_samples = n;
	forget_samples(s);
}

/* Which runtime a module is of, as the bit of its number in runtimes_all; 0: of none. */
struct runtime_bits {
	uint32_t file;	 /* the module is a file of this runtime */
	uint32_t frames; /* it has the frames of what this runtime interprets */
};

static struct runtime_bits runtime_bits(const struct stacks_module *m)
{
	if (m->runtime)
		return (struct runtime_bits){ .frames = UINT32_C(1) << runtime_number(m->runtime) };
	for (uint32_t k = 0; runtimes_all[k]; k++)
		if (runtimes_all[k]->is_named(m->name))
			return (struct runtime_bits){ .file = UINT32_C(1) << k };
	return (struct runtime_bits){ .file = 0 };
}

/*
 * Let the label "guessed" of a sample that has fewer locations now name those that it named before. marks has what it said of
 * those that are left. -ENOMEM.
 */
static int mark_again(struct stacks *s, struct stacks_sample *sample, const bool *marks)
{
	char text[GUESSED_SIZE];
	uint32_t *ids = s->label_ids + sample->first_label, i = 0;

	while (strcmp(s->labels[ids[i]].key, "guessed") != 0)
		i++;
	guessed_write(marks, sample->n_locations, text);
	if (text[0]) {
		const struct stacks_label label = { .key = s->labels[ids[i]].key,
						    .text = stacks_text(s, text) };

		ids[i] = label.text ? stacks_keep_label(s, &label) : UW_HASH_NONE;
		return ids[i] == UW_HASH_NONE ? -ENOMEM : 0;
	}
	for (sample->n_labels--; i < sample->n_labels; i++)
		ids[i] = ids[i + 1];
	return 0;
}

int stacks_hide_interpreters(struct stacks *s)
{
	struct runtime_bits *of = calloc(s->n_modules + 1, sizeof(*of));
	bool *marks = NULL;
	size_t room = 0;
	int err = of ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < s->n_modules; i++)
		of[i] = runtime_bits(&s->modules[i]);
	for (size_t i = 0; !err && i < s->n_samples; i++) {
		struct stacks_sample *sample = &s->samples[i];
		const struct stacks_label *guessed = stacks_label(s, sample, "guessed");
		uint32_t *ids = s->location_ids + sample->first_location, n = 0;
		uint32_t left_out = 0; /* frames */
		uint32_t there = 0;    /* runtimes whose interpreted code is in the stack */

		if (guessed && array_reserve(marks, sample->n_locations, room)) {
			err = -ENOMEM;
			break;
		}
		if (guessed)
			guessed_read(guessed->text, sample->n_locations, marks);
		for (uint32_t k = 0; k < sample->n_locations; k++)
			there |= of[s->locations[ids[k]].module].frames;
		for (uint32_t k = 0; k < sample->n_locations; k++) {
			if (of[s->locations[ids[k]].module].file & there) {
				left_out += s->locations[ids[k]].n_lines;
				continue;
			}
			if (guessed)
				marks[n] = marks[k];
			ids[n++] = ids[k];
		}
		if (guessed && n < sample->n_locations) {
			sample->n_locations = n;
			err = mark_again(s, sample, marks);
		}
		sample->n_locations = n;
		sample->n_frames -= left_out;
		s->n_frames -= left_out;
	}
	/* Stacks that were different may be equal now; they are not merged. */
	forget_samples(s);
	free(of);
	free(marks);
	return err;
}

size_t stacks_find_type(const struct stacks *s, const char *type)
{
	for (size_t i = 0; i < s->n_types; i++)
		if (!strcmp(s->types[i].type, type))
			return i;
	return SIZE_MAX;
}

bool stacks_is_counter(const struct stacks *s, size_t type)
{
	const char *name = s->types[type].type;
	size_t n = strlen(name), event = n > 8 ? n - 8 : 0; /* without "_samples" */

	if (strcmp(s->types[type].unit, "count") != 0)
		return false;
	for (size_t i = 0; event && !strcmp(name + event, "_samples") && i < s->n_types; i++)
		if (!strncmp(s->types[i].type, name, event) && !s->types[i].type[event])
			return true;
	return !strcmp(name, "samples");
}

size_t stacks_counter_of(const struct stacks *s, size_t type)
{
	size_t before = SIZE_MAX, n = 0, any = SIZE_MAX;

	for (size_t i = 0; i < s->n_types; i++) {
		if (!stacks_is_counter(s, i))
			continue;
		n++;
		any = i;
		if (i <= type)
			before = i;
	}
	if (n < 2)
		return any;
	/* The time on and off CPUs together. */
	return strcmp(s->types[type].type, "wall") != 0 ? before : SIZE_MAX;
}

int64_t stacks_total(const struct stacks *s, size_t type)
{
	int64_t sum = 0;

	for (size_t i = 0; type < s->n_types && i < s->n_samples; i++)
		if (!s->samples[i].base)
			sum = stacks_sum(sum, stacks_value(s, i, type));
	return sum;
}

const struct stacks_label *stacks_label(const struct stacks *s, const struct stacks_sample *sample,
					const char *key)
{
	for (uint32_t i = 0; i < sample->n_labels; i++) {
		const struct stacks_label *l = &s->labels[s->label_ids[sample->first_label + i]];

		if (!strcmp(l->key, key))
			return l;
	}
	return NULL;
}

const char *stacks_label_text(const struct stacks_label *label, char out[STACKS_NUMBER])
{
	if (!label)
		return "";
	if (label->text)
		return label->text;
	(void)snprintf(out, STACKS_NUMBER, "%" PRId64, label->number);
	return out;
}

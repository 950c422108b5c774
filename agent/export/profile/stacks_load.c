/* agent/export/profile/stacks_load.c: reads a pprof file into a profile in memory. */
#include "agent/array.h"
#include "agent/export/profile/stacks.h"
#include "agent/limits.h"
#include "agent/log.h"
#include "agent/role/files.h"
#include "proto/pprof_read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	LINES_MAX = 4096, /* calls inlined into each other at one address */
	TYPES_MAX = 256,
};

typedef Perftools__Profiles__Profile profile_message;

struct loading {
	struct stacks *s;
	struct pprof_file *file;
	const profile_message *p;
	bool base;
	const char **texts; /* by index in the file: our text; NULL: not yet */
	uint32_t *modules, *functions, *locations; /* by position in the file: our index */
	size_t type_of[TYPES_MAX];		   /* by position in the file: our type */
	/* Of one sample. */
	uint32_t *ids, *labels;
	size_t room_ids, room_labels;
	int err;
	const char *why; /* NULL: error says why, or the code */
	char error[PPROF_ERROR_SIZE];
};

/*
 * Return the text with that index in the file; pprof_read() has checked the index. NULL: out of
 * memory, and l->err is set.
 */
static const char *text_at(struct loading *l, int64_t index)
{
	const char **text = &l->texts[index];

	if (!*text)
		*text = stacks_text(l->s, l->p->string_table[index]);
	if (!*text)
		l->err = -ENOMEM;
	return *text;
}

/* Set the message for a file that is refused, and return err. */
static int refuse(struct loading *l, int err, const char *why)
{
	l->why = why;
	return err;
}

/* Take the sample types of the first file, or find those of a later file among them. */
static int load_types(struct loading *l)
{
	const profile_message *p = l->p;
	struct stacks_type types[TYPES_MAX];
	struct stacks *s = l->s;
	bool first = !s->n_types;
	int err;

	if (!p->n_sample_type)
		return refuse(l, -EINVAL, "no sample types, so nothing to count");
	if (p->n_sample_type > TYPES_MAX)
		return refuse(l, -EFBIG, "more than 256 sample types");
	for (size_t i = 0; i < p->n_sample_type; i++) {
		types[i] = (struct stacks_type){ .type = text_at(l, p->sample_type[i]->type),
						 .unit = text_at(l, p->sample_type[i]->unit) };
		if (l->err)
			return l->err;
	}
	err = stacks_take_types(s, types, p->n_sample_type, l->type_of);
	if (err == -EINVAL)
		return refuse(l, err, "its sample types are not those of the file before it");
	if (!err && first) {
		/* As in go tool pprof, the last type is the default if none is named. */
		size_t at = stacks_find_type(s, pprof_text(l->file, p->default_sample_type));

		s->default_type = at < s->n_types ? at : s->n_types - 1;
	}
	return err;
}

/* Add the file's mappings. */
static int load_modules(struct loading *l)
{
	for (size_t i = 0; i < l->p->n_mapping; i++) {
		const Perftools__Profiles__Mapping *m = l->p->mapping[i];

		l->modules[i] = stacks_module(
			l->s, &(struct stacks_module){ .path = text_at(l, m->filename),
						       .build_id = text_at(l, m->build_id),
						       .start = m->memory_start,
						       .limit = m->memory_limit,
						       .off = m->file_offset,
						       .nameless = !m->has_functions });
		if (l->err || l->modules[i] == UW_HASH_NONE)
			return -ENOMEM;
	}
	return 0;
}

/* Add the file's functions. */
static int load_functions(struct loading *l)
{
	for (size_t i = 0; i < l->p->n_function; i++) {
		const Perftools__Profiles__Function *f = l->p->function[i];
		const char *name = text_at(l, f->name), *linked = text_at(l, f->system_name);

		if (l->err)
			return l->err;
		l->functions[i] = stacks_function(
			l->s, &(struct stacks_function){ .name = *name ? name : linked,
							 .system_name = linked,
							 .file = text_at(l, f->filename),
							 .start_line = f->start_line });
		if (l->err || l->functions[i] == UW_HASH_NONE)
			return -ENOMEM;
	}
	return 0;
}

/* Add a location of the file. lines has room for LINES_MAX. */
static int load_location(struct loading *l, size_t place, struct stacks_line *lines)
{
	const Perftools__Profiles__Location *from = l->p->location[place];
	size_t module = pprof_place_of_mapping(l->file, from->mapping_id);
	struct stacks_location to = { .module = module < l->p->n_mapping ? l->modules[module] : 0,
				      .address = from->address,
				      .folded = from->is_folded };

	if (from->n_line > LINES_MAX)
		return refuse(l, -EFBIG, "more than 4096 calls inlined at one address");
	for (size_t i = 0; i < from->n_line; i++) {
		/* pprof_read() has checked that the function exists. */
		size_t at = pprof_place_of_function(l->file, from->line[i]->function_id);
		const Perftools__Profiles__Function *f = l->p->function[at];
		bool named = *text_at(l, f->name) || *text_at(l, f->system_name);

		lines[i] = (struct stacks_line){ .function = named ? l->functions[at]
								   : stacks_placed_function(
									     l->s, to.module),
						 .line = from->line[i]->line };
		if (lines[i].function == UW_HASH_NONE)
			return -ENOMEM;
	}
	to.n_lines = (uint32_t)from->n_line;
	if (!to.n_lines) {
		lines[0] =
			(struct stacks_line){ .function = stacks_placed_function(l->s, to.module) };
		to.n_lines = 1;
		if (lines[0].function == UW_HASH_NONE)
			return -ENOMEM;
	}
	l->locations[place] = stacks_location(l->s, &to, lines);
	return l->locations[place] == UW_HASH_NONE ? -ENOMEM : 0;
}

static int load_locations(struct loading *l)
{
	struct stacks_line *lines = calloc(LINES_MAX, sizeof(*lines));
	int err = lines ? 0 : -ENOMEM;

	for (size_t i = 0; !err && i < l->p->n_location; i++)
		err = load_location(l, i, lines);
	free(lines);
	return err;
}

/* Return whether a label says that the sample is of the base that a difference was made with (format_pprof). */
static bool says_base(const struct stacks_label *label)
{
	return label->text && !strcmp(label->key, "pprof::base") && !strcmp(label->text, "true");
}

static int load_sample(struct loading *l, const Perftools__Profiles__Sample *from)
{
	struct stacks_sample to = { .n_locations = (uint32_t)from->n_location_id, .base = l->base };
	bool of_base = false;
	int64_t values[TYPES_MAX];
	int err = array_reserve(l->ids, from->n_location_id + 1, l->room_ids);

	if (!err)
		err = array_reserve(l->labels, from->n_label + 1, l->room_labels);
	if (err)
		return err;
	for (size_t i = 0; i < from->n_location_id; i++)
		l->ids[i] = l->locations[pprof_place_of_location(l->file, from->location_id[i])];
	for (size_t i = 0; i < from->n_label; i++) {
		const Perftools__Profiles__Label *label = from->label[i];
		const struct stacks_label to_keep = {
			.key = text_at(l, label->key),
			.text = label->str ? text_at(l, label->str) : NULL,
			.unit = text_at(l, label->num_unit),
			.number = label->num,
		};

		if (!l->err && !l->base && says_base(&to_keep)) {
			of_base = to.base = true;
			continue;
		}
		l->labels[to.n_labels] = stacks_keep_label(l->s, &to_keep);
		if (l->err || l->labels[to.n_labels++] == UW_HASH_NONE)
			return -ENOMEM;
	}
	/* Those of the base are negative in the file. */
	for (size_t i = 0; i < from->n_value; i++) {
		int64_t value = from->value[i];

		values[l->type_of[i]] = of_base ? stacks_negated(value) : value;
	}
	err = stacks_add(l->s, &to, l->ids, l->labels, values);
	return err == -EFBIG ? refuse(l, err, "more frames than any profile has") : err;
}

/* Add the samples of the file. */
static int load_samples(struct loading *l)
{
	const Perftools__Profiles__Sample *sample;
	int err;

	while ((err = pprof_next_sample(l->file, &sample, l->error)) == 1) {
		err = load_sample(l, sample);
		if (err)
			break;
	}
	free(l->ids);
	free(l->labels);
	return err;
}

/*
 * Add the comments, the period and the time. This is not done for a base, of which only the samples
 * matter.
 */
static int load_rest(struct loading *l, bool first)
{
	const profile_message *p = l->p;
	struct stacks *s = l->s;

	for (size_t i = 0; i < p->n_comment; i++)
		if (stacks_add_comment(s, pprof_text(l->file, p->comment[i])))
			return -ENOMEM;
	if (first && p->period_type) {
		s->period_type.type = text_at(l, p->period_type->type);
		s->period_type.unit = text_at(l, p->period_type->unit);
		if (!s->period_type.type || !s->period_type.unit)
			return -ENOMEM;
	}
	stacks_add_time(s, p->time_nanos, p->duration_nanos, p->period);
	return 0;
}

/* Add a checked file to the profile. */
static int load(struct loading *l)
{
	bool first = !l->s->n_types;
	int err;

	l->texts = calloc(l->p->n_string_table + 1, sizeof(*l->texts));
	l->modules = calloc(l->p->n_mapping + 1, sizeof(*l->modules));
	l->functions = calloc(l->p->n_function + 1, sizeof(*l->functions));
	l->locations = calloc(l->p->n_location + 1, sizeof(*l->locations));
	err = l->texts && l->modules && l->functions && l->locations ? load_types(l) : -ENOMEM;
	if (!err)
		err = load_modules(l);
	if (!err)
		err = load_functions(l);
	if (!err)
		err = load_locations(l);
	if (!err)
		err = load_samples(l);
	if (!err && !l->base)
		err = load_rest(l, first);
	free(l->texts);
	free(l->modules);
	free(l->functions);
	free(l->locations);
	return err;
}

int stacks_load_fd(struct stacks *s, int fd, const char *name, bool base)
{
	struct loading l = { .s = s, .base = base };
	int err = pprof_read_apart(fd, (size_t)limits.profile_bytes, &l.file, l.error);

	if (err == -EFBIG)
		limits_reach(profile_bytes, 1);
	if (err) {
		log_error("%s: %s", name, l.error);
		return err;
	}
	l.p = pprof_profile(l.file);
	s->compared |= base;
	err = load(&l);
	if (err)
		log_error("%s: %s", name, l.why ? l.why : *l.error ? l.error : strerror(-err));
	pprof_file_free(l.file);
	return err;
}

int stacks_load(struct stacks *s, const char *path, bool base)
{
	int fd, err = files_open(path, &fd);

	if (err) {
		log_error("%s: %s", path, strerror(-err));
		return err;
	}
	err = stacks_load_fd(s, fd, path, base);
	(void)close(fd);
	return err;
}

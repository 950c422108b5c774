/* agent/export/profile/repack.c: writes a profile in memory as a pprof file. */
#include "agent/export/formats.h"

#include "proto/pprof.h"

#include <errno.h>
#include <stdlib.h>

struct repacking {
	const struct stacks *s;
	const struct pprof_part *part; /* NULL: all samples */
	struct pprof *pprof;
	/* By index in the stacks: the id in the file; 0: not written yet. */
	uint64_t *modules, *functions, *locations, *labels;
	uint64_t *ids; /* locations and labels of one sample */
	size_t room_ids;
};

/* Write the sample types, the period, the time and the comments. */
static void put_head(struct repacking *r, size_t default_type)
{
	const struct stacks *s = r->s;

	for (size_t i = 0; i < s->n_types; i++)
		pprof_sample_type(r->pprof, s->types[i].type, s->types[i].unit);
	pprof_default_sample_type(r->pprof, s->types[default_type].type);
	if (r->part && r->part->period)
		pprof_period(r->pprof, s->types[default_type].type, s->types[default_type].unit,
			     r->part->period);
	else if (*s->period_type.type)
		pprof_period(r->pprof, s->period_type.type, s->period_type.unit, s->period);
	if (r->part)
		pprof_time(r->pprof, r->part->time_ns, r->part->duration_ns);
	else
		pprof_time(r->pprof, s->time_ns, s->duration_ns);
	for (size_t i = 0; i < s->n_comments; i++)
		pprof_comment(r->pprof, s->comments[i]);
}

static size_t n_samples(const struct repacking *r)
{
	return r->part ? r->part->n : r->s->n_samples;
}

/* Return the number of a sample in the profile. */
static size_t number_of(const struct repacking *r, size_t i)
{
	return r->part ? r->part->samples[i] : i;
}

/* Return how many of a stack's innermost frames are left out. */
static uint32_t n_left_out(const struct repacking *r, const struct stacks_sample *sample)
{
	uint32_t depth = r->part ? r->part->depth : 0;

	return depth && sample->n_locations > depth ? sample->n_locations - depth : 0;
}

/*
 * Write the mappings that samples use, in their old order: readers take the first one for the
 * program.
 */
static void put_mappings(struct repacking *r)
{
	const struct stacks *s = r->s;

	for (size_t i = 0; i < n_samples(r); i++) {
		const struct stacks_sample *sample = &s->samples[number_of(r, i)];

		for (uint32_t j = n_left_out(r, sample); j < sample->n_locations; j++)
			r->modules[s->locations[s->location_ids[sample->first_location + j]]
					   .module] = 1;
	}
	r->modules[0] = 0;
	for (size_t i = 1; i < s->n_modules; i++) {
		const struct stacks_module *m = &s->modules[i];

		struct pprof_mapping to = { .start = m->start,
					    .limit = m->limit,
					    .off = m->off,
					    .file = m->path,
					    .build_id = m->build_id,
					    .nameless = m->nameless };

		if (r->modules[i])
			r->modules[i] = pprof_mapping(r->pprof, &to);
	}
}

/* Return the function's id in the file; it is written once. */
static uint64_t function_id(struct repacking *r, uint32_t id)
{
	const struct stacks_function *f = &r->s->functions[id];

	if (!r->functions[id])
		r->functions[id] = pprof_function(
			r->pprof, &(struct pprof_function){ .name = f->name,
							    .system_name = f->system_name,
							    .file = f->file,
							    .start_line = f->start_line });
	return r->functions[id];
}

/* Write a location and its functions. -ENOMEM. */
static int put_location(struct repacking *r, uint32_t id)
{
	const struct stacks_location *l = &r->s->locations[id];
	const struct stacks_line *from = &r->s->lines[l->first_line];
	/* A location without a symbol has no function: the name that it has here is FILE+0xOFFSET. */
	size_t n = r->s->functions[from->function].placed ? 0 : l->n_lines;
	struct pprof_line *lines = calloc(n + 1, sizeof(*lines));

	if (!lines)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		lines[i] = (struct pprof_line){ .function = function_id(r, from[i].function),
						.line = from[i].line };
	r->locations[id] = pprof_location_new(r->pprof, r->modules[l->module], l->address, lines, n,
					      l->folded);
	free(lines);
	return 0;
}

/* Return the label's handle; it is made once. */
static uint64_t label_id(struct repacking *r, uint32_t id)
{
	const struct stacks_label *l = &r->s->labels[id];

	if (!r->labels[id])
		r->labels[id] = l->text ? pprof_label_text(r->pprof, l->key, l->text)
					: pprof_label_number(r->pprof, l->key, l->number, l->unit);
	return r->labels[id];
}

/* Write a sample. A sample of the base profile gets negative values and the label pprof::base. */
static int put_sample(struct repacking *r, size_t number, int64_t *values)
{
	const struct stacks *s = r->s;
	const struct stacks_sample *from = &s->samples[number];
	struct pprof_sample to = { .n_locations = from->n_locations, .values = values };
	size_t n = (size_t)from->n_locations + from->n_labels + 1;

	if (n > r->room_ids) {
		free(r->ids);
		r->room_ids = 2 * n;
		r->ids = calloc(r->room_ids, sizeof(*r->ids));
		if (!r->ids)
			return -ENOMEM;
	}
	for (uint32_t i = n_left_out(r, from); i < from->n_locations; i++) {
		uint32_t id = s->location_ids[from->first_location + i];

		if (!r->locations[id] && put_location(r, id))
			return -ENOMEM;
		r->ids[i] = r->locations[id];
	}
	to.locations = r->ids + n_left_out(r, from);
	to.n_locations -= n_left_out(r, from);
	to.labels = r->ids + from->n_locations;
	for (uint32_t i = 0; i < from->n_labels; i++) {
		uint32_t id = s->label_ids[from->first_label + i];

		if (!r->part || !r->part->has_label ||
		    r->part->has_label(r->part->ctx, s->labels[id].key))
			r->ids[from->n_locations + to.n_labels++] = label_id(r, id);
	}
	if (from->base)
		r->ids[from->n_locations + to.n_labels++] =
			pprof_label_text(r->pprof, "pprof::base", "true");
	for (size_t i = 0; i < s->n_types; i++) {
		values[i] = stacks_value(s, number, i);
		if (from->base)
			values[i] = stacks_negated(values[i]);
	}
	pprof_sample(r->pprof, &to);
	return 0;
}

int format_pprof(const struct stacks *s, size_t default_type, int gzip_level, int fd)
{
	return format_pprof_part(s, NULL, default_type, gzip_level, fd);
}

int format_pprof_part(const struct stacks *s, const struct pprof_part *part, size_t default_type,
		      int gzip_level, int fd)
{
	struct repacking r = { .s = s, .part = part };
	int64_t *values = calloc(s->n_types + 1, sizeof(*values));
	int err = pprof_new(&r.pprof);

	r.modules = calloc(s->n_modules + 1, sizeof(*r.modules));
	r.functions = calloc(s->n_functions + 1, sizeof(*r.functions));
	r.locations = calloc(s->n_locations + 1, sizeof(*r.locations));
	r.labels = calloc(s->n_labels + 1, sizeof(*r.labels));
	if (!err && !(values && r.modules && r.functions && r.locations && r.labels))
		err = -ENOMEM;
	if (!err) {
		put_head(&r, default_type);
		put_mappings(&r);
	}
	for (size_t i = 0; !err && i < n_samples(&r); i++)
		err = put_sample(&r, number_of(&r, i), values);
	if (!err)
		err = pprof_write(r.pprof, gzip_level, fd);
	pprof_free(r.pprof);
	free(values);
	free(r.modules);
	free(r.functions);
	free(r.locations);
	free(r.labels);
	free(r.ids);
	return err;
}

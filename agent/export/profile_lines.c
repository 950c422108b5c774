/* agent/export/profile_lines.c: writes a profile as lines of text, TSV or JSON. */
#include "agent/array.h"
#include "agent/export/formats.h"
#include "agent/export/json.h"
#include "agent/export/line_formats.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A profile whose samples become lines one after another. */
struct lines {
	const struct stacks *s;
	size_t type;
	bool own; /* offwind wrote some of the samples */
	struct stacks_frames unfolded;
	struct line_sample sample;
	char id[24], value[24];
	char numbers[5][STACKS_NUMBER]; /* for labels */
};

/* Return a label of a sample as text; "" if it has none. */
static const char *label(const struct stacks *s, size_t sample, const char *key,
			 char number[STACKS_NUMBER])
{
	return stacks_label_text(stacks_label(s, &s->samples[sample], key), number);
}

/* Return whether offwind wrote the profile, or one of the profiles merged into it. */
static bool has_own(const struct stacks *s)
{
	for (size_t i = 0; i < s->n_comments; i++)
		if (!strncmp(s->comments[i], "offwind ", 8) && s->comments[i][8] >= '0' &&
		    s->comments[i][8] <= '9')
			return true;
	return false;
}

/* Return whether the sample has this label with a number in units of the same name. */
static bool has_quantity(const struct stacks *s, size_t sample, const char *key)
{
	const struct stacks_label *l = stacks_label(s, &s->samples[sample], key);

	return l && !l->text && !strcmp(l->unit, key);
}

/*
 * Return whether offwind wrote the sample; has_own() is true of the profile. Only in profiles of
 * offwind do the numbers of processes and threads have units.
 */
static bool is_own(const struct stacks *s, size_t sample)
{
	return has_quantity(s, sample, "pid") && has_quantity(s, sample, "tid");
}

/*
 * Return whether one of the frames is in user space; a stack of the kernel alone does not end
 * there.
 */
static bool has_user_frame(const struct stacks *s, const struct stacks_frames *frames)
{
	for (size_t i = 0; i < frames->n; i++)
		if (frames->frames[i].module && !s->modules[frames->frames[i].module].kernel)
			return true;
	return false;
}

/* Give a frame. A profile has no stepper and no function offset, and no run-time address. */
static struct line_frame frame_of(const struct stacks *s, const struct stacks_frame *frame,
				  const char *confidence)
{
	const struct stacks_function *f = &s->functions[frame->function];
	const struct stacks_module *m = &s->modules[frame->module];

	return (struct line_frame){
		.function = f->placed ? NULL : f->name,
		.system_name = f->system_name != f->name ? f->system_name : NULL,
		.module = m->name,
		.path = frame->module ? m->path : NULL,
		.build_id_text = m->build_id,
		.file = f->file,
		.line = frame->line,
		.address = frame->address,
		.rel_pc = frame->address,
		.pc = frame->address,
		.confidence = confidence,
		.inlined = frame->inlined,
	};
}

/* Return text or, if it is empty, what stands for it. */
static const char *known(const char *text, const char *instead)
{
	return *text ? text : instead;
}

/* Fill in l->sample with sample i. -ENOMEM. */
static int take_sample(struct lines *l, size_t i)
{
	const struct stacks *s = l->s;
	struct line_sample *to = &l->sample;
	const char *confidence = label(s, i, "confidence", l->numbers[4]);

	if (stacks_unfold(s, &s->samples[i], &l->unfolded) ||
	    array_reserve(to->frames, l->unfolded.n, to->room))
		return -ENOMEM;
	(void)snprintf(l->id, sizeof(l->id), "%zu", i + 1);
	(void)snprintf(l->value, sizeof(l->value), "%" PRId64, stacks_value(s, i, l->type));
	to->id = l->id;
	to->value = l->value;
	to->event = s->types[l->type].type;
	to->time_ns = s->samples[i].time_ns;
	to->thread = known(format_thread_name(s, i, l->numbers[0]), "-");
	to->pid = known(label(s, i, "pid", l->numbers[1]), "0");
	to->tid = known(label(s, i, "tid", l->numbers[2]), "0");
	to->with_source = true;
	to->stop = label(s, i, "stop", l->numbers[3]);
	/* result_add() adds labels only for what is unusual, so add the usual values here. */
	if (l->own && is_own(s, i)) {
		if (!*to->stop && has_user_frame(s, &l->unfolded))
			to->stop = uw_stop_name(UW_STOP_ROOT);
		if (!*confidence)
			confidence = uw_confidence_name(UW_CONFIDENCE_RULE);
	}
	for (to->n = 0; to->n < l->unfolded.n; to->n++)
		to->frames[to->n] = frame_of(s, &l->unfolded.frames[to->n], confidence);
	return 0;
}

static void put_json_labels(const struct stacks *s, const struct stacks_sample *sample, FILE *out)
{
	(void)fputs("\"labels\":{", out);
	for (uint32_t i = 0; i < sample->n_labels; i++) {
		const struct stacks_label *l = &s->labels[s->label_ids[sample->first_label + i]];

		if (i)
			(void)fputc(',', out);
		json_text(out, l->key);
		(void)fputc(':', out);
		if (l->text)
			json_text(out, l->text);
		else
			(void)fprintf(out, "%" PRId64, l->number);
	}
	(void)fputc('}', out);
}

/* Write the members of a sample's JSON object up to its frames. */
static void put_json_head(const struct stacks *s, size_t i, FILE *out)
{
	(void)fprintf(out, "{\"sample\":%zu,", i + 1);
	if (s->timed)
		(void)fprintf(out, "\"time_ns\":%" PRIu64 ",", s->samples[i].time_ns);
	(void)fputs("\"values\":{", out);
	for (size_t j = 0; j < s->n_types; j++) {
		if (j)
			(void)fputc(',', out);
		json_text(out, s->types[j].type);
		(void)fprintf(out, ":%" PRId64, stacks_value(s, i, j));
	}
	(void)fputs("},", out);
	put_json_labels(s, &s->samples[i], out);
	(void)fputc(',', out);
}

/*
 * Write all samples that have a value by one of the functions of line_formats.h, each after what head
 * writes if it is not NULL.
 */
static int put_samples(const struct stacks *s, size_t type, FILE *out,
		       void (*head)(const struct stacks *s, size_t i, FILE *out),
		       void (*put)(FILE *out, const struct line_sample *sample))
{
	struct lines l = { .s = s, .type = type, .own = has_own(s) };
	int err = 0;

	for (size_t i = 0; !err && i < s->n_samples; i++) {
		if (!stacks_value(s, i, type))
			continue;
		err = take_sample(&l, i);
		if (!err && head)
			head(s, i, out);
		if (!err)
			put(out, &l.sample);
	}
	free(l.unfolded.frames);
	free(l.sample.frames);
	return err;
}

int format_text(const struct stacks *s, size_t type, FILE *out)
{
	return put_samples(s, type, out, NULL, line_text);
}

int format_tsv(const struct stacks *s, size_t type, FILE *out)
{
	line_tsv_header(out);
	return put_samples(s, type, out, NULL, line_tsv);
}

int format_jsonl(const struct stacks *s, size_t type, FILE *out)
{
	return put_samples(s, type, out, put_json_head, line_json_frames);
}

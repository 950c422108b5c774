/* agent/export/convert.c: writes a profile as lines: folded, text, TSV and JSON. */
#include "agent/export/formats.h"

#include "agent/export/export.h"
#include "agent/export/json.h"
#include "agent/sanitize.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Return a label of a sample as text; "" if it has none. */
static const char *label(const struct stacks *s, size_t sample, const char *key,
			 char number[STACKS_NUMBER])
{
	return stacks_label_text(stacks_label(s, &s->samples[sample], key), number);
}

/* Return the thread's name, or else its process's name. */
static const char *name_of(const struct stacks *s, size_t sample, char number[STACKS_NUMBER])
{
	const char *name = label(s, sample, "thread", number);

	return *name ? name : label(s, sample, "comm", number);
}

/* ---- folded ---------------------------------------------------------------------- */

/* One sample as a line. */
struct folded_line {
	const char **texts; /* outermost first; owned; equal texts are one pointer of the pool */
	size_t n;
	int64_t value;
	bool base;
};

struct folding {
	const struct stacks *s;
	struct strings pool;
	struct folded_line *lines;
	size_t n_lines;
	const char **plain, **kernel, **inlined; /* by function: its text as such a frame */
	struct stacks_frames unfolded;
};

/*
 * Return a frame's text with a suffix, from the pool. ";" would separate frames, so it becomes ":".
 * NULL: out of memory.
 */
static const char *folded_text(struct folding *f, const char *text, const char *suffix)
{
	char clean[CLEAN_MAX];
	size_t n = clean_text(text, ";", ':', clean, sizeof(clean) - 4);

	if (!n)
		clean[n++] = '-'; /* an empty frame would disappear */
	memcpy(clean + n, suffix, strlen(suffix) + 1);
	return strings_keep(&f->pool, clean, n + strlen(suffix));
}

/* Return the text of a frame. NULL: out of memory. */
static const char *folded_frame(struct folding *f, const struct stacks_frame *frame)
{
	bool kernel = f->s->modules[frame->module].kernel;
	const char **slot = kernel	     ? &f->kernel[frame->function]
			    : frame->inlined ? &f->inlined[frame->function]
					     : &f->plain[frame->function];

	if (!*slot)
		*slot = folded_text(f, f->s->functions[frame->function].name,
				    kernel	     ? "_[k]"
				    : frame->inlined ? "_[i]"
						     : "");
	return *slot;
}

static int compare_text(const char *a, const char *b)
{
	return a == b ? 0 : strcmp(a, b);
}

/* Order lines by their frames, the outermost first. */
static int by_text(const void *a, const void *b)
{
	const struct folded_line *x = a, *y = b;
	int order = 0;

	for (size_t i = 0; !order && i < x->n && i < y->n; i++)
		order = compare_text(x->texts[i], y->texts[i]);
	return order ? order : (x->n > y->n) - (x->n < y->n);
}

/*
 * Return what a folded line counts: the value of type or, if type is SIZE_MAX, the number of
 * samples of all events. If the profile has no number of samples, it is the value of the default
 * type.
 */
static int64_t folded_value(const struct stacks *s, size_t sample, size_t type, bool *counted)
{
	int64_t value = 0;

	if (type < s->n_types)
		return stacks_value(s, sample, type);
	for (size_t i = 0; i < s->n_types; i++) {
		const char *name = s->types[i].type;
		size_t n = strlen(name);

		if (strcmp(s->types[i].unit, "count") != 0 || n < 7 ||
		    strcmp(name + n - 7, "samples") != 0)
			continue;
		value = stacks_sum(value, stacks_value(s, sample, i));
		*counted = true;
	}
	return *counted ? value : stacks_value(s, sample, s->default_type);
}

/* Append a sample's line, unless its value is 0. */
static int fold_sample(struct folding *f, size_t sample, size_t type)
{
	const struct stacks *s = f->s;
	struct folded_line *line = &f->lines[f->n_lines];
	char number[STACKS_NUMBER];
	const char *name = name_of(s, sample, number);
	bool counted = false;
	size_t n = 0;

	*line = (struct folded_line){ .value = folded_value(s, sample, type, &counted),
				      .base = s->samples[sample].base };
	if (!line->value)
		return 0;
	if (stacks_unfold(s, &s->samples[sample], &f->unfolded))
		return -ENOMEM;
	line->texts = calloc(f->unfolded.n + 1, sizeof(*line->texts));
	if (!line->texts)
		return -ENOMEM;
	f->n_lines++;
	/*
	 * A sample of a thread begins with the thread's name, even an empty one: readers expect no
	 * function there.
	 */
	if (*name || !f->unfolded.n || stacks_label(s, &s->samples[sample], "pid"))
		line->texts[n++] = folded_text(f, name, "");
	for (size_t i = f->unfolded.n; i-- > 0;)
		line->texts[n++] = folded_frame(f, &f->unfolded.frames[i]);
	line->n = n;
	while (n > 0)
		if (!line->texts[--n])
			return -ENOMEM;
	return 0;
}

/* Sort the lines, add up equal ones and write them. */
static void put_folded(struct folding *f, bool compared, FILE *out)
{
	int64_t values[2] = { 0 };

	if (f->n_lines)
		qsort(f->lines, f->n_lines, sizeof(*f->lines), by_text);
	for (size_t i = 0; i < f->n_lines; i++) {
		const struct folded_line *line = &f->lines[i];

		values[line->base] = stacks_sum(values[line->base], line->value);
		if (i + 1 < f->n_lines && !by_text(line, line + 1))
			continue;
		for (size_t j = 0; j < line->n; j++) {
			if (j)
				(void)fputc(';', out);
			(void)fputs(line->texts[j], out);
		}
		if (compared)
			(void)fprintf(out, " %" PRId64, values[1]);
		(void)fprintf(out, " %" PRId64 "\n", values[0]);
		values[0] = values[1] = 0;
	}
}

int format_folded(const struct stacks *s, size_t type, FILE *out)
{
	struct folding f = { .s = s };
	bool compared = false;
	int err = 0;

	f.lines = calloc(s->n_samples + 1, sizeof(*f.lines));
	f.plain = calloc(s->n_functions + 1, sizeof(*f.plain));
	f.kernel = calloc(s->n_functions + 1, sizeof(*f.kernel));
	f.inlined = calloc(s->n_functions + 1, sizeof(*f.inlined));
	if (!f.lines || !f.plain || !f.kernel || !f.inlined)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < s->n_samples; i++) {
		compared = compared || s->samples[i].base;
		err = fold_sample(&f, i, type);
	}
	if (!err)
		put_folded(&f, compared, out);
	for (size_t i = 0; i < f.n_lines; i++)
		free(f.lines[i].texts);
	free(f.lines);
	free(f.plain);
	free(f.kernel);
	free(f.inlined);
	free(f.unfolded.frames);
	strings_fini(&f.pool);
	return err;
}

/* ---- text ------------------------------------------------------------------------- */

/* Write a source line as perf script does with -F +srcline: "/src/a.c:12". */
static void put_source(const char *file, int64_t line, FILE *out)
{
	if (!*file)
		return;
	(void)fprintf(out, "\n  %s", file);
	if (line > 0)
		(void)fprintf(out, ":%" PRId64, line);
}

/* Write a frame in a line of its own, with its source line if known. */
static void put_text_frame(const struct stacks *s, const struct stacks_frame *frame, FILE *out)
{
	const struct stacks_function *f = &s->functions[frame->function];
	const struct stacks_module *m = &s->modules[frame->module];

	(void)fprintf(out, "\t%16" PRIx64 " %s (%s)", frame->address,
		      f->placed ? "[unknown]" : f->name,
		      frame->inlined ? "inlined"
		      : *m->path     ? m->path
				     : "[unknown]");
	put_source(f->file, frame->line, out);
	(void)fputc('\n', out);
}

int format_text(const struct stacks *s, size_t type, FILE *out)
{
	struct stacks_frames unfolded = { 0 };
	char numbers[4][STACKS_NUMBER];
	int err = 0;

	for (size_t i = 0; !err && i < s->n_samples; i++) {
		const char *name = name_of(s, i, numbers[0]), *pid = label(s, i, "pid", numbers[1]);
		const char *tid = label(s, i, "tid", numbers[2]);
		const char *stop = label(s, i, "stop", numbers[3]);

		if (!stacks_value(s, i, type))
			continue;
		err = stacks_unfold(s, &s->samples[i], &unfolded);
		if (err)
			break;
		(void)fprintf(out,
			      "%-16s %5s/%-5s [000] %5" PRIu64 ".%06" PRIu64 ": %10" PRId64
			      " %s: \n",
			      *name ? name : "-", *pid ? pid : "0", *tid ? tid : "0",
			      s->samples[i].time_ns / 1000000000,
			      s->samples[i].time_ns % 1000000000 / 1000, stacks_value(s, i, type),
			      s->types[type].type);
		for (size_t j = 0; j < unfolded.n; j++)
			put_text_frame(s, &unfolded.frames[j], out);
		if (*stop)
			(void)fprintf(out, "# stop: %s\n", stop);
		(void)fputc('\n', out);
	}
	free(unfolded.frames);
	return err;
}

/* ---- TSV --------------------------------------------------------------------------- */

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

/* See export_tsv() for the columns. A profile has no stepper and no function offset: "-". */
int format_tsv(const struct stacks *s, size_t type, FILE *out)
{
	struct stacks_frames unfolded = { 0 };
	char numbers[2][STACKS_NUMBER];
	bool some_own = has_own(s);
	int err = 0;

	(void)export_tsv_header(out);
	for (size_t i = 0; !err && i < s->n_samples; i++) {
		const char *stop = label(s, i, "stop", numbers[0]);
		const char *confidence = label(s, i, "confidence", numbers[1]);

		if (!stacks_value(s, i, type))
			continue;
		err = stacks_unfold(s, &s->samples[i], &unfolded);
		/*
		 * export_pprof() adds labels only for what is unusual, so add the usual values
		 * here.
		 */
		if (!err && some_own && is_own(s, i)) {
			if (!*stop && has_user_frame(s, &unfolded))
				stop = uw_stop_name(UW_STOP_ROOT);
			if (!*confidence)
				confidence = uw_confidence_name(UW_CONFIDENCE_RULE);
		}
		for (size_t j = 0; !err && j < unfolded.n; j++) {
			const struct stacks_frame *frame = &unfolded.frames[j];
			const struct stacks_function *f = &s->functions[frame->function];
			const char *module = s->modules[frame->module].name;

			(void)fprintf(out, "%zu\t%zu\t%s\t%" PRIx64 "\t%s\t-\t-\t%s\t%s\t%s\t",
				      i + 1, j, *module ? module : "-", frame->address,
				      f->placed ? "-" : f->name, *stop ? stop : "-",
				      *confidence ? confidence : "-", *f->file ? f->file : "-");
			if (frame->line > 0)
				(void)fprintf(out, "%" PRId64, frame->line);
			else
				(void)fputc('-', out);
			(void)fprintf(out, "\t%d\t%" PRId64 "\n", frame->inlined,
				      stacks_value(s, i, type));
		}
		if (!err && !unfolded.n)
			(void)fprintf(out, "%zu\t-\t-\t-\t-\t-\t-\t%s\t-\t-\t-\t0\t%" PRId64 "\n",
				      i + 1, *stop ? stop : "-", stacks_value(s, i, type));
	}
	free(unfolded.frames);
	return err;
}

/* ---- JSON lines --------------------------------------------------------------------- */

/* Write a frame as a JSON object; fields that are not known are left out. */
static void put_json_frame(const struct stacks *s, const struct stacks_frame *frame, FILE *out)
{
	const struct stacks_function *f = &s->functions[frame->function];
	const struct stacks_module *m = &s->modules[frame->module];

	(void)fputs("{\"function\":", out);
	if (f->placed)
		(void)fputs("null", out);
	else
		json_text(out, f->name);
	if (f->system_name != f->name) {
		(void)fputs(",\"system_name\":", out);
		json_text(out, f->system_name);
	}
	if (frame->module) {
		(void)fputs(",\"module\":", out);
		json_text(out, m->path);
	}
	if (*m->build_id) {
		(void)fputs(",\"build_id\":", out);
		json_text(out, m->build_id);
	}
	(void)fprintf(out, ",\"address\":\"0x%" PRIx64 "\"", frame->address);
	if (*f->file) {
		(void)fputs(",\"file\":", out);
		json_text(out, f->file);
	}
	if (frame->line > 0)
		(void)fprintf(out, ",\"line\":%" PRId64, frame->line);
	(void)fprintf(out, "%s}", frame->inlined ? ",\"inlined\":true" : "");
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

int format_jsonl(const struct stacks *s, size_t type, FILE *out)
{
	struct stacks_frames unfolded = { 0 };
	int err = 0;

	for (size_t i = 0; !err && i < s->n_samples; i++) {
		if (!stacks_value(s, i, type))
			continue;
		err = stacks_unfold(s, &s->samples[i], &unfolded);
		if (err)
			break;
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
		(void)fputs(",\"frames\":[", out);
		for (size_t j = 0; j < unfolded.n; j++) {
			if (j)
				(void)fputc(',', out);
			put_json_frame(s, &unfolded.frames[j], out);
		}
		(void)fputs("]}\n", out);
	}
	free(unfolded.frames);
	return err;
}

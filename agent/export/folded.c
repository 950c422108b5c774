/* agent/export/folded.c: writes a profile as folded lines. */
#include "agent/export/formats.h"

#include "agent/runtime/runtime.h"
#include "agent/sanitize.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MARK_MAX = 32 }; /* bytes of a mark, with its 0: "_[cpython]" */

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
	const char **
		by_mark; /* texts: of each function with mark 0, then with mark 1, …; NULL: not made yet */
	struct stacks_frames unfolded;
};

/* How the text of a frame ends. MARK_RUNTIME + N is the name of the runtime with that number. */
enum { MARK_NONE, MARK_KERNEL, MARK_INLINED, MARK_RUNTIME };

static size_t mark_of(const struct folding *f, const struct stacks_frame *frame)
{
	const struct stacks_module *m = &f->s->modules[frame->module];

	if (m->runtime)
		return MARK_RUNTIME + runtime_number(m->runtime);
	return m->kernel ? MARK_KERNEL : frame->inlined ? MARK_INLINED : MARK_NONE;
}

/*
 * Return a frame's text with a mark, from the pool. ";" would separate frames, so it becomes ":".
 * NULL: out of memory.
 */
static const char *folded_text(struct folding *f, const char *text, const char *mark)
{
	char sanitized[SANITIZED_MAX];
	size_t n = sanitize_text(text, ";", ':', sanitized, sizeof(sanitized) - MARK_MAX);

	if (!n)
		sanitized[n++] = '-'; /* an empty frame would disappear */
	n += (size_t)snprintf(sanitized + n, MARK_MAX, "%s%s", mark[0] ? "_" : "", mark);
	return strings_keep(&f->pool, sanitized, n);
}

/* Return the text of a frame. NULL: out of memory. */
static const char *folded_frame(struct folding *f, const struct stacks_frame *frame)
{
	static const char *const marks[] = {
		[MARK_NONE] = "", [MARK_KERNEL] = "[k]", [MARK_INLINED] = "[i]"
	};
	size_t mark = mark_of(f, frame);
	const char **slot = &f->by_mark[mark * f->s->n_functions + frame->function];

	if (!*slot)
		*slot = folded_text(f, f->s->functions[frame->function].name,
				    mark < MARK_RUNTIME
					    ? marks[mark]
					    : runtimes_all[mark - MARK_RUNTIME]->module);
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
		if (!stacks_is_counter(s, i))
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
	const char *name = format_thread_name(s, sample, number);
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
	int err = 0;

	f.lines = calloc(s->n_samples + 1, sizeof(*f.lines));
	f.by_mark = calloc((MARK_RUNTIME + runtime_number(NULL)) * s->n_functions + 1,
			   sizeof(*f.by_mark));
	if (!f.lines || !f.by_mark)
		err = -ENOMEM;
	for (size_t i = 0; !err && i < s->n_samples; i++)
		err = fold_sample(&f, i, type);
	if (!err)
		put_folded(&f, s->compared, out);
	for (size_t i = 0; i < f.n_lines; i++)
		free(f.lines[i].texts);
	free(f.lines);
	free(f.by_mark);
	free(f.unfolded.frames);
	strings_fini(&f.pool);
	return err;
}

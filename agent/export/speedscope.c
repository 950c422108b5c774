/* agent/export/speedscope.c: writes a profile in speedscope's own file format. */
#include "agent/export/formats.h"

#include "agent/array.h"
#include "agent/export/json.h"
#include "agent/sanitize.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/*
 * Profiles of single threads; nobody selects from a longer list. The first profile has all threads.
 */
enum { THREADS_MAX = 500 };

struct speedscope {
	const struct stacks *s;
	size_t type;
	FILE *out;
	/* A frame of speedscope is a function in a module, so that its table adds up. */
	struct uw_hash_index by_frame;
	struct {
		uint32_t function, module;
	} * frames;
	size_t n_frames, room_frames;
	struct stacks_frames unfolded;
};

/* Return a frame's index in the table, where it is added if it is new. UW_HASH_NONE: out of memory. */
static uint32_t frame_id(struct speedscope *sc, const struct stacks_frame *frame)
{
	uint64_t hash = hash_u64(frame->function, frame->module);
	uint32_t id = UW_HASH_FIND(i, &sc->by_frame, hash,
				   sc->frames[i].function == frame->function &&
					   sc->frames[i].module == frame->module);

	if (id != UW_HASH_NONE)
		return id;
	if (array_grow(sc->frames, sc->n_frames, sc->room_frames) ||
	    uw_hash_add(&sc->by_frame, hash, (uint32_t)sc->n_frames))
		return UW_HASH_NONE;
	sc->frames[sc->n_frames].function = frame->function;
	sc->frames[sc->n_frames].module = frame->module;
	return (uint32_t)sc->n_frames++;
}

/* Collect the frames of all samples: the file has the table of frames before the samples. */
static int find_frames(struct speedscope *sc)
{
	for (size_t i = 0; i < sc->s->n_samples; i++) {
		if (!stacks_value(sc->s, i, sc->type))
			continue;
		if (stacks_unfold(sc->s, &sc->s->samples[i], &sc->unfolded))
			return -ENOMEM;
		for (size_t j = 0; j < sc->unfolded.n; j++)
			if (frame_id(sc, &sc->unfolded.frames[j]) == UW_HASH_NONE)
				return -ENOMEM;
	}
	return 0;
}

/*
 * Write a frame's name. Interpreted code has its module there, "total [cpython]": speedscope shows a name and a file, and the
 * file is the source.
 */
static void put_name(FILE *out, const char *function, const struct stacks_module *m)
{
	char text[SANITIZED_MAX];

	if (m->runtime)
		(void)snprintf(text, sizeof(text), "%s %s", function, m->path);
	json_text(out, m->runtime ? text : function);
}

/* Write the table of frames. */
static void put_frames(const struct speedscope *sc)
{
	for (size_t i = 0; i < sc->n_frames; i++) {
		const struct stacks_function *f = &sc->s->functions[sc->frames[i].function];
		const struct stacks_module *m = &sc->s->modules[sc->frames[i].module];

		(void)fprintf(sc->out, "%s\n{\"name\":", i ? "," : "");
		put_name(sc->out, f->name, m);
		if (*f->file || *m->path) {
			(void)fputs(",\"file\":", sc->out);
			json_text(sc->out, *f->file ? f->file : m->path);
		}
		if (*f->file && f->start_line > 0)
			(void)fprintf(sc->out, ",\"line\":%" PRId64, f->start_line);
		(void)fputc('}', sc->out);
	}
}

/* Return the unit for speedscope, which knows these only; everything else is a plain number. */
static const char *unit_of(const char *unit)
{
	static const char *const known[] = { "nanoseconds", "microseconds", "milliseconds",
					     "seconds", "bytes" };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(unit, known[i]))
			return known[i];
	return "none";
}

/* Write a profile of n samples: those with the numbers at[i], or the first n if at is NULL. */
static int put_profile(struct speedscope *sc, const char *name, const size_t *at, size_t n)
{
	const struct stacks *s = sc->s;
	int64_t total = 0;
	const char *comma = "";

	(void)fputs("{\"type\":\"sampled\",\"name\":", sc->out);
	json_text(sc->out, name);
	(void)fprintf(sc->out, ",\"unit\":\"%s\",\"samples\":[", unit_of(s->types[sc->type].unit));
	for (size_t i = 0; i < n; i++) {
		size_t sample = at ? at[i] : i;

		if (!stacks_value(s, sample, sc->type))
			continue;
		if (stacks_unfold(s, &s->samples[sample], &sc->unfolded))
			return -ENOMEM;
		(void)fprintf(sc->out, "%s\n[", comma);
		for (size_t j = sc->unfolded.n; j-- > 0;)
			(void)fprintf(sc->out, "%" PRIu32 "%s",
				      frame_id(sc, &sc->unfolded.frames[j]), j ? "," : "");
		(void)fputc(']', sc->out);
		comma = ",";
	}
	(void)fputs("],\n\"weights\":[", sc->out);
	comma = "";
	for (size_t i = 0; i < n; i++) {
		int64_t value = stacks_value(s, at ? at[i] : i, sc->type);

		if (!value)
			continue;
		(void)fprintf(sc->out, "%s%" PRId64, comma, value);
		total = stacks_sum(total, value);
		comma = ",";
	}
	(void)fprintf(sc->out, "],\"startValue\":0,\"endValue\":%" PRId64 "}", total);
	return 0;
}

/* Write a profile of all threads, and one for each of the heaviest threads. */
static int put_profiles(struct speedscope *sc)
{
	struct format_threads threads;
	int err = format_threads(sc->s, sc->type, &threads);

	if (err)
		return err;
	if (threads.n != 1)
		err = put_profile(sc, "all threads", NULL, sc->s->n_samples);
	for (size_t i = 0; !err && i < threads.n && i < THREADS_MAX; i++) {
		const struct format_thread *t = &threads.all[i];
		char name[256];

		(void)snprintf(name, sizeof(name), "%.100s %.20s%s%.20s", t->name, t->pid,
			       *t->tid ? "/" : "", t->tid);
		if (i || threads.n != 1)
			(void)fputs(",\n", sc->out);
		err = put_profile(sc, name, t->samples, t->n_samples);
	}
	format_threads_fini(&threads);
	return err;
}

int format_speedscope(const struct stacks *s, size_t type, FILE *out)
{
	struct speedscope sc = { .s = s, .type = type, .out = out };
	int err = find_frames(&sc);

	if (!err) {
		(void)fputs("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n"
			    "\"exporter\":\"offwind " OFFWIND_VERSION "\",\n\"name\":",
			    out);
		json_text(out, s->types[type].type);
		(void)fputs(",\n\"activeProfileIndex\":0,\n\"shared\":{\"frames\":[", out);
		put_frames(&sc);
		(void)fputs("]},\n\"profiles\":[\n", out);
		err = put_profiles(&sc);
		(void)fputs("]}\n", out);
	}
	uw_hash_fini(&sc.by_frame);
	free(sc.frames);
	free(sc.unfolded.frames);
	return err;
}

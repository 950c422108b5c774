/* agent/export/sample_lines.c: writes single samples, as they are walked, as text, TSV and JSON. */
#include "agent/array.h"
#include "agent/export/export.h"
#include "agent/export/json.h"
#include "agent/export/line_formats.h"
#include "agent/textbuf.h"

#include "unwinder/unwinder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int export_flush(FILE *out)
{
	errno = 0;
	if (fflush(out) || ferror(out))
		return errno ? -errno : -EIO;
	return 0;
}

/* Return 0 or the error of a failed write. */
static int state_of(FILE *out)
{
	/* The stream remembers a failed write, but errno may be of another call by now. */
	return ferror(out) ? (errno ? -errno : -EIO) : 0;
}

void export_place(const struct name *name, char *out, size_t size)
{
	const char *module = name->module && name->module[0] ? name->module : "[unknown]";

	if (name->bounded)
		(void)snprintf(out, size, "%s+0x%" PRIx64, module, name->start);
	else
		(void)snprintf(out, size, module[0] == '[' ? "%s" : "[%s]", module);
}

/* Return a module as perf script prints it: the path of a file, the name of anything else. */
static const char *whole_module(const struct location *location, const struct name *name)
{
	return location->module->kind == MODULE_FILE ? location->module->path : name->module;
}

/*
 * Fill in a frame, or the call number `place` that was inlined into it. The texts are borrowed from
 * names.
 */
static void fill_frame(struct line_frame *out, const struct walked *w, size_t i,
		       const struct name *name, size_t place)
{
	const struct name_place *p = place < name->n_places ? &name->places[place] : NULL;
	const struct walked_frame *f = &w->frames[i];
	const char *path = whole_module(&f->location, name);
	bool inlined = place + 1 < name->n_places;

	*out = (struct line_frame){
		.function = inlined ? p->function : name->function,
		.system_name = inlined ? p->system_name : name->system_name,
		.module = name->module,
		.path = path ? path : "",
		.build_id = &f->location.module->build_id,
		.file = p ? p->file : NULL,
		.line = p ? p->line : 0,
		.start_line = p ? p->start_line : 0,
		.address = f->location.vaddr,
		.rel_pc = f->location.vaddr + f->location.ra_bytes,
		.pc = f->pc,
		.offset = name->offset,
		.stepper = f->location.module->kind == MODULE_KERNEL
				   ? "kernel"
				   : uw_stepper_name((enum uw_stepper)f->stepper),
		.confidence = uw_confidence_name((enum uw_confidence)f->confidence),
		.has_offset = !inlined && name->function && name->function[0] &&
			      f->location.module->kind != MODULE_RUNTIME,
		.inlined = inlined,
	};
}

/* Write a number, and return where in out it begins. There are too many numbers for snprintf. */
static const char *decimal(uint64_t value, char out[24])
{
	char *p = out + 23;

	*p = '\0';
	do
		*--p = (char)('0' + value % 10);
	while (value /= 10);
	return p;
}

/* Add the sample's frames with their names, and one for each inlined call. -ENOMEM. */
static int name_frames(const struct walked *w, struct names *names, struct line_sample *out)
{
	if (array_reserve(out->frames, w->n_frames, out->room))
		return -ENOMEM;
	for (size_t i = 0; i < w->n_frames; i++) {
		struct name name;
		size_t place = 0;

		names_find(names, &w->frames[i].location, &name);
		do {
			if (array_grow(out->frames, out->n, out->room))
				return -ENOMEM;
			fill_frame(&out->frames[out->n++], w, i, &name, place);
		} while (++place < name.n_places);
	}
	return 0;
}

/*
 * Write a sample by one of the functions of line_formats.h, after what head writes if it is not NULL. *s
 * has what only text needs.
 */
static int put_sample(FILE *out, const struct walked *w, struct names *names, struct line_sample *s,
		      void (*head)(FILE *out, const struct walked *w),
		      void (*put)(FILE *out, const struct line_sample *s))
{
	const struct event_sample *e = &w->event->sample;
	char number[24], value[24];
	int err = name_frames(w, names, s);

	s->id = e->name && *e->name ? e->name : decimal(w->number, number);
	s->value = decimal(e->period, value);
	/* A stack of the kernel alone has no stop in user space. */
	s->stop = w->has_user ? uw_stop_name(w->stop) : NULL;
	if (!err && head)
		head(out, w);
	if (!err)
		put(out, s);
	free(s->frames);
	return err ? err : state_of(out);
}

/*
 * List the frames that were guessed, that is, supported by no rule and no look at the code: "3 by
 * fp, 1 by scan". The text is empty if there is none.
 */
static void guessed_text(const struct walked *w, char *out, size_t size)
{
	size_t n[UW_STEPPER_N] = { 0 };

	out[0] = '\0';
	for (size_t i = w->n_kernel; i < w->n_frames; i++)
		if (w->frames[i].confidence == UW_CONFIDENCE_GUESS &&
		    w->frames[i].stepper < UW_STEPPER_N)
			n[w->frames[i].stepper]++;
	for (unsigned int i = 0; i < UW_STEPPER_N; i++)
		if (n[i])
			textbuf_add(out, size, "%s%zu by %s", out[0] ? ", " : "", n[i],
				    uw_stepper_name((enum uw_stepper)i));
}

int export_text(FILE *out, const struct walked *w, struct names *names, bool lines)
{
	const struct event *e = w->event;
	char pid[24], tid[24], thread[24], guessed[512];
	struct line_sample s = { .thread = w->comm,
				 .pid = decimal(e->pid, pid),
				 .tid = decimal(e->tid, tid),
				 .event = w->event_name,
				 .guessed = guessed,
				 .time_ns = e->time_ns,
				 .cpu = e->sample.cpu,
				 .with_source = lines };

	if (!w->comm || !*w->comm) { /* as perf names it */
		(void)snprintf(thread, sizeof(thread), ":%" PRIu32, e->tid);
		s.thread = thread;
	}
	guessed_text(w, guessed, sizeof(guessed));
	return put_sample(out, w, names, &s, NULL, line_text);
}

int export_tsv_header(FILE *out)
{
	line_tsv_header(out);
	return state_of(out);
}

int export_tsv(FILE *out, const struct walked *w, struct names *names)
{
	struct line_sample s = { 0 };

	return put_sample(out, w, names, &s, NULL, line_tsv);
}

/* Write the members of a sample's JSON object up to its frames. */
static void put_json_head(FILE *out, const struct walked *w)
{
	const struct event *e = w->event;

	(void)fprintf(out, "{\"sample\":%" PRIu64 ",\"time_ns\":%" PRIu64, w->number, e->time_ns);
	if (e->sample.name) {
		(void)fputs(",\"name\":", out);
		json_text(out, e->sample.name);
	}
	(void)fputs(",\"event\":", out);
	json_text(out, w->event_name);
	(void)fprintf(out,
		      ",\"period\":%" PRIu64 ",\"cpu\":%" PRIu32 ",\"labels\":{\"pid\":%" PRIu32
		      ",\"tid\":%" PRIu32 ",\"thread\":",
		      e->sample.period, e->sample.cpu, e->pid, e->tid);
	json_text(out, w->comm);
	if (w->has_user)
		(void)fprintf(out, ",\"stop\":\"%s\"", uw_stop_name(w->stop));
	(void)fputs("},", out);
}

int export_jsonl(FILE *out, const struct walked *w, struct names *names)
{
	struct line_sample s = { 0 };

	return put_sample(out, w, names, &s, put_json_head, line_json_frames);
}

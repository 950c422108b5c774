/* agent/export/sample_lines.c: writes single samples as text, TSV and JSON. */
#include "agent/export/export.h"
#include "agent/export/json.h"
#include "agent/sanitize.h"
#include "agent/textbuf.h"

#include "unwinder/unwinder.h"

#include <errno.h>
#include <inttypes.h>
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
 * Write how many frames were guessed, that is, supported by no rule and no look at the code:
 * "# guessed: 3 by fp, 1 by scan".
 */
static void put_guessed(FILE *out, const struct walked *w)
{
	size_t n[UW_STEPPER_N] = { 0 }, n_said = 0;

	for (size_t i = w->n_kernel; i < w->n_frames; i++)
		if (w->frames[i].confidence == UW_CONFIDENCE_GUESS &&
		    w->frames[i].stepper < UW_STEPPER_N)
			n[w->frames[i].stepper]++;
	for (unsigned int i = 0; i < UW_STEPPER_N; i++)
		if (n[i])
			(void)fprintf(out, "%s %zu by %s", n_said++ ? "," : "# guessed:", n[i],
				      uw_stepper_name((enum uw_stepper)i));
	if (n_said)
		(void)fputc('\n', out);
}

/*
 * Write a source line as perf script does with -F +srcline: "/src/a.c:12". place may be NULL: not
 * known.
 */
static void put_source(FILE *out, const struct name_place *place)
{
	char text[CLEAN_MAX];

	if (!place || !place->file)
		return;
	(void)clean_text(place->file, "", '?', text, sizeof(text));
	(void)fprintf(out, "  %s", text);
	if (place->line)
		(void)fprintf(out, ":%" PRIu32, place->line);
	(void)fputc('\n', out);
}

int export_text(FILE *out, const struct walked *w, struct names *names, bool lines)
{
	const struct event *e = w->event;
	char text[CLEAN_MAX], module[CLEAN_MAX];

	if (!clean_text(w->comm, "", '?', text, sizeof(text))) /* as perf names it */
		(void)snprintf(text, sizeof(text), ":%" PRIu32, e->tid);
	(void)clean_text(w->event_name, "", '?', module, sizeof(module));
	(void)fprintf(out,
		      "%-16s %5" PRIu32 "/%-5" PRIu32 " [%03" PRIu32 "] %5" PRIu64 ".%06" PRIu64
		      ": %10" PRIu64 " %s: \n",
		      text, e->pid, e->tid, e->sample.cpu, e->time_ns / 1000000000,
		      e->time_ns % 1000000000 / 1000, e->sample.period, module);
	for (size_t i = 0; i < w->n_frames; i++) {
		const struct walked_frame *f = &w->frames[i];
		struct name name;

		names_find(names, &f->location, &name);
		(void)clean_text(whole_module(&f->location, &name), "", '?', module,
				 sizeof(module));
		for (size_t j = 0; j + 1 < name.n_places; j++) {
			(void)clean_text(name.places[j].function, "", '?', text, sizeof(text));
			(void)fprintf(out, "\t%16" PRIx64 " %s (inlined)\n", f->pc, text);
			if (lines)
				put_source(out, &name.places[j]);
		}
		(void)clean_text(name.function, "", '?', text, sizeof(text));
		if (text[0])
			(void)fprintf(out, "\t%16" PRIx64 " %s+0x%" PRIx64 " (%s)\n", f->pc, text,
				      name.offset, module);
		else
			(void)fprintf(out, "\t%16" PRIx64 " [unknown] (%s)\n", f->pc, module);
		if (lines && name.n_places)
			put_source(out, &name.places[name.n_places - 1]);
	}
	if (w->has_user && w->stop != UW_STOP_ROOT)
		(void)fprintf(out, "# stop: %s\n", uw_stop_name(w->stop));
	put_guessed(out, w);
	(void)fputc('\n', out);
	return state_of(out);
}

int export_tsv_header(FILE *out)
{
	(void)fputs("sample\tframe\tmodule\trel_pc\tfunction\tfunction_offset\tstepper\tstop\t"
		    "confidence\tfile\tline\tinlined\tvalue\n",
		    out);
	return state_of(out);
}

/*
 * Write a field; "-" for an empty one. Rows come by the hundred thousand, so these functions use
 * unlocked stdio and no formats; no other thread uses the stream.
 */
static void put_text(FILE *out, const char *text)
{
	(void)fputs_unlocked(text[0] ? text : "-", out);
}

/* Write a number in base 10 or 16. */
static void put_number(FILE *out, uint64_t value, unsigned int base)
{
	char number[24], *p = number + sizeof(number);

	do
		*--p = "0123456789abcdef"[value % base];
	while (value /= base);
	(void)fwrite_unlocked(p, 1, (size_t)(number + sizeof(number) - p), out);
}

static void put_tab(FILE *out)
{
	(void)putc_unlocked('\t', out);
}

/* Write the name of the sample, or its number if it has none. */
static void put_sample(FILE *out, const struct walked *w)
{
	char text[CLEAN_MAX];

	if (w->event->sample.name && clean_text(w->event->sample.name, "", '?', text, sizeof(text)))
		(void)fputs_unlocked(text, out);
	else
		put_number(out, w->number, 10);
}

/*
 * Write one row. place NULL: the source line is not known. A row of an inlined call has the stepper
 * of the frame that it is in.
 */
static void put_row(FILE *out, const struct walked *w, size_t i, size_t number,
		    const struct name *name, const struct name_place *place, bool inlined)
{
	const struct walked_frame *f = &w->frames[i];
	char text[CLEAN_MAX];

	put_sample(out, w);
	put_tab(out);
	put_number(out, number, 10);
	put_tab(out);
	(void)clean_text(name->module, "", '?', text, sizeof(text));
	put_text(out, text);
	put_tab(out);
	put_number(out, f->location.vaddr + f->location.ra_bytes, 16);
	put_tab(out);
	(void)clean_text(inlined ? place->function : name->function, "", '?', text, sizeof(text));
	put_text(out, text);
	put_tab(out);
	if (text[0] && !inlined)
		put_number(out, name->offset, 10);
	else
		put_text(out, "-");
	put_tab(out);
	put_text(out, i < w->n_kernel ? "kernel" : uw_stepper_name((enum uw_stepper)f->stepper));
	put_tab(out);
	/* A stack of the kernel alone has no stop in user space. */
	put_text(out, w->has_user ? uw_stop_name(w->stop) : "-");
	put_tab(out);
	put_text(out, uw_confidence_name((enum uw_confidence)f->confidence));
	put_tab(out);
	(void)clean_text(place ? place->file : NULL, "", '?', text, sizeof(text));
	put_text(out, text);
	put_tab(out);
	if (place && place->line)
		put_number(out, place->line, 10);
	else
		put_text(out, "-");
	put_tab(out);
	put_number(out, inlined, 10);
	put_tab(out);
	put_number(out, w->event->sample.period, 10);
	(void)putc_unlocked('\n', out);
}

int export_tsv(FILE *out, const struct walked *w, struct names *names)
{
	size_t number = 0;

	for (size_t i = 0; i < w->n_frames; i++) {
		struct name name;

		names_find(names, &w->frames[i].location, &name);
		for (size_t j = 0; j < name.n_places; j++)
			put_row(out, w, i, number++, &name, &name.places[j], j + 1 < name.n_places);
		if (!name.n_places)
			put_row(out, w, i, number++, &name, NULL, false);
	}
	if (!w->n_frames) {
		put_sample(out, w);
		(void)fprintf(out, "\t-\t-\t-\t-\t-\t-\t%s\t-\t-\t-\t0\t%" PRIu64 "\n",
			      w->has_user ? uw_stop_name(w->stop) : "-", w->event->sample.period);
	}
	return state_of(out);
}

/*
 * Write a frame, or a call inlined into it, as a JSON object. place NULL: the source line is not
 * known.
 */
static void put_json_frame(FILE *out, const struct walked *w, size_t i, const struct name *whole,
			   const struct name_place *place, bool inlined)
{
	const struct walked_frame *f = &w->frames[i];
	struct name name = *whole;

	if (inlined) {
		name.function = place->function;
		name.system_name = place->system_name;
	}
	(void)fputs("{\"function\":", out);
	if (name.function && name.function[0])
		json_text(out, name.function);
	else
		(void)fputs("null", out);
	if (name.function && name.system_name && strcmp(name.function, name.system_name) != 0) {
		(void)fputs(",\"system_name\":", out);
		json_text(out, name.system_name);
	}
	if (name.function && name.function[0] && !inlined)
		(void)fprintf(out, ",\"offset\":%" PRIu64, name.offset);
	if (place && place->file) {
		(void)fputs(",\"file\":", out);
		json_text(out, place->file);
	}
	if (place && place->line)
		(void)fprintf(out, ",\"line\":%" PRIu32, place->line);
	if (place && place->start_line)
		(void)fprintf(out, ",\"start_line\":%" PRIu32, place->start_line);
	if (inlined)
		(void)fputs(",\"inlined\":true", out);
	(void)fputs(",\"module\":", out);
	json_text(out, whole_module(&f->location, &name));
	if (f->location.module->build_id.size) {
		char hex[2 * UW_BUILD_ID_MAX + 1];

		(void)fprintf(out, ",\"build_id\":\"%s\"",
			      textbuf_build_id(&f->location.module->build_id, hex));
	}
	(void)fprintf(out,
		      ",\"address\":\"0x%" PRIx64 "\",\"pc\":\"0x%" PRIx64
		      "\",\"stepper\":\"%s\",\"confidence\":\"%s\"}",
		      f->location.vaddr, f->pc,
		      i < w->n_kernel ? "kernel" : uw_stepper_name((enum uw_stepper)f->stepper),
		      uw_confidence_name((enum uw_confidence)f->confidence));
}

int export_jsonl(FILE *out, const struct walked *w, struct names *names)
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
	(void)fputs("},\"frames\":[", out);
	for (size_t i = 0; i < w->n_frames; i++) {
		struct name name;
		size_t j = 0;

		names_find(names, &w->frames[i].location, &name);
		do {
			if (i || j)
				(void)fputc(',', out);
			put_json_frame(out, w, i, &name, name.n_places ? &name.places[j] : NULL,
				       j + 1 < name.n_places);
		} while (++j < name.n_places);
	}
	(void)fputs("]}\n", out);
	return state_of(out);
}

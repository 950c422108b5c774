/* agent/export/line_formats.c: the line formats text, TSV and JSON. */
#include "agent/export/line_formats.h"

#include "agent/export/json.h"
#include "agent/runtime/runtime.h"
#include "agent/sanitize.h"
#include "agent/textbuf.h"
#include "unwinder/unwinder.h"

#include <inttypes.h>
#include <string.h>

static bool is_known(const char *text)
{
	return text && *text;
}

/* ---- text ------------------------------------------------------------------------- */

/* Write a frame, and its source line as perf script does with -F +srcline. */
static void put_text_frame(FILE *out, const struct line_frame *f, bool with_source)
{
	char text[SANITIZED_MAX], where[SANITIZED_MAX];
	bool inlined = f->inlined && !(f->path && runtime_of_module(f->path));

	(void)sanitize_text(f->function, "", '?', text, sizeof(text));
	/* An inlined call of interpreted code is marked by its module as the others are. */
	(void)sanitize_text(inlined ? "inlined" : f->path, "", '?', where, sizeof(where));
	if (f->has_offset)
		(void)fprintf(out, "\t%16" PRIx64 " %s+0x%" PRIx64 " (%s)\n", f->pc, text,
			      f->offset, where);
	else
		(void)fprintf(out, "\t%16" PRIx64 " %s (%s)\n", f->pc, text[0] ? text : "[unknown]",
			      where[0] ? where : "[unknown]");
	if (!with_source || !is_known(f->file))
		return;
	(void)sanitize_text(f->file, "", '?', text, sizeof(text));
	(void)fprintf(out, "  %s", text);
	if (f->line > 0)
		(void)fprintf(out, ":%" PRId64, f->line);
	(void)fputc('\n', out);
}

void line_text(FILE *out, const struct line_sample *s)
{
	char thread[SANITIZED_MAX], event[SANITIZED_MAX];

	(void)sanitize_text(s->thread, "", '?', thread, sizeof(thread));
	(void)sanitize_text(s->event, "", '?', event, sizeof(event));
	(void)fprintf(out, "%-16s %5s/%-5s [%03" PRIu32 "] %5" PRIu64 ".%06" PRIu64 ": %10s %s: \n",
		      thread, s->pid, s->tid, s->cpu, s->time_ns / 1000000000,
		      s->time_ns % 1000000000 / 1000, s->value, event);
	for (size_t i = 0; i < s->n; i++)
		put_text_frame(out, &s->frames[i], s->with_source);
	if (is_known(s->stop) && strcmp(s->stop, uw_stop_name(UW_STOP_ROOT)) != 0)
		(void)fprintf(out, "# stop: %s\n", s->stop);
	if (is_known(s->guessed))
		(void)fprintf(out, "# guessed: %s\n", s->guessed);
	(void)fputc('\n', out);
}

/* ---- TSV --------------------------------------------------------------------------- */

void line_tsv_header(FILE *out)
{
	(void)fputs("sample\tframe\tmodule\trel_pc\tfunction\tfunction_offset\tstepper\tstop\t"
		    "confidence\tfile\tline\tinlined\tvalue\n",
		    out);
}

/*
 * Write a field; "-" for one that is not known. Rows come by the hundred thousand, so these
 * functions use unlocked stdio and no formats; no other thread uses the stream.
 */
static void put_field(FILE *out, const char *text)
{
	(void)fputs_unlocked(is_known(text) ? text : "-", out);
	(void)putc_unlocked('\t', out);
}

/* Write a text as a field, sanitized. */
static void put_sanitized(FILE *out, const char *text)
{
	char sanitized[SANITIZED_MAX];

	(void)sanitize_text(text, "", '?', sanitized, sizeof(sanitized));
	put_field(out, sanitized);
}

/* Write a number in base 10 or 16 as a field; "-" if it is not known. */
static void put_number(FILE *out, bool known, uint64_t value, unsigned int base)
{
	char number[24], *p = number + sizeof(number);

	*--p = '\t';
	if (!known)
		*--p = '-';
	else
		do
			*--p = "0123456789abcdef"[value % base];
		while (value /= base);
	(void)fwrite_unlocked(p, 1, (size_t)(number + sizeof(number) - p), out);
}

static void put_row(FILE *out, const struct line_sample *s, const char *id, size_t number)
{
	const struct line_frame *f = &s->frames[number];

	put_field(out, id);
	put_number(out, true, number, 10);
	put_sanitized(out, f->module);
	put_number(out, true, f->rel_pc, 16);
	put_sanitized(out, f->function);
	put_number(out, f->has_offset, f->offset, 10);
	put_field(out, f->stepper);
	put_field(out, s->stop);
	put_field(out, f->confidence);
	put_sanitized(out, f->file);
	put_number(out, f->line > 0, (uint64_t)f->line, 10);
	put_number(out, true, f->inlined, 10);
	(void)fputs_unlocked(s->value, out);
	(void)putc_unlocked('\n', out);
}

void line_tsv(FILE *out, const struct line_sample *s)
{
	char id[SANITIZED_MAX];

	(void)sanitize_text(s->id, "", '?', id, sizeof(id));
	for (size_t i = 0; i < s->n; i++)
		put_row(out, s, id, i);
	if (s->n)
		return;
	put_field(out, id);
	(void)fprintf(out, "-\t-\t-\t-\t-\t-\t%s\t-\t-\t-\t0\t%s\n",
		      is_known(s->stop) ? s->stop : "-", s->value);
}

/* ---- JSON lines --------------------------------------------------------------------- */

/* Write a member with a text. before is what stands before the text. */
static void put_member(FILE *out, const char *before, const char *text)
{
	(void)fputs(before, out);
	json_text(out, text);
}

/* Write the members that say which source a frame is of. */
static void put_source(FILE *out, const struct line_frame *f)
{
	if (is_known(f->file))
		put_member(out, ",\"file\":", f->file);
	if (f->line > 0)
		(void)fprintf(out, ",\"line\":%" PRId64, f->line);
	if (f->start_line > 0)
		(void)fprintf(out, ",\"start_line\":%" PRId64, f->start_line);
	if (f->inlined)
		(void)fputs(",\"inlined\":true", out);
}

/* Write the members that say which code a frame is in. */
static void put_code(FILE *out, const struct line_frame *f)
{
	char hex[2 * UW_BUILD_ID_MAX + 1];

	if (f->path)
		put_member(out, ",\"module\":", f->path);
	if (f->build_id && f->build_id->size)
		(void)fprintf(out, ",\"build_id\":\"%s\"", textbuf_build_id(f->build_id, hex));
	if (is_known(f->build_id_text))
		put_member(out, ",\"build_id\":", f->build_id_text);
	if (f->stepper)
		(void)fprintf(out,
			      ",\"address\":\"0x%" PRIx64 "\",\"pc\":\"0x%" PRIx64
			      "\",\"stepper\":\"%s\",\"confidence\":\"%s\"",
			      f->address, f->pc, f->stepper, f->confidence);
	else
		(void)fprintf(out, ",\"address\":\"0x%" PRIx64 "\"", f->address);
}

/*
 * Write a frame as an object; members that are not known are left out. Walked samples have the
 * source before the code, those of a profile behind it.
 */
static void put_json_frame(FILE *out, const struct line_frame *f)
{
	if (is_known(f->function))
		put_member(out, "{\"function\":", f->function);
	else
		(void)fputs("{\"function\":null", out);
	if (f->system_name && strcmp(f->system_name, f->function ? f->function : "") != 0)
		put_member(out, ",\"system_name\":", f->system_name);
	if (f->has_offset)
		(void)fprintf(out, ",\"offset\":%" PRIu64, f->offset);
	if (f->stepper)
		put_source(out, f);
	put_code(out, f);
	if (!f->stepper)
		put_source(out, f);
	(void)fputc('}', out);
}

void line_json_frames(FILE *out, const struct line_sample *s)
{
	(void)fputs("\"frames\":[", out);
	for (size_t i = 0; i < s->n; i++) {
		if (i)
			(void)fputc(',', out);
		put_json_frame(out, &s->frames[i]);
	}
	(void)fputs("]}\n", out);
}

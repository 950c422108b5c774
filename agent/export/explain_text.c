/* agent/export/explain_text.c: explains how one sample was walked, frame by frame, as text or JSON. */
#include "agent/export/export.h"
#include "agent/process/modules.h"
#include "agent/sanitize.h"

#include "agent/source/machine.h"
#include "agent/textbuf.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The sample that is being explained. */
struct teller {
	FILE *out;
	const struct walked *walked;
	struct names *names;
	uint16_t machine;
	char *text; /* buffer of SANITIZED_MAX bytes for sanitized() */
};

/* Return text sanitized for a terminal, in t->text; the next call overwrites it. */
static const char *sanitized(const struct teller *t, const char *text)
{
	(void)sanitize_text(text, "", '?', t->text, SANITIZED_MAX);
	return t->text;
}

static const char *prot_text(uint32_t prot, char out[4])
{
	out[0] = prot & PROT_READ ? 'r' : '-';
	out[1] = prot & PROT_WRITE ? 'w' : '-';
	out[2] = prot & PROT_EXEC ? 'x' : '-';
	out[3] = '\0';
	return out;
}

static const char *reg_name(const struct teller *t, unsigned int reg)
{
	return uw_reg_name(t->machine, reg);
}

/*
 * Return the machine of the process, for the names of registers: that of any object. Without an
 * object, guess by the registers of the sample.
 */
static uint16_t process_machine(const struct walked *w)
{
	for (size_t i = 0; i < w->n_steps; i++)
		if (w->steps[i].object)
			return uw_object_machine(w->steps[i].object);
	return machine_of_dwarf_regs(w->event->sample.regs.known)->elf;
}

/* ---- text ------------------------------------------------------------------------ */

/* Write where a register of the caller is saved, and its value. */
static void put_save(const struct teller *t, const struct uw_step *step, const char *what,
		     const struct uw_save *s)
{
	char where[48] = "undefined";

	switch (s->place) {
	case UW_PLACE_SAME:
		(void)snprintf(where, sizeof(where), "%s",
			       s->popped ? "same, its slot is popped" : "same");
		break;
	case UW_PLACE_REGISTER:
		(void)snprintf(where, sizeof(where), "in %s", reg_name(t, s->from));
		break;
	case UW_PLACE_MEMORY:
		(void)snprintf(where, sizeof(where), "[0x%" PRIx64 "]%s", s->addr,
			       s->expression ? " by expression" : "");
		break;
	case UW_PLACE_VALUE:
		(void)snprintf(where, sizeof(where), "%s",
			       s->expression ? "value by expression" : "value from cfa");
		break;
	default:
		break;
	}
	(void)fprintf(t->out, "      %-8s %s", what, where);
	if (s->known)
		(void)fprintf(t->out, " = 0x%" PRIx64, s->value);
	else if (step->found && s->place != UW_PLACE_UNDEFINED)
		(void)fprintf(t->out, ", not known");
	(void)fputc('\n', t->out);
}

/* Write where the rules for a frame come from, and the range that they cover. */
static void put_rules(const struct teller *t, const struct uw_step *s)
{
	if (s->rules == UW_RULES_NONE)
		(void)fprintf(t->out, "      rules    none for this address");
	else if (s->rules == UW_RULES_DYNAMIC)
		(void)fprintf(t->out,
			      "      rules    registered by the process for 0x%" PRIx64
			      "-0x%" PRIx64,
			      s->fde_start, s->fde_end);
	else if (s->rules == UW_RULES_CODE)
		(void)fprintf(t->out,
			      "      rules    of the function that seems to begin at 0x%" PRIx64,
			      s->fde_start);
	else if (s->rules != UW_RULES_GAP)
		(void)fprintf(t->out, "      rules    %s, FDE 0x%" PRIx64 "-0x%" PRIx64,
			      uw_rules_name(s->rules), s->fde_start, s->fde_end);
	else if (s->stepper == UW_STEPPER_CFI)
		(void)fprintf(t->out,
			      "      rules    of the code beside it, 0x%" PRIx64 "-0x%" PRIx64,
			      s->fde_start, s->fde_end);
	else
		(void)fprintf(t->out, "      rules    known from the code itself");
	if (s->row_end)
		(void)fprintf(t->out, ", row 0x%" PRIx64 "-0x%" PRIx64, s->row_start, s->row_end);
	(void)fputc('\n', t->out);
}

/* Write a stepper that was tried, what it read and why it was accepted or refused. */
static void put_tried(const struct teller *t, const struct uw_try *try)
{
	(void)fprintf(t->out, "      tried    %s", uw_stepper_name((enum uw_stepper)try->stepper));
	if (try->has_addr)
		(void)fprintf(t->out, ", [0x%" PRIx64 "]", try->addr);
	else if (try->verdict != UW_VERDICT_OFF && try->verdict != UW_VERDICT_NO_WORD &&
		 try->verdict != UW_VERDICT_CALLER)
		(void)fprintf(t->out, ", %s", reg_name(t, try->reg));
	if (try->has_value)
		(void)fprintf(t->out, " = 0x%" PRIx64, try->value);
	(void)fprintf(t->out, ": %s\n", uw_verdict_sentence((enum uw_verdict)try->verdict));
}

/* Write how one frame led to its caller: rules, steppers tried, CFA and saved registers. */
static void put_step(const struct teller *t, const struct uw_step *s)
{
	put_rules(t, s);
	for (size_t i = 0; i < s->n_tried; i++)
		put_tried(t, &s->tried[i]);
	if (!s->found && s->rules == UW_RULES_NONE)
		return;
	if (s->cfa_expression)
		(void)fprintf(t->out, "      cfa      by expression");
	else
		(void)fprintf(t->out, "      cfa      %s%+" PRId64, reg_name(t, s->cfa_reg),
			      s->cfa_off);
	if (s->cfa_known)
		(void)fprintf(t->out, " = 0x%" PRIx64 "\n", s->cfa);
	else
		(void)fprintf(t->out, ", not known\n");
	put_save(t, s, "ra", &s->ra);
	for (size_t i = 0; i < s->n_saves; i++)
		put_save(t, s, reg_name(t, s->saves[i].reg), &s->saves[i]);
	if (s->found)
		(void)fprintf(t->out, "      caller   found by %s, confidence %s\n",
			      uw_stepper_name(s->stepper), uw_confidence_name(s->confidence));
	if (s->differs)
		(void)fprintf(t->out, "      differs  the walk found another caller: a bug in "
				      "offwind, please report it\n");
}

/* Return the reason why a mapping has no object. */
static const char *missing(const struct module *module)
{
	return module->state == MODULE_USABLE ? "the file has nothing at this offset"
					      : module_state_sentence(module->state);
}

/* Write the mapping and the object that a frame lies in, and its stack pointer. */
static void put_place(const struct teller *t, const struct walked_frame *wf,
		      const struct uw_frame *f, const struct uw_step *s)
{
	const struct uw_mapping *m = f->mapping;
	char prot[4], id[2 * UW_BUILD_ID_MAX + 1];

	if (!m) {
		(void)fprintf(t->out, "      mapping  none\n");
		return;
	}
	(void)fprintf(t->out,
		      "      mapping  0x%" PRIx64 "-0x%" PRIx64 " %s offset 0x%" PRIx64 " %s\n",
		      m->start, m->end, prot_text(m->prot, prot), m->off,
		      sanitized(t, wf->location.module->path));
	(void)fprintf(t->out, "      sp       0x%" PRIx64 "%s\n", f->sp,
		      f->signal ? ", a signal's frame" : "");
	if (!m->object) {
		(void)fprintf(t->out, "      object   none: %s\n", missing(wf->location.module));
		return;
	}
	(void)textbuf_build_id(uw_object_build_id(m->object), id);
	(void)fprintf(t->out,
		      "      object   build-id %s, bias 0x%" PRIx64 ", vaddr 0x%" PRIx64 "\n",
		      id[0] ? id : "none", m->bias, s ? s->vaddr : f->lookup - m->bias);
}

/* Write which sample this is, of which process and thread. */
static void put_head(const struct teller *t)
{
	const struct walked *w = t->walked;

	(void)fprintf(t->out, "sample %" PRIu64, w->number);
	if (w->event->sample.name)
		(void)fprintf(t->out, " (%s)", sanitized(t, w->event->sample.name));
	(void)fprintf(t->out, ": process %" PRIu32 ", thread %" PRIu32 " %s", w->event->pid,
		      w->event->tid, sanitized(t, w->comm));
	(void)fprintf(t->out, ", %s\n", sanitized(t, w->event_name));
}

/*
 * Return by how many bytes the missing address lies below sp, where a larger stack copy would not
 * help; 0 if it does not.
 */
static uint64_t below_sp(const struct walked *w)
{
	size_t n = w->n_frames - w->n_kernel - w->n_waker;
	uint64_t sp = w->user && n ? w->user[n - 1].sp : 0;

	return w->stop_addr < sp ? sp - w->stop_addr : 0;
}

/*
 * The most bytes of stack that a sample can hold; an address further away may be on another stack.
 */
#define STACK_MAX ((uint64_t)1 << 20)

/* Return whether no captured stack, however large, can reach the missing address. */
static bool out_of_reach(const struct walked *w)
{
	uint64_t sp = w->user && w->n_frames - w->n_waker > w->n_kernel ? w->user[0].sp : 0;

	return sp && w->stop_addr > sp && w->stop_addr - sp > STACK_MAX;
}

/* Write the address that the walk could not read, and whether a larger stack copy would help. */
static void put_missing(const struct teller *t)
{
	uint64_t below = below_sp(t->walked);

	(void)fprintf(t->out, "missing: 0x%" PRIx64, t->walked->stop_addr);
	if (below)
		(void)fprintf(t->out,
			      ", %" PRIu64 " bytes below sp, which this recording does not contain",
			      below);
	else if (out_of_reach(t->walked))
		(void)fputs(", on another stack: no sample reaches that far", t->out);
	(void)fputc('\n', t->out);
}

/* Write the function, file and line of a frame of interpreted code. */
static void put_interpreted(const struct teller *t, const struct name *name)
{
	const struct name_place *place = name->n_places ? name->places : NULL;

	(void)fputs(name->function ? sanitized(t, name->function) : "[unknown]", t->out);
	if (place && place->file)
		(void)fprintf(t->out, " %s:%" PRIu32, sanitized(t, place->file), place->line);
}

/* Write the labels that the thread has set itself, or why they are missing. */
static void put_labels(const struct teller *t)
{
	const char *text = t->walked->labels;
	struct label_item item;

	for (bool first = true; labels_next(&text, &item); first = false) {
		(void)fprintf(t->out, "%s%s=", first ? "labels: " : ", ", item.key);
		(void)fputs(sanitized(t, item.value), t->out);
	}
	if (t->walked->labels)
		(void)fputc('\n', t->out);
	if (t->walked->unlabelled)
		(void)fprintf(t->out, "labels are missing: %s\n", t->walked->unlabelled);
}

int export_explain_text(FILE *out, const struct walked *w, struct names *names)
{
	struct teller t = {
		.out = out, .walked = w, .names = names, .machine = process_machine(w)
	};

	t.text = malloc(SANITIZED_MAX);
	if (!t.text)
		return -ENOMEM;
	put_head(&t);
	for (size_t i = 0; i < w->n_frames; i++) {
		const struct walked_frame *wf = &w->frames[i];
		size_t u = wf->user ? (size_t)(wf->user - w->user) : SIZE_MAX;
		struct name name;

		names_find(names, &wf->location, &name);
		(void)fprintf(out, "#%-3zu 0x%016" PRIx64 " ", i, wf->pc);
		if (wf->location.module->kind == MODULE_RUNTIME)
			put_interpreted(&t, &name);
		else if (name.function)
			(void)fprintf(out, "%s+0x%" PRIx64, sanitized(&t, name.function),
				      name.offset);
		else
			(void)fputs("[unknown]", out);
		(void)fprintf(out, " (%s)%s\n", sanitized(&t, name.module),
			      wf->exact ? "" : ", a return address");
		if (!wf->user || !w->user)
			continue;
		put_place(&t, wf, wf->user, u < w->n_steps ? &w->steps[u] : NULL);
		if (u < w->n_steps)
			put_step(&t, &w->steps[u]);
	}
	if (w->has_user) {
		(void)fprintf(out, "stop: %s: %s\n", uw_stop_name(w->stop),
			      uw_stop_sentence(w->stop));
		if (w->stop == UW_STOP_TRUNCATED)
			put_missing(&t);
		if (w->missing)
			(void)fprintf(out, "interpreted frames are missing: %s\n", w->missing);
	}
	put_labels(&t);
	if (w->waker_lacks)
		(void)fprintf(out, "the stack of the thread that ended the wait is not whole: %s\n",
			      w->waker_lacks);
	free(t.text);
	return export_flush(out);
}

/* ---- JSON ------------------------------------------------------------------------- */

/*
 * Write a JSON string. Sanitized text has no control characters, so only quotes and backslashes
 * need to be escaped.
 */
static void put_string(const struct teller *t, const char *text)
{
	(void)fputc('"', t->out);
	for (const char *p = sanitized(t, text); *p; p++) {
		if (*p == '"' || *p == '\\')
			(void)fputc('\\', t->out);
		(void)fputc(*p, t->out);
	}
	(void)fputc('"', t->out);
}

/* Write where a register of the caller is saved. */
static void json_save(const struct teller *t, const struct uw_save *s)
{
	static const char *const places[] = { [UW_PLACE_UNDEFINED] = "undefined",
					      [UW_PLACE_SAME] = "same",
					      [UW_PLACE_REGISTER] = "register",
					      [UW_PLACE_MEMORY] = "memory",
					      [UW_PLACE_VALUE] = "value" };

	(void)fprintf(t->out, "{\"register\":\"%s\",\"place\":\"%s\"", reg_name(t, s->reg),
		      places[s->place]);
	if (s->place == UW_PLACE_MEMORY)
		(void)fprintf(t->out, ",\"address\":\"0x%" PRIx64 "\"", s->addr);
	if (s->place == UW_PLACE_REGISTER)
		(void)fprintf(t->out, ",\"from\":\"%s\"", reg_name(t, s->from));
	if (s->expression)
		(void)fprintf(t->out, ",\"expression\":true");
	if (s->popped)
		(void)fprintf(t->out, ",\"popped\":true");
	if (s->known)
		(void)fprintf(t->out, ",\"value\":\"0x%" PRIx64 "\"", s->value);
	(void)fputc('}', t->out);
}

/* Write the steppers that were tried. */
static void json_tried(const struct teller *t, const struct uw_step *s)
{
	for (size_t i = 0; i < s->n_tried; i++) {
		const struct uw_try *try = &s->tried[i];

		(void)fprintf(t->out, "%s{\"stepper\":\"%s\",\"verdict\":\"%s\"",
			      i ? "," : ",\"tried\":[",
			      uw_stepper_name((enum uw_stepper)try->stepper),
			      uw_verdict_name((enum uw_verdict)try->verdict));
		if (try->has_addr)
			(void)fprintf(t->out, ",\"address\":\"0x%" PRIx64 "\"", try->addr);
		if (try->has_value)
			(void)fprintf(t->out, ",\"value\":\"0x%" PRIx64 "\"", try->value);
		(void)fputc('}', t->out);
	}
	(void)fputc(']', t->out);
}

/* Write how one frame led to its caller. */
static void json_step(const struct teller *t, const struct uw_step *s)
{
	FILE *out = t->out;

	(void)fprintf(out, ",\"rules\":\"%s\"", uw_rules_name(s->rules));
	if (s->rules != UW_RULES_NONE)
		(void)fprintf(out,
			      ",\"fde\":{\"start\":\"0x%" PRIx64 "\",\"end\":\"0x%" PRIx64 "\"}",
			      s->fde_start, s->fde_end);
	if (s->row_end)
		(void)fprintf(out,
			      ",\"row\":{\"start\":\"0x%" PRIx64 "\",\"end\":\"0x%" PRIx64 "\"}",
			      s->row_start, s->row_end);
	if (s->n_tried)
		json_tried(t, s);
	if (!s->found && s->rules == UW_RULES_NONE)
		return;
	(void)fputs(",\"cfa\":{", out);
	if (s->cfa_expression)
		(void)fputs("\"expression\":true", out);
	else
		(void)fprintf(out, "\"register\":\"%s\",\"offset\":%" PRId64,
			      reg_name(t, s->cfa_reg), s->cfa_off);
	if (s->cfa_known)
		(void)fprintf(out, ",\"value\":\"0x%" PRIx64 "\"", s->cfa);
	(void)fputs("},\"ra\":", out);
	json_save(t, &s->ra);
	(void)fputs(",\"registers\":[", out);
	for (size_t i = 0; i < s->n_saves; i++) {
		if (i)
			(void)fputc(',', out);
		json_save(t, &s->saves[i]);
	}
	(void)fprintf(out, "],\"found\":%s,\"next_stepper\":\"%s\",\"confidence\":\"%s\"",
		      s->found ? "true" : "false", uw_stepper_name(s->stepper),
		      uw_confidence_name(s->confidence));
	if (s->differs)
		(void)fputs(",\"differs\":true", out);
}

/* Write the mapping and the object that a frame lies in. */
static void json_place(const struct teller *t, const struct walked_frame *wf,
		       const struct uw_frame *f)
{
	const struct uw_mapping *m = f->mapping;
	char prot[4], id[2 * UW_BUILD_ID_MAX + 1];

	(void)fprintf(t->out, ",\"sp\":\"0x%" PRIx64 "\",\"signal_frame\":%s", f->sp,
		      f->signal ? "true" : "false");
	if (!m)
		return;
	(void)fprintf(t->out,
		      ",\"mapping\":{\"start\":\"0x%" PRIx64 "\",\"end\":\"0x%" PRIx64
		      "\",\"protection\":\"%s\",\"offset\":\"0x%" PRIx64 "\",\"path\":",
		      m->start, m->end, prot_text(m->prot, prot), m->off);
	put_string(t, wf->location.module->path);
	(void)fputs("},\"object\":", t->out);
	if (!m->object) {
		(void)fputs("null,\"object_missing\":", t->out);
		put_string(t, missing(wf->location.module));
		return;
	}
	(void)textbuf_build_id(uw_object_build_id(m->object), id);
	(void)fprintf(t->out,
		      "{\"build_id\":\"%s\",\"bias\":\"0x%" PRIx64 "\",\"vaddr\":\"0x%" PRIx64
		      "\"}",
		      id, m->bias, f->lookup - m->bias);
}

static void json_frame(const struct teller *t, size_t i)
{
	const struct walked *w = t->walked;
	const struct walked_frame *wf = &w->frames[i];
	size_t u = wf->user ? (size_t)(wf->user - w->user) : SIZE_MAX;
	struct name name;

	names_find(t->names, &wf->location, &name);
	(void)fprintf(t->out, "%s{\"frame\":%zu,\"pc\":\"0x%" PRIx64 "\",\"exact\":%s,\"module\":",
		      i ? "," : "", i, wf->pc, wf->exact ? "true" : "false");
	put_string(t, name.module);
	if (name.function) {
		(void)fputs(",\"function\":", t->out);
		put_string(t, name.function);
		if (wf->location.module->kind != MODULE_RUNTIME)
			(void)fprintf(t->out, ",\"function_offset\":%" PRIu64, name.offset);
	}
	(void)fprintf(t->out, ",\"stepper\":\"%s\"",
		      wf->location.module->kind == MODULE_KERNEL
			      ? "kernel"
			      : uw_stepper_name((enum uw_stepper)wf->stepper));
	if (wf->user && w->user) {
		json_place(t, wf, wf->user);
		if (u < w->n_steps)
			json_step(t, &w->steps[u]);
	}
	(void)fputc('}', t->out);
}

/* Write the labels that the thread has set itself, or why they are missing. */
static void json_labels(const struct teller *t)
{
	const char *text = t->walked->labels;
	struct label_item item;

	for (bool first = true; labels_next(&text, &item); first = false) {
		(void)fputs(first ? ",\"labels\":{" : ",", t->out);
		put_string(t, item.key);
		(void)fputc(':', t->out);
		put_string(t, item.value);
	}
	if (t->walked->labels)
		(void)fputc('}', t->out);
	if (t->walked->unlabelled) {
		(void)fputs(",\"labels_missing\":", t->out);
		put_string(t, t->walked->unlabelled);
	}
}

int export_explain_json(FILE *out, const struct walked *w, struct names *names)
{
	struct teller t = {
		.out = out, .walked = w, .names = names, .machine = process_machine(w)
	};

	t.text = malloc(SANITIZED_MAX);
	if (!t.text)
		return -ENOMEM;
	(void)fprintf(out, "{\"sample\":%" PRIu64 ",\"name\":", w->number);
	if (w->event->sample.name)
		put_string(&t, w->event->sample.name);
	else
		(void)fputs("null", out);
	(void)fprintf(out, ",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32 ",\"comm\":", w->event->pid,
		      w->event->tid);
	put_string(&t, w->comm);
	(void)fputs(",\"event\":", out);
	put_string(&t, w->event_name);
	(void)fputs(",\"frames\":[", out);
	for (size_t i = 0; i < w->n_frames; i++)
		json_frame(&t, i);
	(void)fputc(']', out);
	if (w->has_user) {
		(void)fprintf(out, ",\"stop\":\"%s\",\"stop_reason\":", uw_stop_name(w->stop));
		put_string(&t, uw_stop_sentence(w->stop));
		if (w->stop == UW_STOP_TRUNCATED)
			(void)fprintf(
				out, ",\"missing\":\"0x%" PRIx64 "\",\"missing_below_sp\":%" PRIu64,
				w->stop_addr, below_sp(w));
		if (w->missing) {
			(void)fputs(",\"interpreted_missing\":", out);
			put_string(&t, w->missing);
		}
	}
	json_labels(&t);
	if (w->waker_lacks) {
		(void)fputs(",\"waker_stack\":", out);
		put_string(&t, w->waker_lacks);
	}
	(void)fputs("}\n", out);
	free(t.text);
	return export_flush(out);
}

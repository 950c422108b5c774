/*
 * unwinder/rule/lookup.c: finds the rule at an address of an object: in the compiled table, in the
 * unwind sections, or by the code itself.
 *
 * uw_object_rule and uw_object_packed go through these questions and take the first answer:
 *
 *   1. Does a row of the compiled table cover the address? A row cannot know a signal trampoline
 *      without an FDE, so the code is looked at where the row may reach over one (at_trampoline).
 *   2. What does the file say (uw_object_interpret)?
 *
 * uw_object_interpret:
 *
 *   1. Do the FDE ranges say that no FDE covers the address? Then go to 5. If the gap is short, the
 *      FDE before it is needed, which find_gap finds in the sections.
 *   2. Does a single FDE, read from the file, cover it? This is asked as long as it is cheaper than
 *      reading the section (may_look_up_lazily, lazy_rule).
 *   3. Which FDE of which section covers it (find_place)? The sections are .eh_frame, Go's function
 *      table, .debug_frame and the .debug_frame in MiniDebugInfo.
 *   4. In an FDE (rule_in_fde): does a signal trampoline begin where the FDE ends, at the return
 *      address (trampoline_at_end)? If not, which row of the FDE covers it (uw_cfi_rule)?
 *   5. In a gap (rule_in_gap): is the code a signal trampoline? Is the gap padding behind an FDE?
 *      Is the code the function at the entry point, .init, .fini, or a PLT entry?
 */
#include "unwinder/rule/object.h"

#include <elf.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/elf.h"
#include "unwinder/rule/go_rules.h"
#include "unwinder/rule/lazy_fde.h"
#include "unwinder/rule/object_internal.h"
#include "unwinder/table/procs.h"
#include "unwinder/table/row.h"
#include "unwinder/table/table.h"
#include "unwinder/table/table_build.h"

/*
 * How many bytes after the entry point its function may reach. The second limit is for a gap
 * without an end.
 */
#define ENTRY_MAX	  128
#define ENTRY_UNBOUND_MAX 48

/* Functions that follow the entry point's are aligned to this. */
#define ENTRY_ALIGN 16

/* ---- FDEs and gaps -------------------------------------------------------------- */

static const struct uw_procs *procs_of(const struct uw_object *o)
{
	return atomic_load_explicit(&o->procs, memory_order_acquire);
}

/*
 * The cost of a lookup in the file, in bytes of section that could be read in the same time. A
 * lookup takes 0.4 us longer than in a section in memory. Reading takes 0.4 ns per byte, and five
 * times as long if its pages are written for the first time, as they mostly are. In a mapped file a
 * lookup takes hardly longer than in a section in memory.
 */
#define LAZY_COST	 256
#define LAZY_COST_MAPPED 64

/*
 * Return whether to look up a rule in the file without reading its section. If so, it is counted as
 * a reading of the call-frame information.
 */
static bool may_look_up_lazily(struct uw_object *o)
{
	unsigned int n;

	if (atomic_load_explicit(&o->eh_ready, memory_order_acquire))
		return false;
	if (!atomic_load_explicit(&o->lazy_fde_ready, memory_order_acquire)) {
		pthread_mutex_lock(&o->lock);
		if (!atomic_load_explicit(&o->lazy_fde_ready, memory_order_relaxed)) {
			struct uw_cfi bases = { .size = 0 };

			uw_object_bases(&o->elf, &bases);
			uw_lazy_fde_init(&o->lazy_fde, &o->elf, &bases);
			atomic_store_explicit(&o->lazy_fde_ready, true, memory_order_release);
		}
		pthread_mutex_unlock(&o->lock);
	}
	n = atomic_fetch_add_explicit(&o->n_lazy_fdes, 1, memory_order_relaxed);
	if (!o->lazy_fde.usable ||
	    n >= o->lazy_fde.frames_size / (o->lazy_fde.in_memory ? LAZY_COST_MAPPED : LAZY_COST))
		return false;
	atomic_fetch_add_explicit(&o->n_parsed, 1, memory_order_relaxed);
	return true;
}

/* Return whether another section may cover what .eh_frame does not. */
static bool has_other_frames(const struct uw_object *o)
{
	return uw_elf_section(&o->elf, ".debug_frame") ||
	       uw_elf_section(&o->elf, ".zdebug_frame") ||
	       uw_elf_section(&o->elf, ".gnu_debugdata") || o->is_go;
}

/* What is at an address: an FDE, or else the gap between FDEs. */
struct place {
	bool covered; /* fde covers the address; else gap is around it */
	struct uw_fde fde;
	struct uw_gap gap;
	const struct uw_cfi *cfi; /* the section of fde, or of the FDE before the gap */
};

/* Do the same as uw_object_frames, inline if the section has been read. */
static inline struct uw_frames *frames_of(struct uw_object *o, unsigned int i)
{
	const atomic_bool *ready = i == UW_FRAMES_EH ? &o->eh_ready : &o->debug_ready;

	return atomic_load_explicit(ready, memory_order_acquire) ? &o->frames[i]
								 : uw_object_frames(o, i);
}

/* Find the FDE around lookup, in all sections. -ENOENT: none has it. */
static int find_fde(struct uw_object *o, uint64_t lookup, struct place *out)
{
	int err = -ENOENT;

	atomic_fetch_add_explicit(&o->n_parsed, 1, memory_order_relaxed);
	out->covered = true;
	for (unsigned int i = 0; i < UW_FRAMES_N && err == -ENOENT; i++) {
		struct uw_frames *frames = frames_of(o, i);

		err = uw_frames_find(frames, lookup, &out->fde);
		out->cfi = &frames->cfi;
	}
	return err;
}

/* Begin with a gap that covers everything. */
static void start_gap(struct place *out)
{
	out->covered = false;
	out->gap = (struct uw_gap){ .end = UINT64_MAX };
	out->cfi = NULL;
}

/* Reduce the gap to its part that is also in *one, the gap of one more section. */
static void narrow_gap(struct place *out, const struct uw_gap *one, const struct uw_cfi *of)
{
	struct uw_gap *gap = &out->gap;

	if (one->has_before && (!gap->has_before || one->start > gap->start)) {
		gap->start = one->start;
		gap->before = one->before;
		gap->has_before = true;
		out->cfi = of;
	}
	if (one->end < gap->end)
		gap->end = one->end;
}

/*
 * Find the gap around lookup, all sections taken together. -ENOENT: a section has an FDE there
 * after all.
 */
static int find_gap(struct uw_object *o, uint64_t lookup, struct place *out)
{
	start_gap(out);
	atomic_fetch_add_explicit(&o->n_parsed, 1, memory_order_relaxed);
	for (unsigned int i = 0; i < UW_FRAMES_N; i++) {
		struct uw_frames *frames = frames_of(o, i);
		struct uw_gap one;
		int err = uw_frames_gap(frames, lookup, &one);

		if (err)
			return err;
		narrow_gap(out, &one, &frames->cfi);
	}
	return 0;
}

/* Find the FDE or the gap with one look at each section. -EAGAIN: this is not enough. */
static int look_once(struct uw_object *o, uint64_t lookup, struct place *out)
{
	int err = -ENOENT;

	start_gap(out);
	atomic_fetch_add_explicit(&o->n_parsed, 1, memory_order_relaxed);
	for (unsigned int i = 0; i < UW_FRAMES_N && err == -ENOENT; i++) {
		struct uw_frames *frames = frames_of(o, i);
		struct uw_gap one;

		err = uw_frames_look(frames, lookup, &out->fde, &one);
		if (!err) {
			out->covered = true;
			out->cfi = &frames->cfi;
		} else if (err == -ENOENT) {
			narrow_gap(out, &one, &frames->cfi);
		}
	}
	return err == -ENOENT ? 0 : err;
}

/* Find the FDE or the gap around lookup, all sections taken together. */
static int find_place(struct uw_object *o, uint64_t lookup, struct place *out)
{
	int err = look_once(o, lookup, out);

	if (err == -EAGAIN)
		err = find_fde(o, lookup, out);
	return err == -ENOENT ? find_gap(o, lookup, out) : err;
}

/* ---- rules from the code -------------------------------------------------------- */

bool uw_object_trampoline(const struct uw_object *o, uint64_t pc, bool exact, struct uw_rule *rule)
{
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;

	return !uw_object_code(o, pc, buffer, &code) && o->arch->signal(&code, exact, rule);
}

/*
 * Return whether pc may be in a PLT entry. Compilers and assemblers write the same jumps through
 * the GOT into ordinary code, where rsp need not point to a return address.
 */
static bool may_hold_plt(const struct uw_object *o, uint64_t pc)
{
	bool any = false;

	if (!o->arch->plt_places)
		return true;
	for (size_t i = 0; i < o->elf.n_sections; i++) {
		const Elf64_Shdr *s = &o->elf.sections[i];
		const char *name;

		if (!(s->sh_flags & SHF_EXECINSTR))
			continue;
		any = true;
		if (pc < s->sh_addr || pc - s->sh_addr >= s->sh_size)
			continue;
		name = uw_elf_section_name(&o->elf, s);
		return !strncmp(name, ".plt", 4) || !strcmp(name, ".iplt");
	}
	/* Without sections (an image in memory, for example), use the alignment of the entries. */
	return !any && o->arch->plt_places >> pc % 16 & 1;
}

bool uw_object_stub(const struct uw_object *o, uint64_t pc, struct uw_rule *rule)
{
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code code;

	return !uw_object_code(o, pc, buffer, &code) && o->arch->stub(&code, rule) &&
	       may_hold_plt(o, pc);
}

static bool is_in(const Elf64_Shdr *section, uint64_t vaddr)
{
	return section && vaddr >= section->sh_addr && vaddr - section->sh_addr < section->sh_size;
}

/*
 * Return the rule for code in .init or .fini. The linker joins these sections from pieces of many
 * files, so no FDE can cover them. They consist of crti's prologue, the pieces and crtn's epilogue.
 */
static bool init_rule(struct uw_object *o, uint64_t lookup, struct uw_rule *rule)
{
	const Elf64_Shdr *init = is_in(o->init, lookup) ? o->init : o->fini;
	uint8_t first[UW_CODE_BEFORE + UW_CODE_AFTER], here[UW_CODE_BEFORE + UW_CODE_AFTER];
	struct uw_code start, at;

	if (!is_in(init, lookup))
		return false;
	return !uw_object_code(o, init->sh_addr, first, &start) &&
	       !uw_object_code(o, lookup, here, &at) &&
	       o->arch->init(&start, &at, lookup - init->sh_addr, rule);
}

/*
 * Return whether lookup, which lies in a gap between FDEs, is in the function that begins at the
 * entry point.
 */
static bool in_entry(const struct uw_object *o, uint64_t lookup, const struct uw_gap *gap)
{
	uint64_t entry = o->entry, length = lookup - entry;
	uint8_t code[ENTRY_MAX + ENTRY_ALIGN];

	if (!entry || entry < gap->start || lookup < entry || length >= ENTRY_MAX)
		return false;
	if (!o->arch->begins_behind_entry)
		return gap->end < UINT64_MAX || length < ENTRY_UNBOUND_MAX;
	if (length && uw_object_read(o, entry, code, length))
		return false;
	/* The C library's other functions are close by, and they have callers. */
	for (uint64_t i = ENTRY_ALIGN - entry % ENTRY_ALIGN; i <= length; i += ENTRY_ALIGN)
		if (o->arch->begins_behind_entry(code, code + i))
			return false;
	return true;
}

/* Return whether lookup is in _start without CFI; nothing called it (psABI §3.4.1). */
static bool entry_rule(const struct uw_object *o, uint64_t lookup, const struct uw_gap *gap,
		       struct uw_rule *rule)
{
	if (!in_entry(o, lookup, gap))
		return false;
	*rule = (struct uw_rule){ .start = o->entry,
				  .end = lookup + 1,
				  .ra = o->arch->pc,
				  .stepper = UW_STEPPER_CFI,
				  .n_regs = 1,
				  .regs = { { .reg = o->arch->pc, .kind = UW_RULE_UNDEFINED } } };
	return true;
}

/*
 * Return whether a signal trampoline begins at end, where the FDE around lookup ends, and lookup
 * belongs to a return address there; then *out is the trampoline's rule. A handler "returns" to the
 * start of its trampoline, and no call ends just before that.
 */
static bool trampoline_at_end(const struct uw_object *o, uint64_t lookup, bool exact, uint64_t end,
			      struct uw_rule *out)
{
	return !exact && lookup + 1 == end && uw_object_trampoline(o, lookup + 1, false, out);
}

/*
 * For a signal frame, replace the rule by the one from the trampoline's code on architectures where
 * that is preferred (sigcontext_first).
 */
static void prefer_sigcontext(const struct uw_object *o, uint64_t lookup, bool exact,
			      struct uw_rule *out)
{
	if (out->signal && o->arch->sigcontext_first)
		(void)uw_object_trampoline(o, exact ? lookup : lookup + 1, exact, out);
}

/* ---- a rule from the file ------------------------------------------------------- */

/* Return the rule for lookup in place->fde. */
static int rule_in_fde(struct uw_object *o, uint64_t lookup, bool exact, const struct place *place,
		       struct uw_rule *out)
{
	int err;

	if (trampoline_at_end(o, lookup, exact, place->fde.end, out))
		return 0;
	err = uw_cfi_rule(place->cfi, &place->fde, lookup, out);
	if (!err)
		prefer_sigcontext(o, lookup, exact, out);
	return err;
}

/*
 * Return the rule for lookup in a gap. A short gap is padding, which belongs to the function before
 * it; then cfi is that function's section. -ENOENT: the code is not recognized.
 */
static int rule_in_gap(struct uw_object *o, uint64_t lookup, bool exact, const struct uw_gap *gap,
		       const struct uw_cfi *cfi, struct uw_rule *out)
{
	bool padding = gap->has_before && gap->end - gap->start < UW_PADDING_MAX;
	struct uw_fde fde;
	int err;

	/* If a pc is in a trampoline, the gap has room for all of the trampoline. */
	if (!(padding && exact && gap->end - gap->start < o->arch->trampoline_size) &&
	    uw_object_trampoline(o, exact ? lookup : lookup + 1, exact, out))
		return 0;
	if (padding) {
		err = uw_cfi_entry(cfi, gap->before, &fde, NULL);
		return err ? err : uw_cfi_rule(cfi, &fde, lookup, out);
	}
	if (entry_rule(o, lookup, gap, out) || init_rule(o, lookup, out))
		return 0;
	/* No call returns into a PLT entry, so pc must be exact. */
	return exact && uw_object_stub(o, lookup, out) ? 0 : -ENOENT;
}

/* Return the same rule as from the sections, but without reading them. -EAGAIN: read them. */
static int lazy_rule(struct uw_object *o, uint64_t lookup, bool exact, struct uw_rule *out)
{
	struct uw_gap gap = { .has_before = true };
	int err = uw_lazy_fde_rule(&o->lazy_fde, lookup, out, &gap.start, &gap.end);

	if (!err) {
		if (!trampoline_at_end(o, lookup, exact, gap.end, out))
			prefer_sigcontext(o, lookup, exact, out);
		return 0;
	}
	if (err != -ENOENT || gap.end - gap.start < UW_PADDING_MAX || has_other_frames(o))
		return -EAGAIN;
	return rule_in_gap(o, lookup, exact, &gap, NULL, out);
}

int uw_object_interpret(struct uw_object *object, uint64_t lookup, bool exact, struct uw_rule *out)
{
	const struct uw_procs *procs = procs_of(object);
	struct uw_gap gap = { .has_before = false };
	int err, known = -EAGAIN; /* 0: the ranges say that an FDE is there; -ENOENT: a gap */
	struct place place;

	if (procs)
		known = uw_procs_find(procs, lookup, &gap.start, &gap.end);
	if (!known && trampoline_at_end(object, lookup, exact, gap.end, out))
		return 0;
	/* What lies before the gap does not matter, unless the gap may be padding. */
	if (known == -ENOENT && (!gap.start || gap.end - gap.start >= UW_PADDING_MAX))
		return rule_in_gap(object, lookup, exact, &gap, NULL, out);
	if (known != -ENOENT && may_look_up_lazily(object)) {
		err = lazy_rule(object, lookup, exact, out);
		if (err != -EAGAIN)
			return err;
	}
	err = known == -ENOENT ? find_gap(object, lookup, &place)
			       : find_place(object, lookup, &place);
	if (err)
		return err;
	return place.covered ? rule_in_fde(object, lookup, exact, &place, out)
			     : rule_in_gap(object, lookup, exact, &place.gap, place.cfi, out);
}

/* ---- a rule --------------------------------------------------------------------- */

const struct uw_table *uw_object_table(const struct uw_object *object)
{
	const struct uw_compiled *compiled =
		atomic_load_explicit(&object->compiled, memory_order_acquire);

	return compiled ? &compiled->table : NULL;
}

/*
 * Return whether lookup is in a signal trampoline that has no FDE of its own, in the padding
 * between two FDEs or where one ends. Tables are compiled without looking at the code, so they do
 * not have such trampolines. Call this where the table's rows do not rule out both cases.
 */
static bool at_trampoline(const struct uw_object *o, uint64_t lookup, bool exact)
{
	struct uw_rule rule;

	return uw_object_trampoline(o, exact ? lookup : lookup + 1, exact, &rule);
}

int uw_object_rule(struct uw_object *object, uint64_t lookup, bool exact, struct uw_rule *out)
{
	const struct uw_table *table = uw_object_table(object);
	bool compiled =
		table && !uw_table_rule(table, lookup, out) &&
		(uw_table_inside(table, lookup, exact) || !at_trampoline(object, lookup, exact));
	int err = compiled ? 0 : uw_object_interpret(object, lookup, exact, out);

	if (!err)
		out->compiled = compiled;
	return err;
}

uint64_t uw_object_look(const struct uw_object *object, uint64_t lookup, bool exact, bool *inside)
{
	const struct uw_table *table = uw_object_table(object);

	*inside = false;
	return table ? uw_table_look(table, lookup, exact, inside) : TABLE_NONE;
}

int uw_object_packed_outside(struct uw_object *object, uint64_t lookup, bool exact,
			     uint64_t *packed, uint8_t *stepper, struct uw_rule *rule,
			     enum uw_rule_origin *from)
{
	struct uw_row row;
	int err;

	*stepper = UW_STEPPER_CFI;
	*from = UW_ORIGIN_STORED;
	if (uw_packed_kind(*packed) != TABLE_NONE && !at_trampoline(object, lookup, exact))
		return 0;
	*from = UW_ORIGIN_MADE;
	err = uw_object_interpret(object, lookup, exact, rule);
	if (err)
		return err;
	rule->compiled = false;
	*packed = uw_row_of(object->arch, rule, &row) ? TABLE_SLOW : row.packed;
	*stepper = rule->stepper;
	return 0;
}

int uw_object_packed(struct uw_object *object, uint64_t lookup, bool exact, uint64_t *packed,
		     uint8_t *stepper)
{
	struct uw_rule rule;
	enum uw_rule_origin from;
	bool inside;

	*packed = uw_object_look(object, lookup, exact, &inside);
	*stepper = UW_STEPPER_CFI;
	return inside ? 0
		      : uw_object_packed_outside(object, lookup, exact, packed, stepper, &rule,
						 &from);
}

/* ---- functions ------------------------------------------------------------------ */

/*
 * Return the range of the FDE around vaddr. The sections are read only if this cannot be avoided.
 */
static int find_function(struct uw_object *o, uint64_t vaddr, uint64_t *start, uint64_t *end)
{
	const struct uw_procs *procs = procs_of(o);
	struct place place;
	int err;

	if (procs) {
		err = uw_procs_find(procs, vaddr, start, end);
		if (!err || err == -ENOENT)
			return err;
	}
	if (may_look_up_lazily(o)) {
		err = uw_lazy_fde_range(&o->lazy_fde, vaddr, start, end);
		if (err != -EAGAIN && (err != -ENOENT || !has_other_frames(o)))
			return err;
	}
	err = find_fde(o, vaddr, &place);
	if (!err) {
		*start = place.fde.start;
		*end = place.fde.end;
	}
	return err;
}

bool uw_object_covers(struct uw_object *object, uint64_t vaddr)
{
	uint64_t start, end;

	return !find_function(object, vaddr, &start, &end);
}

int uw_object_function(struct uw_object *object, uint64_t vaddr, uint64_t *start, uint64_t *end)
{
	uint64_t from, to;
	int err = find_function(object, vaddr, &from, &to);

	if (!err) {
		*start = from;
		*end = to;
	}
	return err;
}

bool uw_object_begins(struct uw_object *object, uint64_t vaddr)
{
	uint8_t buffer[UW_CODE_BEFORE + UW_CODE_AFTER];
	const struct uw_table *table = uw_object_table(object);
	struct uw_rule rule;
	struct uw_code code;
	uint64_t start, end;

	/* Just before most return addresses, the calling function goes on: the table shows that. */
	if (vaddr % UW_ENTRY_ALIGN != 0 || (table && uw_table_inside(table, vaddr - 1, false)))
		return false;
	/* Check for a call before vaddr first: that is faster than looking up functions. */
	return !uw_object_code(object, vaddr, buffer, &code) &&
	       object->arch->after_call(&code).kind == UW_CALL_NONE &&
	       !find_function(object, vaddr, &start, &end) && start == vaddr &&
	       find_function(object, vaddr - 1, &start, &end) == -ENOENT &&
	       !object->arch->signal(&code, false, &rule);
}

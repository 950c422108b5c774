/*
 * unwinder/rule/go_rules.c: makes a .debug_frame section from Go's function table
 * (base/pclntab.h).
 *
 * Each function becomes an FDE. The table says at each pc how far sp has come down, which gives
 * the CFA and the return address. The function's code is read to find where its prologue saves
 * the frame pointer, and where a function that switches stacks makes calls.
 */
#include "unwinder/rule/go_rules.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/elf.h"
#include "base/elf_machine.h"
#include "base/pclntab.h"
#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfa_ops.h"
#include "unwinder/rule/object.h"

/* Maximum size of the table; the largest Go programs have some 100 MB. */
#define PCLN_SIZE_MAX	((uint64_t)256 << 20)
#define RELOCS_SIZE_MAX ((uint64_t)64 << 20)

/*
 * Maximum size of a frame: Go's largest one is that of reflection, 1 GB of arguments and a
 * little more.
 */
#define FRAME_MAX ((int64_t)1 << 31)

/* Some functions pop bytes that another one pushed: at most 8 × 63, which one byte can express. */
#define POPPED_MAX 504

/* How much code of a function that switches stacks is read. Such functions are short. */
#define SWITCH_MAX 4096

/*
 * How much code of any other function is read to find its prologue. The prologue follows the
 * check for room on the stack, which is long for frames of a page and more.
 */
#define PROLOGUE_MAX 96

/* How much code is read at once; the functions are in order of their addresses. */
#define WINDOW_SIZE ((size_t)256 << 10)

#define OP_BREG	    0x70 /* DWARF 5 §7.7.1 */
#define CIE_ID	    0xffffffffu
#define CIE_VERSION 3

enum caller {	     /* where the caller of a row is found */
	      BY_SP, /* at a known distance above sp */
	      BY_FP, /* by the frame pointer: sp is on another stack */
	      NOBODY,
};

struct frames {
	const struct uw_object *object;
	const struct uw_arch *arch;
	struct uw_pclntab table;
	uint8_t *data; /* owned */
	size_t size, room, most;
	bool has_flags; /* records have flags that mark functions without a caller (Go 1.17) */
	int err;
	uint8_t *window; /* owned; the code that was read last */
	uint64_t window_start, window_size;
	uint64_t may_read; /* how much more code may be read: functions may be out of order */
	/* The FDE that is being written: */
	uint64_t start;	     /* start of its function */
	const uint8_t *code; /* the function's first bytes; borrowed from the window */
	uint64_t code_size;
	/*
	 * Where its prologue has saved the frame pointer, and where it has set it; UINT64_MAX:
	 * nowhere.
	 */
	uint64_t fp_saved_from, fp_set_from;
	uint64_t at;   /* where its last row begins */
	int64_t frame; /* of the last row, as are the next two */
	enum caller caller;
	bool fp_saved;
};

/* ---- bytes ------------------------------------------------------------------------ */

/*
 * Append bytes to the section, unless there was an error before. The section may not become
 * larger than f->most.
 */
static void put(struct frames *f, const void *bytes, size_t size)
{
	if (f->err)
		return;
	if (size > f->most - f->size) {
		f->err = -EBADMSG; /* hostile: many functions share one long table */
		return;
	}
	if (size > f->room - f->size) {
		size_t room = 2 * f->room + size + 4096;
		uint8_t *data = realloc(f->data, room);

		if (!data) {
			f->err = -ENOMEM;
			return;
		}
		f->data = data;
		f->room = room;
	}
	memcpy(f->data + f->size, bytes, size);
	f->size += size;
}

/* Append a little-endian number of size bytes. */
static void put_number(struct frames *f, uint64_t value, size_t size)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
	put(f, bytes, size);
}

static void put_uleb(struct frames *f, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		put_number(f, (value & 0x7f) | 0x80, 1);
	put_number(f, value, 1);
}

/* Pad the entry that begins at start and fill in its length. */
static void finish(struct frames *f, size_t start)
{
	while (!f->err && (f->size - start) % 8)
		put_number(f, DW_CFA_nop, 1);
	for (size_t i = 0; !f->err && i < 4; i++)
		f->data[start + i] = (uint8_t)((f->size - start - 4) >> 8 * i);
}

/* ---- entries ------------------------------------------------------------------------ */

/* Return whether calls leave the return address in a register. */
static bool has_lr(const struct frames *f)
{
	return f->arch->lr != f->arch->pc;
}

/*
 * Append the CIE, which describes the stack as a call leaves it. The data alignment factor is
 * -8.
 */
static void put_cie(struct frames *f)
{
	const unsigned int sleb_minus_8 = 0x78;

	put_number(f, 0, 4);
	put_number(f, CIE_ID, 4);
	put_number(f, CIE_VERSION, 1);
	put_number(f, 0, 1); /* no augmentation */
	put_uleb(f, f->table.code_align);
	put_uleb(f, sleb_minus_8);
	put_uleb(f, f->arch->lr);
	put_number(f, DW_CFA_def_cfa, 1);
	put_uleb(f, f->arch->sp);
	put_uleb(f, has_lr(f) ? 0 : 8);
	if (!has_lr(f)) {
		put_number(f, DW_CFA_offset | f->arch->lr, 1);
		put_uleb(f, 1);
	}
	finish(f, 0);
}

/* Append an instruction that advances the location by so many bytes. */
static void put_advance(struct frames *f, uint64_t bytes)
{
	uint64_t units = bytes / f->table.code_align;

	if (units < 0x40) {
		put_number(f, DW_CFA_advance_loc | units, 1);
	} else if (units < 0x100) {
		put_number(f, DW_CFA_advance_loc1, 1);
		put_number(f, units, 1);
	} else if (units < 0x10000) {
		put_number(f, DW_CFA_advance_loc2, 1);
		put_number(f, units, 2);
	} else {
		put_number(f, DW_CFA_advance_loc4, 1);
		put_number(f, units, 4);
	}
}

/* Return CFA - frame pointer of a function whose frame has frame bytes. */
static int64_t from_fp(const struct frames *f, int64_t frame)
{
	return has_lr(f) ? frame + 8 : 16;
}

/* Append the block of an expression: the frame pointer + off. */
static void put_breg(struct frames *f, int64_t off)
{
	uint8_t sleb[10];
	size_t n = 0;

	for (; off >= 0x40 || off < -0x40; off >>= 7)
		sleb[n++] = (uint8_t)((off & 0x7f) | 0x80);
	sleb[n++] = (uint8_t)(off & 0x7f);
	put_uleb(f, n + 1);
	put_number(f, OP_BREG + f->arch->fp, 1);
	put(f, sleb, n);
}

/*
 * Append rules for a row on another stack: the CFA is the frame pointer + cfa, and the caller's
 * frame pointer is stored where the frame pointer points to. Expressions are used because the
 * stack that they lead to may lie below this one.
 */
static void put_by_fp(struct frames *f, int64_t cfa)
{
	put_number(f, DW_CFA_def_cfa_expression, 1);
	put_breg(f, cfa);
	put_number(f, DW_CFA_expression, 1);
	put_uleb(f, f->arch->fp);
	put_breg(f, 0);
}

/*
 * Append a row that begins at pc: sp has come down by frame bytes, or had before the function
 * switched to another stack. Only differences from the last row are written.
 */
static void put_row(struct frames *f, uint64_t pc, int64_t frame, enum caller caller)
{
	const enum caller before = f->caller;
	const int64_t cfa = frame + (has_lr(f) ? 0 : 8);
	/*
	 * On aarch64 and in rows without a frame, the frame pointer is stored below sp, where
	 * no rule may point to.
	 */
	const bool saved = caller == BY_FP || (!has_lr(f) && frame >= 8 && pc >= f->fp_saved_from);

	if (frame == f->frame && caller == before && saved == f->fp_saved)
		return;
	if (pc != f->at)
		put_advance(f, pc - f->at);
	if (caller == BY_FP) {
		put_by_fp(f, from_fp(f, frame));
	} else if (before == BY_FP) {
		put_number(f, DW_CFA_def_cfa, 1);
		put_uleb(f, f->arch->sp);
		put_uleb(f, (uint64_t)(cfa < 0 ? 0 : cfa));
	} else if (frame != f->frame) {
		put_number(f, cfa < 0 ? DW_CFA_def_cfa_offset_sf : DW_CFA_def_cfa_offset, 1);
		put_uleb(f, (uint64_t)(cfa < 0 ? -cfa / 8 : cfa)); /* unit: -8 */
	}
	if (caller != BY_FP && saved && (!f->fp_saved || before == BY_FP)) {
		put_number(f, DW_CFA_offset | f->arch->fp, 1);
		put_uleb(f, (uint64_t)from_fp(f, frame) / 8);
	} else if (!saved && f->fp_saved) {
		put_number(f, DW_CFA_restore | f->arch->fp, 1);
	}
	if (caller == NOBODY) {
		put_number(f, DW_CFA_undefined, 1);
		put_uleb(f, f->arch->lr);
	} else if (has_lr(f) && frame > 0) { /* lr is stored at [sp] */
		put_number(f, DW_CFA_offset | f->arch->lr, 1);
		put_uleb(f, (uint64_t)frame / 8);
	} else if (has_lr(f) || before == NOBODY) {
		put_number(f, DW_CFA_restore | f->arch->lr, 1);
	}
	f->at = pc;
	f->frame = frame;
	f->caller = caller;
	f->fp_saved = saved;
}

/*
 * Append the rows of a run of equal values: a second one begins where the prologue has saved
 * the frame pointer.
 */
static void put_run(struct frames *f, const struct uw_pclntab_run *run, enum caller caller)
{
	put_row(f, run->start, run->value, caller);
	if (f->fp_saved_from > run->start && f->fp_saved_from < run->end)
		put_row(f, f->fp_saved_from, run->value, caller);
}

/*
 * Append the rows of a function that switches to another stack and does not set up its frame
 * pointer. On the other stack the caller cannot be found by sp, and the function is there when
 * it makes a call: Go's own tracebacks end there too. Before the switch it has a caller like
 * any other function. Calls are found in its code.
 */
static void put_switching(struct frames *f, const struct uw_pclntab_run *run)
{
	const uint64_t step = f->table.code_align;

	put_row(f, run->start, run->value, BY_SP);
	for (uint64_t pc = run->start + step; pc <= run->end && pc - f->start <= f->code_size;
	     pc += step) {
		const uint64_t off = pc - f->start;
		const struct uw_code at = { .at = f->code + off,
					    .before = off < UW_CODE_BEFORE ? off : UW_CODE_BEFORE };

		if (f->arch->after_call(&at).kind == UW_CALL_NONE)
			continue;
		put_row(f, pc - step, run->value, NOBODY);
		if (pc < run->end)
			put_row(f, pc, run->value, BY_SP);
	}
}

/*
 * Return how many bytes at the end of a run follow the instruction that restores the frame
 * pointer: add $frame, %rsp or similar; 0 if there is none.
 */
static uint64_t given_back(const struct frames *f, const struct uw_pclntab_run *run)
{
	static const uint64_t lengths[] = { 4, 7 };
	static const uint8_t add[][3] = { { 0x48, 0x83, 0xc4 }, { 0x48, 0x81, 0xc4 } };
	const uint64_t off = run->end - f->start;

	if (off > f->code_size)
		return 0;
	if (has_lr(f))
		return run->end - run->start < 4 ? 0 : 4;
	for (unsigned int i = 0; i < 2; i++)
		if (run->end - run->start >= lengths[i] &&
		    !memcmp(f->code + off - lengths[i], add[i], sizeof(add[i])))
			return lengths[i];
	return 0;
}

/*
 * Append the rows of a function that switches to another stack but has its own frame pointer
 * throughout.
 */
static void put_switching_by_fp(struct frames *f, const struct uw_pclntab_run *run)
{
	const uint64_t end = run->end - given_back(f, run);
	const uint64_t from = run->start > f->fp_set_from ? run->start : f->fp_set_from;

	if (run->value < 8 || from >= end) {
		put_run(f, run, BY_SP);
		return;
	}
	if (from > run->start)
		put_run(f,
			&(struct uw_pclntab_run){
				.start = run->start, .end = from, .value = run->value },
			BY_SP);
	put_row(f, from, run->value, BY_FP);
	if (end < run->end)
		put_row(f, end, run->value, BY_SP);
}

/* ---- code ----------------------------------------------------------------------------- */

/*
 * Make the function's first bytes available in f->code, at most most of them. f->code_size is 0
 * if they cannot be read.
 */
static void read_code(struct frames *f, const struct uw_pclntab_function *function, uint64_t most)
{
	const uint64_t length = function->end - function->start;
	const uint64_t want = length < most ? length : most;

	f->start = function->start;
	f->code_size = 0;
	if (!f->window)
		f->window = malloc(WINDOW_SIZE);
	if (!f->window)
		return;
	if (f->start < f->window_start || f->start - f->window_start > f->window_size ||
	    want > f->window_size - (f->start - f->window_start)) {
		f->window_start = f->start;
		f->window_size = f->may_read >= WINDOW_SIZE ? WINDOW_SIZE : 0;
		f->may_read -= f->window_size;
		/* The segment may end before the window does. */
		while (f->window_size >= want && want &&
		       uw_object_read(f->object, f->start, f->window, f->window_size))
			f->window_size = f->window_size > want ? (f->window_size + want) / 2 : 0;
		if (f->window_size < want)
			f->window_size = 0;
	}
	if (f->window_size) {
		f->code = f->window + (f->start - f->window_start);
		f->code_size = want;
	}
}

/* Set where the frame pointer has been saved and set, as offsets from the instruction at off. */
static void set_fp_from(struct frames *f, uint64_t off, uint64_t saved, uint64_t set)
{
	f->fp_saved_from = f->start + off + saved;
	f->fp_set_from = f->start + off + set;
}

/*
 * Find where the prologue saves and sets the frame pointer: mov %rbp, off(%rsp); lea off(%rsp),
 * %rbp, or push %rbp; mov %rsp, %rbp.
 */
static void find_fp(struct frames *f)
{
	static const uint8_t mov8[] = { 0x48, 0x89, 0x6c, 0x24 },
			     lea8[] = { 0x48, 0x8d, 0x6c, 0x24 },
			     mov32[] = { 0x48, 0x89, 0xac, 0x24 },
			     lea32[] = { 0x48, 0x8d, 0xac, 0x24 },
			     push[] = { 0x55, 0x48, 0x89, 0xe5 },
			     sub[] = { 0xfd, 0x23, 0x00, 0xd1 }; /* sub x29, sp, #8 */
	const uint64_t size = f->code_size < PROLOGUE_MAX ? f->code_size : PROLOGUE_MAX;

	f->fp_saved_from = f->fp_set_from = UINT64_MAX;
	for (uint64_t i = 0; i + 4 <= size && f->fp_set_from == UINT64_MAX;
	     i += f->table.code_align) {
		const uint8_t *p = f->code + i;

		if (has_lr(f)) {
			if (!memcmp(p, sub, 4))
				set_fp_from(f, i, 0, 4);
		} else if (!memcmp(p, push, 4)) {
			set_fp_from(f, i, 1, 4);
		} else if (size - i >= 10 && !memcmp(p, mov8, 4) && !memcmp(p + 5, lea8, 4) &&
			   p[4] == p[9]) {
			set_fp_from(f, i, 5, 10);
		} else if (size - i >= 16 && !memcmp(p, mov32, 4) && !memcmp(p + 8, lea32, 4) &&
			   !memcmp(p + 4, p + 12, 4)) {
			set_fp_from(f, i, 8, 16);
		}
	}
}

/* ---- functions ------------------------------------------------------------------------ */

/*
 * Return whether the function is runtime.name. Names may have a suffix for the calling
 * convention (.abi0).
 */
static bool is_named(const struct uw_pclntab_function *function, const char *name)
{
	size_t length = strlen(name);

	return !strncmp(function->name, "runtime.", 8) &&
	       !strncmp(function->name + 8, name, length) &&
	       (!function->name[8 + length] || !strcmp(function->name + 8 + length, ".abi0"));
}

/* Return whether the function is one of runtime's functions with these names. */
static bool is_any(const struct uw_pclntab_function *function, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_named(function, names[i]))
			return true;
	return false;
}

/*
 * Return whether a function's frame pointer is useless after it has switched stacks: it belongs
 * to the other stack too, or to the caller.
 */
static bool goes_for_good(const struct uw_pclntab_function *function)
{
	static const char *const names[] = { "asmcgocall", "mcall", "morestack", "systemstack",
					     "clone" };

	return is_any(function, names, sizeof(names) / sizeof(names[0]));
}

/*
 * Return the function's flags: what is known of certain functions by name, otherwise what the
 * record says.
 */
static uint8_t flags_of(const struct frames *f, const struct uw_pclntab_function *function)
{
	static const char *const top[] = { "goexit", "rt0_go" };

	/*
	 * mstart, a thread's first function, has a caller: clone, or a C function that began
	 * the thread.
	 */
	if (is_named(function, "mstart"))
		return 0;
	/* The child of clone has a stack of its own, without a caller. */
	if (is_named(function, "clone"))
		return UW_PCLNTAB_SP_WRITE;
	/* sigtramp writes sp only to make room, and the table says how far sp has come down. */
	if (is_named(function, "sigtramp"))
		return 0;
	if (f->has_flags)
		return function->flags;
	return is_any(function, top, sizeof(top) / sizeof(top[0])) ? UW_PCLNTAB_TOP
	       : goes_for_good(function)			   ? UW_PCLNTAB_SP_WRITE
								   : 0;
}

/* Append the FDE of a function. Append nothing if its table has no usable value. */
static void put_fde(struct frames *f, const struct uw_pclntab_function *function)
{
	const uint8_t flags = flags_of(f, function);
	const bool leaves = !(flags & UW_PCLNTAB_TOP) && flags & UW_PCLNTAB_SP_WRITE;
	struct uw_pclntab_run run = uw_pclntab_runs(function->frame, function->start);
	const size_t start = f->size;
	bool by_fp;

	read_code(f, function, leaves ? SWITCH_MAX : PROLOGUE_MAX);
	find_fp(f);
	/* Rules by the frame pointer require that the rules of the callees recover it. */
	by_fp = f->fp_set_from != UINT64_MAX && !goes_for_good(function) &&
		!(has_lr(f) && is_named(function, "cgocallback"));
	put_number(f, 0, 4);
	put_number(f, 0, 4); /* the CIE */
	put_number(f, function->start, 8);
	put_number(f, 0, 8);
	f->at = function->start;
	f->frame = 0;
	f->caller = BY_SP;
	f->fp_saved = false;
	while (!f->err && uw_pclntab_next(&f->table, &run) && run.value >= -POPPED_MAX &&
	       run.value % 8 == 0 && run.value <= FRAME_MAX && run.end <= function->end &&
	       run.end > run.start) {
		if (leaves && by_fp)
			put_switching_by_fp(f, &run);
		else if (leaves && f->code_size)
			put_switching(f, &run);
		else
			put_run(f, &run, flags & UW_PCLNTAB_TOP ? NOBODY : BY_SP);
		run.start = run.end;
	}
	if (!f->err && run.start == function->start) {
		f->size = start; /* the function has no usable row */
		return;
	}
	for (size_t i = 0; !f->err && i < 8; i++)
		f->data[start + 16 + i] = (uint8_t)((run.start - function->start) >> 8 * i);
	finish(f, start);
}

/* ---- the table ------------------------------------------------------------------------------ */

/*
 * Return the section with the table, or NULL. If the C linker built a position-independent
 * executable, the table is a part of another section (*part) and must be searched for in it.
 */
static const Elf64_Shdr *section_of(const struct uw_elf *elf, bool *part)
{
	const Elf64_Shdr *section = uw_elf_section(elf, ".gopclntab");

	*part = false;
	if (!section)
		section = uw_elf_section(elf, ".data.rel.ro.gopclntab");
	if (!section && uw_elf_section(elf, ".go.buildinfo")) {
		section = uw_elf_section(elf, ".data.rel.ro");
		*part = true;
	}
	return section;
}

bool uw_gopclntab_is_in(const struct uw_elf *elf)
{
	bool part;

	return section_of(elf, &part) != NULL;
}

/*
 * Find the value that the loader would write at vaddr by a relocation that only adds the load
 * address. Return false if there is none.
 */
static bool find_relocated(const struct uw_elf *elf, uint64_t vaddr, uint64_t *value)
{
	const Elf64_Shdr *section = uw_elf_section(elf, ".rela.dyn");
	bool found = false;
	struct uw_bytes b;
	uint8_t *data;
	size_t size;

	if (!section)
		section = uw_elf_section(elf, ".rela"); /* as Go's own linker calls it */
	if (!section || uw_elf_section_read(elf, section, RELOCS_SIZE_MAX, &data, &size))
		return false;
	b = uw_bytes_of(data, size);
	while (!found && uw_bytes_left(&b) >= sizeof(Elf64_Rela)) {
		uint64_t off = uw_bytes_u64(&b), info = uw_bytes_u64(&b);

		*value = uw_bytes_u64(&b);
		found = off == vaddr && uw_machine_is_relative(elf->machine, info);
	}
	free(data);
	return found;
}

/* Find the start of the text, which functions' entries are relative to (see base/pclntab.h). */
static bool find_text(const struct uw_elf *elf, uint64_t vaddr, struct uw_pclntab *table)
{
	const Elf64_Shdr *text = uw_elf_section(elf, ".text");
	uint64_t start;

	if (!table->text_off || table->text)
		return true;
	if (find_relocated(elf, vaddr + table->text_off, &start)) {
		table->text = start;
		return true;
	}
	return text && uw_pclntab_guess_text(table, text->sh_addr, elf->entry);
}

int uw_gopclntab_frames(const struct uw_object *object, uint8_t **out, size_t *size)
{
	const struct uw_elf *elf = uw_object_elf(object);
	bool part;
	const Elf64_Shdr *section = section_of(elf, &part);
	struct frames f = { .object = object, .arch = uw_arch_of(elf->machine) };
	struct uw_pclntab_function function;
	uint64_t off;
	uint8_t *data;
	size_t data_size;
	int err;

	if (!section)
		return -ENOENT;
	err = uw_elf_section_read(elf, section, PCLN_SIZE_MAX, &data, &data_size);
	if (err)
		return err;
	f.most = data_size; /* Go's table is about three times as large as the section made of it */
	f.may_read = 2 * elf->source.size + 16 * WINDOW_SIZE;
	off = uw_pclntab_find(&f.table, data, data_size, part, f.arch->code_align);
	if (off == data_size || !find_text(elf, section->sh_addr + off, &f.table))
		f.err = -ENOTSUP;
	for (uint64_t i = 0; i < f.table.n && !f.err && !f.has_flags; i++)
		f.has_flags = uw_pclntab_at(&f.table, i, &function) && function.flags;
	put_cie(&f);
	for (uint64_t i = 0; i < f.table.n && !f.err; i++)
		if (uw_pclntab_at(&f.table, i, &function) && function.frame)
			put_fde(&f, &function);
	free(data);
	free(f.window);
	if (f.err) {
		free(f.data);
		return f.err;
	}
	*out = f.data;
	*size = f.size;
	return 0;
}

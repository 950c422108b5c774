/*
 * tests/diff/cfi_libdw.c: compares our rows with those of libdw, a reader of call frame information
 * that shares no code with ours.
 * It compares every row of every FDE of each file's .eh_frame and .debug_frame: bounds, CFA and all
 * registers, with the contents of expressions. Each row is also looked up through the object, as a
 * walk does.
 *   usage: cfi_libdw [-j N] [-s N] [-x EXCEPTIONS] [-o OVERLAPS] [-l COMPARED] < PATHS
 * -s N takes one path in N by a hash, so that the choice stays the same when other paths are added
 * or removed. Files that are not ELF64 programs or libraries of a supported machine are counted as
 * skipped. EXCEPTIONS is cfi_exceptions.md. OVERLAPS receives the paths of files with FDEs that
 * share addresses, of which libdw shows only the first; COMPARED receives the paths of all files
 * that were compared.
 *
 * libdw gets a private copy of each file without .eh_frame_hdr, so that it reads the section
 * itself: otherwise it would miss FDEs that are not in that table.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <dwarf.h>
#include <elfutils/libdw.h>

#include "unwinder/cfi/ehframe.h"
#include "unwinder/rule/object.h"

#define EXCEPTIONS_MAX	 10
#define SHOWN_PER_FILE	 5
#define SECONDS_PER_FILE 600
#define WORKERS_MAX	 64

/* The kinds of differences; each has one line in the summary. */
enum difference {
	DIFF_ENTRY,  /* the entries of the section: where FDEs begin */
	DIFF_REFUSE, /* we refuse what libdw reads */
	DIFF_ACCEPT, /* we read what libdw refuses */
	DIFF_BOUNDS, /* the bounds of a row */
	DIFF_CFA,
	DIFF_REGISTER,
	DIFF_SIGNAL, /* whether it is a signal frame, and the return address column */
	DIFF_LOOKUP, /* the row against our own look-up through the object */
	DIFF_CRASH,  /* of us or libdw */
	DIFF_N
};

static const char *const difference_name[DIFF_N] = { "entries", "refused here", "refused by libdw",
						     "bounds",	"cfa",		"register",
						     "signal",	"look-up",	"crash" };

/* Shared by the workers. */
struct total {
	atomic_ulong next, files, passed_over, without, fdes, rows, shared_rows, both_refuse;
	atomic_ulong excepted, differing_files, lookups;
	atomic_ulong differing[DIFF_N];
	atomic_ulong current[WORKERS_MAX]; /* 1 + the file a worker is at */
};

static struct total *total;
static char **paths;
static size_t n_paths;
static const char *overlaps_path, *compared_path;
static unsigned long one_in = 1;

static struct exception {
	char file[256];
	uint64_t fde;
} exceptions[EXCEPTIONS_MAX];
static size_t n_exceptions;

/* One section of one file under comparison. */
struct fde_range {
	uint64_t start, end, off;
};

struct compare {
	const char *path;
	struct uw_object *object;
	const struct uw_cfi *cfi;
	unsigned int section; /* UW_FRAMES_EH or UW_FRAMES_DEBUG */
	Dwarf_CFI *libdw;
	uint16_t machine;
	uint64_t last; /* where our rows ended */
	struct fde_range fde;
	bool fde_shared;
	struct fde_range *all; /* sorted by start */
	size_t n_all;
	unsigned int shown;
	bool differs, overlaps;
};

__attribute__((format(printf, 3, 4))) static int differ(struct compare *c, enum difference kind,
							const char *format, ...)
{
	char text[512], line[1024];
	va_list args;
	int n;

	for (size_t i = 0; i < n_exceptions; i++) {
		size_t have = strlen(c->path), want = strlen(exceptions[i].file);

		if (exceptions[i].fde == c->fde.off && have >= want &&
		    !strcmp(c->path + have - want, exceptions[i].file)) {
			total->excepted++;
			return -ECANCELED;
		}
	}
	total->differing[kind]++;
	c->differs = true;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	n = snprintf(line, sizeof(line), "%s: %s FDE %" PRIx64 ": %s: %s\n", c->path,
		     c->section ? ".debug_frame" : ".eh_frame", c->fde.off, difference_name[kind],
		     text);
	if (n > 0 && c->shown++ < SHOWN_PER_FILE)
		/* Write each line with one call: workers share the descriptor. */
		(void)!write(STDOUT_FILENO, line,
			     (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
	return -ECANCELED; /* for this FDE: one message is enough */
}

/* ---- expressions ------------------------------------------------------------ */

static uint64_t signed_of(uint64_t value, unsigned int bytes)
{
	unsigned int shift = 64 - 8 * bytes;

	return (uint64_t)((int64_t)(value << shift) >> shift);
}

/* The operands of one operation (DWARF 5 §7.7.1). */
static void operands(struct uw_bytes *b, uint8_t op, uint64_t out[2])
{
	out[0] = out[1] = 0;
	if (op >= DW_OP_breg0 && op <= DW_OP_breg31) {
		out[0] = (uint64_t)uw_bytes_sleb(b);
		return;
	}
	switch (op) {
	case DW_OP_const1u:
	case DW_OP_pick:
	case DW_OP_deref_size:
	case DW_OP_xderef_size:
		out[0] = uw_bytes_u8(b);
		break;
	case DW_OP_const1s:
		out[0] = signed_of(uw_bytes_u8(b), 1);
		break;
	case DW_OP_const2u:
		out[0] = uw_bytes_u16(b);
		break;
	case DW_OP_const2s:
	case DW_OP_bra:
	case DW_OP_skip:
		out[0] = signed_of(uw_bytes_u16(b), 2);
		break;
	case DW_OP_const4u:
		out[0] = uw_bytes_u32(b);
		break;
	case DW_OP_const4s:
		out[0] = signed_of(uw_bytes_u32(b), 4);
		break;
	case DW_OP_addr:
	case DW_OP_const8u:
	case DW_OP_const8s:
		out[0] = uw_bytes_u64(b);
		break;
	case DW_OP_constu:
	case DW_OP_plus_uconst:
	case DW_OP_regx:
		out[0] = uw_bytes_uleb(b);
		break;
	case DW_OP_consts:
	case DW_OP_fbreg:
		out[0] = (uint64_t)uw_bytes_sleb(b);
		break;
	case DW_OP_bregx:
		out[0] = uw_bytes_uleb(b);
		out[1] = (uint64_t)uw_bytes_sleb(b);
		break;
	default:
		break;
	}
}

/* Compare our bytes with libdw's operations: number, kind and place must be the same. */
static bool same_expr(const uint8_t *expr, uint32_t size, const Dwarf_Op *ops, size_t n)
{
	struct uw_bytes b = uw_bytes_of(expr, size);

	for (size_t i = 0; i < n; i++) {
		uint64_t off = (uint64_t)(b.pos - expr), want[2];
		uint8_t op = uw_bytes_u8(&b);

		operands(&b, op, want);
		if (b.err || ops[i].offset != off || ops[i].atom != op ||
		    ops[i].number != want[0] || ops[i].number2 != want[1])
			return false;
	}
	return uw_bytes_done(&b) && !b.err;
}

/* ---- one row ---------------------------------------------------------------- */

static bool same_cfa(const struct uw_rule *row, Dwarf_Frame *frame)
{
	Dwarf_Op *ops;
	size_t n;

	if (dwarf_frame_cfa(frame, &ops, &n))
		return false;
	if (row->cfa_size)
		return same_expr(row->cfa_expr, row->cfa_size, ops, n);
	if (n == 0) { /* not defined, as in an outermost frame */
		const struct uw_reg_rule *ra = uw_rule_reg(row, row->ra);

		return ra && ra->kind == UW_RULE_UNDEFINED;
	}
	return n == 1 && ops[0].atom == DW_OP_bregx && ops[0].number == row->cfa_reg &&
	       ops[0].number2 == (uint64_t)row->cfa_off;
}

/* [call_frame_cfa, plus_uconst off], the second only where off is not 0; then tail, if any. */
static bool is_cfa_plus(const Dwarf_Op *ops, size_t n, int64_t off, uint8_t tail)
{
	size_t want = 1u + (off != 0) + (tail != 0);

	return n == want && ops[0].atom == DW_OP_call_frame_cfa &&
	       (!off || (ops[1].atom == DW_OP_plus_uconst && ops[1].number == (uint64_t)off)) &&
	       (!tail || ops[n - 1].atom == tail);
}

/* libdw's rule of a register; kinds are ours, "expr" is anything else. */
static bool same_register(const struct uw_rule *row, const struct uw_reg_rule *r, unsigned int reg,
			  const Dwarf_Op *ops, size_t n, bool undefined)
{
	if (!r) {
		/* libdw adds the ABI's rules: callee-saved are the same, sp is the CFA. */
		return n == 0 ||
		       (reg == (row->ra == UW_X86_64_RIP ? UW_X86_64_RSP : UW_AARCH64_SP) &&
			is_cfa_plus(ops, n, 0, DW_OP_stack_value));
	}
	switch (r->kind) {
	case UW_RULE_SAME:
		return n == 0 && !undefined;
	case UW_RULE_UNDEFINED: /* or in a register that is not compared */
		return (n == 0 && undefined) ||
		       (n == 1 && ops[0].atom == DW_OP_regx && ops[0].number >= UW_REGS_MAX);
	case UW_RULE_AT_CFA:
		return is_cfa_plus(ops, n, r->off, 0);
	case UW_RULE_CFA_PLUS:
		return is_cfa_plus(ops, n, r->off, DW_OP_stack_value);
	case UW_RULE_REGISTER:
		return n == 1 && ops[0].atom == DW_OP_regx && ops[0].number == r->from;
	case UW_RULE_AT_EXPR:
		return n > 1 && ops[0].atom == DW_OP_call_frame_cfa &&
		       same_expr(r->expr, r->size, ops + 1, n - 1);
	default:
		return n > 2 && ops[0].atom == DW_OP_call_frame_cfa &&
		       ops[n - 1].atom == DW_OP_stack_value &&
		       same_expr(r->expr, r->size, ops + 1, n - 2);
	}
}

/* Return the first difference, or DIFF_N if there is none; *reg is the register. */
static enum difference compare_row(const struct compare *c, const struct uw_rule *row,
				   Dwarf_Frame *frame, unsigned int *reg)
{
	unsigned int n_regs = c->machine == EM_X86_64 ? UW_X86_64_REGS : UW_AARCH64_PC;
	bool signal;
	int ra = dwarf_frame_info(frame, NULL, NULL, &signal);

	if (ra != row->ra || signal != row->signal)
		return DIFF_SIGNAL;
	if (!same_cfa(row, frame))
		return DIFF_CFA;
	for (*reg = 0; *reg < n_regs; ++*reg) {
		Dwarf_Op room[3], *ops;
		size_t n;

		if (dwarf_frame_register(frame, (int)*reg, room, &ops, &n) ||
		    !same_register(row, uw_rule_reg(row, *reg), *reg, ops, n, ops == room))
			return DIFF_REGISTER;
	}
	return DIFF_N;
}

static bool same_rule(const struct uw_rule *a, const struct uw_rule *b)
{
	if (a->start != b->start || a->end != b->end || a->cfa_size != b->cfa_size ||
	    a->n_regs != b->n_regs || a->ra != b->ra || a->signal != b->signal ||
	    a->ra_signed != b->ra_signed)
		return false;
	if (a->cfa_size ? a->cfa_expr != b->cfa_expr
			: a->cfa_off != b->cfa_off || a->cfa_reg != b->cfa_reg)
		return false;
	for (int i = 0; i < a->n_regs; i++) {
		const struct uw_reg_rule *x = &a->regs[i], *y = &b->regs[i];

		if (x->reg != y->reg || x->kind != y->kind || x->size != y->size ||
		    x->from != y->from || x->off != y->off)
			return false;
	}
	return true;
}

static int look_up(struct compare *c, uint64_t lookup, const struct uw_rule *row)
{
	struct uw_rule rule;
	struct uw_fde fde;
	int err;

	/* .eh_frame has precedence; next come the rules made from Go's table. */
	for (unsigned int i = 0; i < c->section; i++)
		if (uw_frames_find(uw_object_frames(c->object, i), lookup, &fde) != -ENOENT)
			return 0;
	total->lookups++;
	err = uw_object_rule(c->object, lookup, true, &rule);
	/* Signal frames of aarch64 use the saved registers. */
	if (!err && (rule.stepper == UW_STEPPER_SIGNAL || same_rule(&rule, row)))
		return 0;
	return differ(c, DIFF_LOOKUP, "at %" PRIx64 ": %s", lookup,
		      err ? strerror(-err) : "another rule");
}

/*
 * Return whether one of the other FDEs that cover start has this row; libdw shows the first that it
 * reads.
 */
static bool matches_another(const struct compare *c, uint64_t start, Dwarf_Frame *frame)
{
	for (size_t i = 0; i < c->n_all && c->all[i].start <= start; i++) {
		struct uw_fde fde;
		struct uw_rule rule;
		unsigned int reg;

		if (c->all[i].end > start && !uw_cfi_entry(c->cfi, c->all[i].off, &fde, NULL) &&
		    !uw_cfi_rule(c->cfi, &fde, start, &rule) &&
		    compare_row(c, &rule, frame, &reg) == DIFF_N)
			return true;
	}
	return false;
}

static int check_row(void *ctx, uint64_t start, uint64_t end, const struct uw_rule *row)
{
	struct compare *c = ctx;
	Dwarf_Frame *frame = NULL;
	Dwarf_Addr from = 0, to = 0;
	enum difference kind;
	unsigned int reg = 0;
	int err = 0;

	total->rows++;
	c->last = end;
	if (dwarf_cfi_addrframe(c->libdw, start, &frame))
		return differ(c, DIFF_ACCEPT, "row %" PRIx64 ": libdw: %s", start,
			      dwarf_errmsg(-1));
	(void)dwarf_frame_info(frame, &from, &to, NULL);
	kind = compare_row(c, row, frame, &reg);
	/*
	 * After DW_CFA_restore_state, libdw's rows begin where the remembered row began. The ends
	 * are right: a row begins where the last one ended.
	 */
	if (kind == DIFF_N && (from > start || to != end))
		kind = DIFF_BOUNDS;
	if (c->fde_shared) {
		total->shared_rows++;
		if (kind != DIFF_N && !matches_another(c, start, frame))
			err = differ(c, kind, "row %" PRIx64 ", of FDEs that share it", start);
	} else if (kind != DIFF_N) {
		err = differ(c, kind,
			     "row %" PRIx64 "..%" PRIx64 ", libdw %" PRIx64 "..%" PRIx64
			     ", register %u",
			     start, end, (uint64_t)from, (uint64_t)to, reg);
	} else {
		err = look_up(c, start, row);
		if (!err && end - 1 != start)
			err = look_up(c, end - 1, row);
	}
	free(frame);
	return err;
}

/* ---- one section ------------------------------------------------------------ */

static void check_fde(struct compare *c, const struct uw_fde *fde)
{
	Dwarf_Frame *frame = NULL;
	int err;

	c->last = fde->start;
	err = uw_cfi_rows(c->cfi, fde, check_row, c);
	if (!err || err == -ECANCELED)
		return;
	if (dwarf_cfi_addrframe(c->libdw, c->last, &frame)) {
		total->both_refuse++;
		return;
	}
	free(frame);
	(void)differ(c, DIFF_REFUSE, "at %" PRIx64 ": %s", c->last, strerror(-err));
}

static int by_start(const void *a, const void *b)
{
	const struct fde_range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* Compare libdw's entries with ours: FDEs must have the same offsets. Collect ours. */
static int collect(struct compare *c)
{
	const unsigned char ident[EI_NIDENT] = { 0x7f,	     'E',	  'L',	     'F',
						 ELFCLASS64, ELFDATA2LSB, EV_CURRENT };
	Elf_Data data = { .d_buf = (void *)c->cfi->data,
			  .d_size = c->cfi->size,
			  .d_type = ELF_T_BYTE,
			  .d_version = EV_CURRENT };
	size_t room = 0;

	for (uint64_t off = 0, next; off < c->cfi->size; off = next) {
		struct uw_fde fde;
		Dwarf_CFI_Entry entry;
		Dwarf_Off libdw_next = 0;
		int theirs = dwarf_next_cfi(ident, &data, !c->section, off, &libdw_next, &entry);
		int ours;

		next = off;
		ours = uw_cfi_entry(c->cfi, off, &fde, &next);
		c->fde = (struct fde_range){ .off = off };
		if (next <= off)
			break;
		if (theirs == 0 && !dwarf_cfi_cie_p(&entry) && ours)
			(void)differ(c, DIFF_ENTRY, "an FDE to libdw, here %s", strerror(-ours));
		if (!ours && (theirs || dwarf_cfi_cie_p(&entry)))
			(void)differ(c, DIFF_ENTRY, "an FDE, to libdw none");
		if (ours)
			continue;
		total->fdes++;
		if (fde.end == fde.start)
			continue;
		if (c->n_all == room) {
			struct fde_range *all;

			room = room ? room * 2 : 1024;
			all = realloc(c->all, room * sizeof(*all));
			if (!all)
				return -ENOMEM;
			c->all = all;
		}
		c->all[c->n_all++] = (struct fde_range){ fde.start, fde.end, off };
	}
	if (c->n_all)
		qsort(c->all, c->n_all, sizeof(*c->all), by_start);
	return 0;
}

static void check_section(struct compare *c)
{
	uint64_t reach = 0;

	c->all = NULL;
	c->n_all = 0;
	if (collect(c)) {
		(void)differ(c, DIFF_CRASH, "out of memory");
		return;
	}
	for (size_t i = 0; i < c->n_all; i++) {
		struct uw_fde fde;

		c->fde = c->all[i];
		c->fde_shared = c->fde.start < reach ||
				(i + 1 < c->n_all && c->all[i + 1].start < c->fde.end);
		c->overlaps |= c->fde_shared;
		if (c->fde.end > reach)
			reach = c->fde.end;
		if (!uw_cfi_entry(c->cfi, c->fde.off, &fde, NULL))
			check_fde(c, &fde);
	}
	free(c->all);
}

/* ---- one file --------------------------------------------------------------- */

/* Hide the search table from libdw, in a private copy. */
static void hide_table(uint8_t *image, size_t size)
{
	Elf64_Ehdr *ehdr = (Elf64_Ehdr *)image;
	Elf64_Phdr *phdrs = (Elf64_Phdr *)(image + ehdr->e_phoff);
	Elf64_Shdr *shdrs = (Elf64_Shdr *)(image + ehdr->e_shoff);
	const Elf64_Shdr *names;

	if (ehdr->e_shoff >= size || (size - ehdr->e_shoff) / sizeof(*shdrs) < ehdr->e_shnum ||
	    ehdr->e_shstrndx >= ehdr->e_shnum || ehdr->e_shoff % 8)
		return;
	names = &shdrs[ehdr->e_shstrndx];
	if (names->sh_offset >= size || names->sh_size > size - names->sh_offset)
		return;
	for (unsigned int i = 0; i < ehdr->e_shnum; i++)
		if (shdrs[i].sh_name < names->sh_size &&
		    !strncmp((const char *)image + names->sh_offset + shdrs[i].sh_name,
			     ".eh_frame_hdr", names->sh_size - shdrs[i].sh_name))
			shdrs[i].sh_name = 0;
	if (ehdr->e_phoff >= size || (size - ehdr->e_phoff) / sizeof(*phdrs) < ehdr->e_phnum ||
	    ehdr->e_phoff % 8)
		return;
	for (unsigned int i = 0; i < ehdr->e_phnum; i++)
		if (phdrs[i].p_type == PT_GNU_EH_FRAME)
			phdrs[i].p_type = PT_NULL;
}

static bool wanted(const uint8_t *image, size_t size)
{
	const Elf64_Ehdr *ehdr = (const Elf64_Ehdr *)image;

	return size >= sizeof(*ehdr) && !memcmp(image, ELFMAG, SELFMAG) &&
	       image[EI_CLASS] == ELFCLASS64 && image[EI_DATA] == ELFDATA2LSB &&
	       (ehdr->e_type == ET_EXEC || ehdr->e_type == ET_DYN) &&
	       (ehdr->e_machine == EM_X86_64 || ehdr->e_machine == EM_AARCH64);
}

static void note(const char *list, const char *path)
{
	char line[4096];
	int fd = open(list, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	int n = snprintf(line, sizeof(line), "%s\n", path);

	if (fd >= 0) {
		(void)!write(fd, line, (size_t)n);
		close(fd);
	}
}

static void check_image(struct compare *c, uint8_t *image, size_t size)
{
	Elf *elf = elf_memory((char *)image, size);
	Dwarf *dwarf = NULL;
	Dwarf_CFI *eh = NULL;
	bool any = false;

	for (c->section = UW_FRAMES_EH; c->section <= UW_FRAMES_DEBUG;
	     c->section += UW_FRAMES_DEBUG - UW_FRAMES_EH) {
		c->cfi = &uw_object_frames(c->object, c->section)->cfi;
		if (!c->cfi->size)
			continue;
		any = true;
		if (c->section)
			c->libdw = (dwarf = dwarf_begin_elf(elf, DWARF_C_READ, NULL))
					   ? dwarf_getcfi(dwarf)
					   : NULL;
		else
			c->libdw = eh = dwarf_getcfi_elf(elf);
		c->fde = (struct fde_range){ .off = 0 };
		if (c->libdw)
			check_section(c);
		else
			(void)differ(c, DIFF_ACCEPT, "libdw sees no such section: %s",
				     dwarf_errmsg(-1));
	}
	total->without += !any;
	if (eh)
		(void)dwarf_cfi_end(eh);
	if (dwarf)
		(void)dwarf_end(dwarf);
	(void)elf_end(elf);
}

static void check_file(const char *path)
{
	struct compare c = { .path = path };
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	uint8_t *image = MAP_FAILED;
	struct stat st;
	int err;

	if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) ||
	    st.st_size < (off_t)sizeof(Elf64_Ehdr))
		goto out;
	image = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (image == MAP_FAILED || !wanted(image, (size_t)st.st_size))
		goto out;
	total->files++;
	c.machine = ((const Elf64_Ehdr *)image)->e_machine;
	err = uw_object_open(fd, 0, &c.object);
	if (err) {
		(void)differ(&c, DIFF_REFUSE, "the file: %s", strerror(-err));
	} else {
		hide_table(image, (size_t)st.st_size);
		check_image(&c, image, (size_t)st.st_size);
		uw_object_put(c.object);
	}
	total->differing_files += c.differs;
	if (c.overlaps && overlaps_path)
		note(overlaps_path, path);
	if (compared_path)
		note(compared_path, path);
out:
	if (!c.machine)
		total->passed_over++;
	if (image != MAP_FAILED)
		(void)munmap(image, (size_t)st.st_size);
	if (fd >= 0)
		close(fd);
}

/* ---- all of them -------------------------------------------------------------- */

static _Noreturn void work(unsigned int worker)
{
	for (;;) {
		unsigned long i = total->next++;

		if (i >= n_paths)
			_exit(0);
		total->current[worker] = i + 1;
		(void)alarm(SECONDS_PER_FILE);
		check_file(paths[i]);
		total->current[worker] = 0;
	}
}

static pid_t start(unsigned int worker)
{
	pid_t pid = fork();

	if (pid == 0)
		work(worker);
	return pid;
}

/* If a file kills a worker, that is a finding, and the others continue. */
static void supervise(unsigned int n_workers)
{
	pid_t pids[WORKERS_MAX];
	bool tty = isatty(STDERR_FILENO);
	unsigned int left = n_workers;

	for (unsigned int i = 0; i < n_workers; i++)
		pids[i] = start(i);
	while (left) {
		int status;
		pid_t pid = waitpid(-1, &status, tty ? WNOHANG : 0);

		if (pid == 0) {
			(void)fprintf(stderr, "\r%lu of %zu files, %lu FDEs, %lu rows ",
				      (unsigned long)total->next, n_paths,
				      (unsigned long)total->fdes, (unsigned long)total->rows);
			(void)nanosleep(&(struct timespec){ .tv_nsec = 250000000 }, NULL);
			continue;
		}
		if (pid < 0)
			break;
		for (unsigned int i = 0; i < n_workers; i++) {
			unsigned long at = total->current[i];

			if (pids[i] != pid)
				continue;
			if (!at) {
				left--;
				break;
			}
			(void)printf("%s: ended by signal %d\n", paths[at - 1], WTERMSIG(status));
			(void)fflush(stdout);
			total->differing[DIFF_CRASH]++;
			total->differing_files++;
			total->current[i] = 0;
			pids[i] = start(i);
			break;
		}
	}
	if (tty)
		(void)fputs("\r\033[K", stderr);
}

/* Rows of a table: | `file` | `FDE` | reason | */
static int read_exceptions(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[4096];
	int err = 0;

	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		struct exception e;

		if (sscanf(line, "| `%255[^`]` | `%" SCNx64 "` | %*s", e.file, &e.fde) != 2)
			continue;
		if (n_exceptions == EXCEPTIONS_MAX)
			err = -E2BIG;
		else
			exceptions[n_exceptions++] = e;
	}
	(void)fclose(file);
	return err;
}

/* FNV-1a without the low bits, which are not mixed well. */
static uint32_t hash_of(const char *text)
{
	uint32_t hash = 2166136261u;

	while (*text)
		hash = (hash ^ (uint8_t)*text++) * 16777619u;
	return hash >> 8;
}

static int read_paths(void)
{
	size_t room = 0, size = 0;
	char *line = NULL;
	ssize_t n;

	while ((n = getline(&line, &size, stdin)) > 0) {
		if (line[n - 1] == '\n')
			line[n - 1] = '\0';
		if (hash_of(line) % one_in)
			continue;
		if (n_paths == room) {
			room = room ? room * 2 : 4096;
			paths = reallocarray(paths, room, sizeof(*paths));
			if (!paths)
				return -ENOMEM;
		}
		paths[n_paths] = strdup(line);
		if (!paths[n_paths++])
			return -ENOMEM;
	}
	free(line);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned long n_workers = (unsigned long)sysconf(_SC_NPROCESSORS_ONLN), differing = 0;
	struct timespec began, ended;
	int option, err = 0;

	while ((option = getopt(argc, argv, "j:s:x:o:l:")) != -1) {
		switch (option) {
		case 'j':
			n_workers = strtoul(optarg, NULL, 10);
			break;
		case 's':
			one_in = strtoul(optarg, NULL, 10);
			err = one_in ? 0 : -EINVAL;
			break;
		case 'x':
			err = read_exceptions(optarg);
			break;
		case 'l':
			compared_path = optarg;
			break;
		case 'o':
			overlaps_path = optarg;
			break;
		default:
			return 2;
		}
		if (err) {
			(void)fprintf(stderr, "%s: %s\n", optarg, strerror(-err));
			return 2;
		}
	}
	n_workers = n_workers < 1 ? 1 : n_workers > WORKERS_MAX ? WORKERS_MAX : n_workers;
	total = mmap(NULL, sizeof(*total), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (total == MAP_FAILED || read_paths())
		return 1;
	(void)elf_version(EV_CURRENT);
	(void)clock_gettime(CLOCK_MONOTONIC, &began);
	supervise((unsigned int)n_workers);
	(void)clock_gettime(CLOCK_MONOTONIC, &ended);

	for (int i = 0; i < DIFF_N; i++) {
		differing += total->differing[i];
		if (total->differing[i])
			(void)printf("%lu FDEs differ: %s\n", (unsigned long)total->differing[i],
				     difference_name[i]);
	}
	(void)printf(
		"%lu files (%lu without, %lu paths passed over), %lu FDEs, %lu rows, %lu look-ups "
		"in %.1f s\n",
		(unsigned long)total->files, (unsigned long)total->without,
		(unsigned long)total->passed_over, (unsigned long)total->fdes,
		(unsigned long)total->rows, (unsigned long)total->lookups,
		(double)(ended.tv_sec - began.tv_sec) +
			(double)(ended.tv_nsec - began.tv_nsec) / 1e9);
	(void)printf("%lu rows of FDEs that share addresses, %lu FDEs refused by both, %lu of %zu "
		     "exceptions\n",
		     (unsigned long)total->shared_rows, (unsigned long)total->both_refuse,
		     (unsigned long)total->excepted, n_exceptions);
	(void)printf("%lu FDEs of %lu files differ\n", differing,
		     (unsigned long)total->differing_files);
	return differing != 0 || total->rows == 0;
}

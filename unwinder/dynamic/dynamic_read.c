/*
 * unwinder/dynamic/dynamic_read.c: reads the lists of generated code out of a process's memory.
 *
 * The lists are those of libunwind-dynamic(3), with the structures of libunwind 1.6
 * (libunwind-dynamic.h), and of GDB's JIT interface ("JIT Compilation Interface" in its
 * manual). The process may be hostile and may write while it is read. Everything that is read
 * is therefore charged to a budget of DYNAMIC_LISTS_MAX bytes, which also limits the length of
 * each chain.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/checksum.h"
#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"
#include "unwinder/dynamic/dynamic.h"

/* Maximum length of a name, in bytes; longer names are cut. */
#define NAME_MAX_SIZE 512
/* How many elements of the lists are visited: elements without use cost time too. */
#define VISITS_MAX 65536
/* How often the lists are read if the process writes to them meanwhile. */
#define ATTEMPTS 3

/* The state of one reading of all lists. */
struct reading {
	const struct uw_arch *arch;
	uw_read_fn read;
	void *ctx;
	size_t room; /* bytes left in the budget */
	size_t visits;
	uint32_t flags;
	struct dynamic_proc *procs; /* data and name are relative to data until put_together */
	size_t n_procs, procs_room;
	uint8_t *data;
	size_t n_data, data_room;
	int err; /* the first -ENOMEM */
};

/* ---- the process's memory --------------------------------------------------------------- */

/* Read the process's memory. On failure, mark the result as damaged and return false. */
static bool fetch(struct reading *r, uint64_t addr, void *out, size_t size)
{
	if (!addr || addr > UINT64_MAX - size || r->read(r->ctx, addr, out, size)) {
		r->flags |= DYNAMIC_DAMAGED;
		return false;
	}
	return true;
}

/* Decode a little-endian number of 4 or 8 bytes. */
static uint64_t little(const uint8_t *p, unsigned int size)
{
	struct uw_bytes b = uw_bytes_of(p, size);

	return size == 8 ? uw_bytes_u64(&b) : uw_bytes_u32(&b);
}

/* ---- stored data -------------------------------------------------------------------------- */

/* Charge size bytes to the budget. Return false, and mark the result as cut, if it is exhausted. */
static bool spend(struct reading *r, size_t size)
{
	if (r->err || size > r->room) {
		r->flags |= DYNAMIC_CUT;
		return false;
	}
	r->room -= size;
	return true;
}

/*
 * Allocate size bytes of data, aligned to 8, and set *off to their offset. Return NULL if the
 * budget is exhausted or there is no memory.
 */
static uint8_t *keep(struct reading *r, size_t size, uint32_t *off)
{
	size_t at = (r->n_data + 7) & ~(size_t)7, want = at + size;
	uint8_t *more;

	if (!spend(r, size + 8))
		return NULL;
	if (want > r->data_room) {
		more = realloc(r->data, 2 * want);
		if (!more) {
			r->err = -ENOMEM;
			return NULL;
		}
		r->data = more;
		r->data_room = 2 * want;
	}
	memset(r->data + r->n_data, 0, at - r->n_data);
	r->n_data = want;
	*off = (uint32_t)at;
	return r->data + at;
}

/*
 * Add a procedure; an empty one is skipped and marks the result as damaged. Return false if no
 * more procedures can be added.
 */
static bool add_proc(struct reading *r, const struct dynamic_proc *proc)
{
	struct dynamic_proc *more;

	if (proc->start >= proc->end) {
		r->flags |= DYNAMIC_DAMAGED;
		return true;
	}
	if (!spend(r, sizeof(*proc)))
		return false;
	if (r->n_procs == r->procs_room) {
		r->procs_room = r->procs_room ? 2 * r->procs_room : 64;
		more = reallocarray(r->procs, r->procs_room, sizeof(*more));
		if (!more) {
			r->err = -ENOMEM;
			return false;
		}
		r->procs = more;
	}
	r->procs[r->n_procs++] = *proc;
	return true;
}

/* Store a name and set *off to its offset + 1, so that 0 means that there is none. */
static void keep_name(struct reading *r, const char *name, size_t size, uint32_t *off)
{
	uint8_t *to;

	*off = 0;
	if (!size)
		return;
	to = keep(r, size + 1, off);
	if (!to)
		return;
	memcpy(to, name, size);
	to[size] = 0;
	++*off;
}

/* Read and store the NUL-terminated name at addr. */
static void read_name(struct reading *r, uint64_t addr, uint32_t *off)
{
	char name[NAME_MAX_SIZE];
	size_t size = 0;

	*off = 0;
	if (!addr)
		return;
	/* Read pieces that do not cross a page: the memory behind the name may be unmapped. */
	while (size < sizeof(name)) {
		size_t piece = 64 - (addr + size) % 64;
		const char *end;

		if (piece > sizeof(name) - size)
			piece = sizeof(name) - size;
		if (!fetch(r, addr + size, name + size, piece))
			return;
		end = memchr(name + size, 0, piece);
		if (end) {
			size = (size_t)(end - name);
			break;
		}
		size += piece;
	}
	keep_name(r, name, size, off);
}

/* ---- procedures with regions ----------------------------------------------------------- */

/* Order operations by when, then by their original index, which the sort keys hold in val. */
static int by_when(const void *a, const void *b)
{
	const struct dynamic_op *x = a, *y = b;

	if (x->when != y->when)
		return x->when < y->when ? -1 : 1;
	return x->val < y->val ? -1 : x->val > y->val; /* the original index */
}

/*
 * Sort the operations of a region by the instruction at which they take effect (when).
 * Operations with the same when keep their order. -1 stands for the region's entry.
 */
static void sort_ops(struct dynamic_op *ops, uint32_t n)
{
	struct dynamic_op copy[UW_DYNAMIC_OPS], keys[UW_DYNAMIC_OPS];
	bool sorted = true;

	for (uint32_t i = 1; i < n && sorted; i++)
		sorted = ops[i - 1].when <= ops[i].when;
	if (sorted)
		return;
	for (uint32_t i = 0; i < n; i++) {
		copy[i] = ops[i];
		keys[i] = (struct dynamic_op){ .when = ops[i].when, .val = i };
	}
	qsort(keys, n, sizeof(*keys), by_when);
	for (uint32_t i = 0; i < n; i++)
		ops[i] = copy[keys[i].val];
}

/* Return the number of operations before the one that ends the list (OP_STOP, tag 0). */
static uint32_t count_ops(const struct dynamic_op *ops, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && ops[i].tag)
		i++;
	return i;
}

/*
 * Read the chain of regions at addr and store it as the data of proc. Return false if it is
 * damaged or cannot be read.
 */
static bool read_regions(struct reading *r, uint64_t addr, struct dynamic_proc *proc)
{
	struct dynamic_op ops[UW_DYNAMIC_OPS];
	unsigned int n = 0, n_ops = 0;
	uint8_t head[16];

	proc->kind = DYNAMIC_REGIONS;
	for (; addr; addr = little(head, 8)) {
		struct dynamic_region region;
		uint8_t *to;
		uint32_t at;

		if (++n > UW_DYNAMIC_REGIONS || !fetch(r, addr, head, sizeof(head)))
			return false;
		memcpy(&region, head + 8, sizeof(region));
		if (region.op_count > UW_DYNAMIC_OPS - n_ops ||
		    (region.op_count &&
		     !fetch(r, addr + sizeof(head), ops, region.op_count * sizeof(*ops))))
			return false;
		region.op_count = count_ops(ops, region.op_count);
		n_ops += region.op_count;
		sort_ops(ops, region.op_count);
		to = keep(r, sizeof(region) + region.op_count * sizeof(*ops), &at);
		if (!to)
			return false;
		memcpy(to, &region, sizeof(region));
		memcpy(to + sizeof(region), ops, region.op_count * sizeof(*ops));
		if (!proc->size)
			proc->data = at;
		proc->size = (uint32_t)r->n_data - proc->data;
		/*
		 * Only the last region may count from the procedure's end
		 * (libunwind-dynamic(3)).
		 */
		if (region.insn_count < 0 && little(head, 8))
			return false;
	}
	return true;
}

/* ---- procedures with FDEs -------------------------------------------------------------------- */

/*
 * Read the header of the CIE or FDE at addr. Set *end to its end, and *cie to the address of an
 * FDE's CIE or to 0 for a CIE.
 */
static bool read_entry(struct reading *r, uint64_t addr, uint64_t *end, uint64_t *cie)
{
	uint8_t head[8];
	uint32_t size, id;

	if (!fetch(r, addr, head, sizeof(head)))
		return false;
	size = (uint32_t)little(head, 4);
	id = (uint32_t)little(head + 4, 4);
	/* The 64-bit form is not accepted: no entry of a table that fits the budget needs it. */
	if (size < 4 || size > DYNAMIC_LISTS_MAX) {
		r->flags |= DYNAMIC_DAMAGED;
		return false;
	}
	*end = addr + 4 + size;
	*cie = id ? addr + 4 - id : 0;
	return true;
}

/* A range of addresses. */
struct span {
	uint64_t start, end;
};

static void widen(struct span *span, uint64_t start, uint64_t end)
{
	if (start < span->start)
		span->start = start;
	if (end > span->end)
		span->end = end;
}

/*
 * A sorted table of pairs of 32-bit offsets from base addresses: where code begins, and where
 * its FDE is.
 */
struct fde_table {
	uint64_t data, n; /* entries */
	uint64_t ip_base, fde_base;
	uint64_t bias; /* added to the addresses in FDEs */
	uint64_t start, end;
	uint32_t name;
};

/*
 * Read a table, store the bytes from its first to its last CIE or FDE, and add a procedure for
 * each FDE. Return false, and mark the result as damaged, if that fails.
 */
static bool read_table(struct reading *r, const struct fde_table *t)
{
	struct span span = { .start = UINT64_MAX };
	struct uw_cfi cfi = { .eh = true };
	uint8_t *pairs, *block;
	uint32_t at = 0;
	bool good = true;

	if (!spend(r, t->n < DYNAMIC_LISTS_MAX ? (size_t)t->n * 8 : SIZE_MAX))
		return false;
	pairs = malloc((size_t)t->n * 8 + 1);
	if (!pairs) {
		r->err = -ENOMEM;
		return false;
	}
	good = !t->n || fetch(r, t->data, pairs, (size_t)t->n * 8);
	for (uint64_t i = 0; i < t->n && good; i++) {
		uint64_t fde =
			t->fde_base + (uint64_t)(int64_t)(int32_t)little(pairs + 8 * i + 4, 4);
		uint64_t end, cie, cie_end, none;

		good = read_entry(r, fde, &end, &cie) && cie &&
		       read_entry(r, cie, &cie_end, &none) && !none;
		if (good) {
			widen(&span, fde, end);
			widen(&span, cie, cie_end);
		}
	}
	block = good && span.end > span.start && span.end - span.start <= DYNAMIC_LISTS_MAX
			? keep(r, (size_t)(span.end - span.start), &at)
			: NULL;
	good = block && fetch(r, span.start, block, (size_t)(span.end - span.start));
	cfi.data = block;
	cfi.size = (size_t)(span.end - span.start);
	cfi.vaddr = span.start;
	for (uint64_t i = 0; i < t->n && good; i++) {
		uint64_t fde_at =
			t->fde_base + (uint64_t)(int64_t)(int32_t)little(pairs + 8 * i + 4, 4);
		struct dynamic_proc proc = { .kind = DYNAMIC_FDE,
					     .bias = t->bias,
					     .base = span.start,
					     .data = at,
					     .size = (uint32_t)cfi.size,
					     .entry = (uint32_t)(fde_at - span.start),
					     .name = t->name };
		struct uw_fde fde;

		if (uw_cfi_entry(&cfi, proc.entry, &fde, NULL)) {
			r->flags |= DYNAMIC_DAMAGED;
			continue;
		}
		proc.start = fde.start + t->bias;
		proc.end = fde.end + t->bias;
		/* The registered range limits the FDE's range. */
		if (proc.start < t->start)
			proc.start = t->start;
		if (proc.end > t->end)
			proc.end = t->end;
		good = add_proc(r, &proc);
	}
	free(pairs);
	if (!good)
		r->flags |= DYNAMIC_DAMAGED;
	return good;
}

/* ---- libunwind's list ------------------------------------------------------------------ */

enum { FORMAT_DYNAMIC, FORMAT_TABLE, FORMAT_REMOTE_TABLE, FORMAT_ARM_EXIDX, FORMAT_IP_OFFSET };

/* Offsets of members in struct unw_dyn_info. */
enum {
	INFO_NEXT = 0,
	INFO_START = 16,
	INFO_END = 24,
	INFO_FORMAT = 40,
	INFO_LOAD_OFFSET = 48,
	INFO_NAME = 56,
	INFO_REGIONS = 80, /* in unw_dyn_proc_info */
	INFO_SEGBASE = 64, /* in unw_dyn_table_info, as are the next two */
	INFO_TABLE_LEN = 72,
	INFO_TABLE_DATA = 80,
	INFO_SIZE = 88
};

/* Read one element of libunwind's list, of which info holds the bytes. */
static void read_info(struct reading *r, const uint8_t *info)
{
	struct dynamic_proc proc = { .start = little(info + INFO_START, 8),
				     .end = little(info + INFO_END, 8) };
	uint32_t format = (uint32_t)little(info + INFO_FORMAT, 4);
	struct fde_table table = { .data = little(info + INFO_TABLE_DATA, 8),
				   .n = little(info + INFO_TABLE_LEN, 8),
				   .fde_base = little(info + INFO_SEGBASE, 8),
				   .bias = little(info + INFO_LOAD_OFFSET, 8),
				   .start = proc.start,
				   .end = proc.end };

	if (proc.start >= proc.end) {
		r->flags |= DYNAMIC_DAMAGED;
		return;
	}
	read_name(r, little(info + INFO_NAME, 8), &proc.name);
	switch (format) {
	case FORMAT_DYNAMIC:
		if (!read_regions(r, little(info + INFO_REGIONS, 8), &proc)) {
			r->flags |= DYNAMIC_DAMAGED;
			proc.kind = DYNAMIC_NAME;
		}
		(void)add_proc(r, &proc);
		break;
	case FORMAT_TABLE: /* formats differ in who reads the table; here: another process */
	case FORMAT_REMOTE_TABLE:
	case FORMAT_IP_OFFSET:
		table.name = proc.name;
		(void)read_table(r, &table);
		break;
	default:
		r->flags |= DYNAMIC_DAMAGED;
		break;
	}
}

/* Read libunwind's list: struct unw_dyn_info_list and its chain of elements. */
static void read_list(struct reading *r, uint64_t list)
{
	uint8_t head[16], info[INFO_SIZE];

	if (!fetch(r, list, head, sizeof(head)))
		return;
	if (little(head, 4) > 1) { /* unknown version */
		r->flags |= DYNAMIC_DAMAGED;
		return;
	}
	for (uint64_t at = little(head + 8, 8); at; at = little(info + INFO_NEXT, 8)) {
		if (++r->visits > VISITS_MAX || !spend(r, 0)) {
			r->flags |= DYNAMIC_CUT;
			return;
		}
		if (!fetch(r, at, info, sizeof(info)))
			return;
		read_info(r, info);
		if (r->err || r->flags & DYNAMIC_CUT)
			return;
	}
}

/* ---- GDB's JIT interface --------------------------------------------------------------- */

enum {
	JIT_FIRST =
		16, /* struct jit_descriptor: version, action_flag, relevant_entry, first_entry */
	JIT_SIZE = 24,
	ENTRY_NEXT = 0, /* struct jit_code_entry: next, prev, symfile_addr, symfile_size */
	ENTRY_ADDR = 16,
	ENTRY_FILE_SIZE = 24,
	ENTRY_SIZE = 32
};

#define SECTIONS_MAX 4096

struct file { /* an ELF file in the process's memory; its sections have run-time addresses */
	uint64_t addr, size;
	Elf64_Shdr *sections;
	unsigned int n;
	bool relocatable; /* ET_REL: symbol values are relative to their sections */
	const Elf64_Sym *symbols;
	size_t n_symbols;
	const char *strings; /* of symbols; ends with a NUL */
	size_t strings_size;
};

/*
 * Read a section. Return its bytes with a NUL behind them, which the caller frees, or NULL if
 * it cannot be read.
 */
static void *read_section(struct reading *r, const struct file *f, const Elf64_Shdr *s)
{
	uint8_t *bytes;

	if (s->sh_type == SHT_NOBITS || s->sh_offset > f->size ||
	    s->sh_size > f->size - s->sh_offset || !spend(r, (size_t)s->sh_size)) {
		r->flags |= DYNAMIC_DAMAGED;
		return NULL;
	}
	bytes = malloc((size_t)s->sh_size + 1);
	if (!bytes) {
		r->err = -ENOMEM;
		return NULL;
	}
	bytes[s->sh_size] = 0;
	if (s->sh_size && !fetch(r, f->addr + s->sh_offset, bytes, (size_t)s->sh_size)) {
		free(bytes);
		return NULL;
	}
	return bytes;
}

/* Return the string at off of a string table that ends with a NUL, or "" if off lies outside. */
static const char *string_at(const char *strings, size_t size, uint32_t off)
{
	return strings && off < size ? strings + off : "";
}

/* Read and check the ELF header and read the section headers. */
static bool read_sections(struct reading *r, struct file *f)
{
	Elf64_Ehdr head;
	size_t size;

	if (f->size < sizeof(head) || !fetch(r, f->addr, &head, sizeof(head)))
		return false;
	if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_machine != r->arch->machine ||
	    head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum > SECTIONS_MAX ||
	    head.e_shoff > f->size || head.e_shnum * sizeof(Elf64_Shdr) > f->size - head.e_shoff)
		return false;
	f->n = head.e_shnum;
	f->relocatable = head.e_type == ET_REL;
	size = f->n * sizeof(Elf64_Shdr);
	if (!size || !spend(r, size))
		return false;
	f->sections = malloc(size);
	if (!f->sections) {
		r->err = -ENOMEM;
		return false;
	}
	return fetch(r, f->addr + head.e_shoff, f->sections, size);
}

/* Read the first symbol table and its strings, if the file has one. */
static void read_symbols(struct reading *r, struct file *f)
{
	for (unsigned int i = 0; i < f->n; i++) {
		const Elf64_Shdr *s = &f->sections[i];

		if (s->sh_type != SHT_SYMTAB || s->sh_link >= f->n)
			continue;
		f->symbols = read_section(r, f, s);
		f->n_symbols = f->symbols ? s->sh_size / sizeof(Elf64_Sym) : 0;
		f->strings = read_section(r, f, &f->sections[s->sh_link]);
		f->strings_size = f->strings ? f->sections[s->sh_link].sh_size : 0;
		return;
	}
}

/*
 * Find the run-time address of symbol number i. Return false if the symbol is undefined or has
 * no section in the file.
 */
static bool symbol_address(const struct file *f, uint64_t i, uint64_t *out)
{
	const Elf64_Sym *s;

	if (i >= f->n_symbols)
		return false;
	s = &f->symbols[i];
	if (s->st_shndx == SHN_UNDEF || s->st_shndx >= f->n)
		return false;
	*out = s->st_value + (f->relocatable ? f->sections[s->st_shndx].sh_addr : 0);
	return true;
}

static void put_little(uint8_t *p, uint64_t value, unsigned int size)
{
	for (unsigned int i = 0; i < size; i++)
		p[i] = (uint8_t)(value >> (8 * i));
}

/*
 * Apply the relocations of a section to its bytes. Code generators leave these relocations to
 * the reader, since debuggers can do them. Other types of relocations are skipped.
 */
static void relocate(const struct file *f, const Elf64_Rela *relas, size_t n, uint8_t *bytes,
		     const Elf64_Shdr *section)
{
	for (size_t i = 0; i < n; i++) {
		const Elf64_Rela *rela = &relas[i];
		uint32_t type = (uint32_t)ELF64_R_TYPE(rela->r_info);
		bool near = type == R_X86_64_PC32 || type == R_AARCH64_PREL32;
		bool relative = near || type == R_X86_64_PC64 || type == R_AARCH64_PREL64;
		bool absolute = type == R_X86_64_64 || type == R_AARCH64_ABS64;
		unsigned int size = near ? 4 : 8;
		uint64_t value;

		if ((!relative && !absolute) || rela->r_offset > section->sh_size ||
		    size > section->sh_size - rela->r_offset ||
		    !symbol_address(f, ELF64_R_SYM(rela->r_info), &value))
			continue;
		value += (uint64_t)rela->r_addend;
		if (relative)
			value -= section->sh_addr + rela->r_offset;
		put_little(bytes + rela->r_offset, value, size);
	}
}

/*
 * Store the name of the function that begins at addr. Return its offset + 1, or 0 if there is
 * none.
 */
static uint32_t name_of(struct reading *r, const struct file *f, uint64_t addr)
{
	uint32_t name = 0;

	for (size_t i = 0; i < f->n_symbols; i++) {
		const char *text = string_at(f->strings, f->strings_size, f->symbols[i].st_name);
		uint64_t value;

		if (ELF64_ST_TYPE(f->symbols[i].st_info) != STT_FUNC || !*text ||
		    !symbol_address(f, i, &value) || value != addr)
			continue;
		keep_name(r, text, strnlen(text, NAME_MAX_SIZE), &name);
		break;
	}
	return name;
}

/* Read an .eh_frame section, relocate it and add a procedure for each FDE. */
static void read_frames(struct reading *r, const struct file *f, unsigned int index)
{
	const Elf64_Shdr *section = &f->sections[index];
	uint8_t *bytes = read_section(r, f, section), *block;
	struct uw_cfi cfi = { .size = section->sh_size, .vaddr = section->sh_addr, .eh = true };
	uint64_t off = 0, next;
	struct uw_fde fde;
	uint32_t at;

	if (!bytes)
		return;
	for (unsigned int i = 0; i < f->n; i++) {
		const Elf64_Shdr *s = &f->sections[i];
		Elf64_Rela *relas;

		if (s->sh_type != SHT_RELA || s->sh_info != index || !f->relocatable)
			continue;
		relas = read_section(r, f, s);
		if (relas)
			relocate(f, relas, s->sh_size / sizeof(*relas), bytes, section);
		free(relas);
	}
	block = keep(r, (size_t)section->sh_size, &at);
	if (block)
		memcpy(block, bytes, section->sh_size);
	cfi.data = bytes;
	for (; block && off < section->sh_size; off = next) {
		struct dynamic_proc proc = { .kind = DYNAMIC_FDE,
					     .base = section->sh_addr,
					     .data = at,
					     .size = (uint32_t)section->sh_size,
					     .entry = (uint32_t)off };
		int err;

		next = off;
		err = uw_cfi_entry(&cfi, off, &fde, &next);
		if (next <= off)
			break;
		if (err == -ENOENT)
			continue;
		if (err) {
			r->flags |= DYNAMIC_DAMAGED;
			continue;
		}
		proc.start = fde.start;
		proc.end = fde.end;
		proc.name = name_of(r, f, fde.start);
		if (!add_proc(r, &proc))
			break;
	}
	free(bytes);
}

/*
 * Add the functions of the symbol table with their names only, for a file without call-frame
 * information.
 */
static void read_names(struct reading *r, const struct file *f)
{
	for (size_t i = 0; i < f->n_symbols && !r->err; i++) {
		const Elf64_Sym *s = &f->symbols[i];
		const char *text = string_at(f->strings, f->strings_size, s->st_name);
		struct dynamic_proc proc = { .kind = DYNAMIC_NAME };
		uint64_t start;

		if (ELF64_ST_TYPE(s->st_info) != STT_FUNC || !s->st_size || !*text ||
		    !symbol_address(f, i, &start))
			continue;
		proc.start = start;
		proc.end = start + s->st_size;
		keep_name(r, text, strnlen(text, NAME_MAX_SIZE), &proc.name);
		if (!add_proc(r, &proc))
			return;
	}
}

/* Read one ELF file that the process registered. */
static void read_file(struct reading *r, uint64_t addr, uint64_t size)
{
	struct file f = { .addr = addr, .size = size };
	size_t first = r->n_procs;
	const char *names = NULL;

	if (read_sections(r, &f)) {
		Elf64_Ehdr head;

		read_symbols(r, &f);
		if (fetch(r, addr, &head, sizeof(head)) && head.e_shstrndx < f.n)
			names = read_section(r, &f, &f.sections[head.e_shstrndx]);
		for (unsigned int i = 0; i < f.n && names; i++)
			if (!strcmp(string_at(names, f.sections[head.e_shstrndx].sh_size,
					      f.sections[i].sh_name),
				    ".eh_frame"))
				read_frames(r, &f, i);
		/*
		 * With call-frame information, the functions have been added with their names
		 * already.
		 */
		if (r->n_procs == first)
			read_names(r, &f);
	} else {
		r->flags |= DYNAMIC_DAMAGED;
	}
	free((void *)names);
	free((void *)f.strings);
	free((void *)f.symbols);
	free(f.sections);
}

/* Read GDB's list: struct jit_descriptor and its chain of entries. */
static void read_jit(struct reading *r, uint64_t descriptor)
{
	uint8_t head[JIT_SIZE], entry[ENTRY_SIZE];

	if (!fetch(r, descriptor, head, sizeof(head)))
		return;
	if (little(head, 4) != 1) { /* 0: the list has not been used yet */
		r->flags |= little(head, 4) ? DYNAMIC_DAMAGED : 0;
		return;
	}
	for (uint64_t at = little(head + JIT_FIRST, 8); at; at = little(entry + ENTRY_NEXT, 8)) {
		if (++r->visits > VISITS_MAX || r->err || r->flags & DYNAMIC_CUT) {
			r->flags |= DYNAMIC_CUT;
			return;
		}
		if (!fetch(r, at, entry, sizeof(entry)))
			return;
		read_file(r, little(entry + ENTRY_ADDR, 8), little(entry + ENTRY_FILE_SIZE, 8));
	}
}

/* ---- all lists ------------------------------------------------------------------------- */

int uw_dynamic_marks(const struct uw_dynamic_list *lists, size_t n, uw_read_fn read, void *ctx,
		     uint64_t *mark)
{
	uint64_t hash = 0;
	bool any = false;

	for (size_t i = 0; i < n; i++) {
		uint8_t head[JIT_SIZE] = { 0 };
		size_t size = lists[i].kind == UW_DYNAMIC_JIT ? JIT_SIZE : 16;

		if (!lists[i].addr || read(ctx, lists[i].addr, head, size))
			continue;
		/*
		 * libunwind's list head has a generation number; GDB's descriptor names the
		 * entry that changed last.
		 */
		any |= little(head + (lists[i].kind == UW_DYNAMIC_JIT ? JIT_FIRST : 8), 8) != 0;
		hash = uw_checksum(head, size, hash + lists[i].addr);
	}
	*mark = hash;
	return any ? 0 : -ENOENT;
}

struct newest {
	struct dynamic_proc proc;
	size_t turn; /* order of reading: the last one registered is read first */
};

/* Order procedures by start, then by the order of reading. */
static int by_start(const void *a, const void *b)
{
	const struct newest *x = a, *y = b;

	if (x->proc.start != y->proc.start)
		return x->proc.start < y->proc.start ? -1 : 1;
	return x->turn < y->turn ? -1 : x->turn > y->turn;
}

/*
 * Sort the procedures by address. Of procedures that overlap, only the newest stays: a process
 * may reuse the memory of code without notice. -ENOMEM.
 */
static int tidy(struct reading *r)
{
	struct newest *all = calloc(r->n_procs + 1, sizeof(*all));
	size_t n = 0;

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_procs; i++)
		all[i] = (struct newest){ r->procs[i], i };
	qsort(all, r->n_procs, sizeof(*all), by_start);
	for (size_t i = 0; i < r->n_procs; i++) {
		bool stays = true;

		while (n && stays && all[i].proc.start < all[n - 1].proc.end) {
			if (all[i].turn < all[n - 1].turn)
				n--;
			else
				stays = false;
		}
		if (stays)
			all[n++] = all[i];
	}
	for (size_t i = 0; i < n; i++)
		r->procs[i] = all[i].proc;
	r->n_procs = n;
	free(all);
	return 0;
}

/* Build the result: header, procedures, data. Offsets become relative to the header. */
static int put_together(struct reading *r, uint64_t mark, struct uw_dynamic **out)
{
	size_t procs = sizeof(struct dynamic_header) + r->n_procs * sizeof(*r->procs);
	size_t size = procs + r->n_data + 1;
	uint8_t *bytes = calloc(1, size);
	struct dynamic_header *head = (void *)bytes;
	int err;

	if (!bytes)
		return -ENOMEM;
	for (size_t i = 0; i < r->n_procs; i++) {
		r->procs[i].data += (uint32_t)procs;
		/* a name's offset is stored + 1 */
		if (r->procs[i].name)
			r->procs[i].name += (uint32_t)procs - 1;
	}
	head->machine = r->arch->machine;
	head->n_procs = (uint32_t)r->n_procs;
	head->flags = r->flags;
	head->mark = mark;
	if (r->n_procs)
		memcpy(bytes + sizeof(*head), r->procs, r->n_procs * sizeof(*r->procs));
	if (r->n_data)
		memcpy(bytes + procs, r->data, r->n_data);
	err = uw_dynamic_take(bytes, size, out);
	if (err)
		free(bytes);
	return err;
}

/* Read all lists from the beginning. -ENOMEM; all other failures are flags of the result. */
static int read_all(struct reading *r, const struct uw_dynamic_list *lists, size_t n)
{
	/* The budget excludes the header, the last byte and the alignment of the data. */
	r->room = DYNAMIC_LISTS_MAX - sizeof(struct dynamic_header) - 64;
	r->visits = r->n_procs = r->n_data = 0;
	r->flags = 0;
	for (size_t i = 0; i < n; i++) {
		if (!lists[i].addr)
			continue;
		if (lists[i].kind == UW_DYNAMIC_JIT)
			read_jit(r, lists[i].addr);
		else
			read_list(r, lists[i].addr);
	}
	return r->err;
}

int uw_dynamic_read(uint16_t machine, const struct uw_dynamic_list *lists, size_t n,
		    uw_read_fn read, void *ctx, struct uw_dynamic **out)
{
	struct reading r = { .arch = uw_arch_of(machine), .read = read, .ctx = ctx };
	uint64_t before, after;
	int err;

	if (!r.arch)
		return -EINVAL;
	for (int attempt = 0;; attempt++) {
		err = uw_dynamic_marks(lists, n, read, ctx, &before);
		if (!err)
			err = read_all(&r, lists, n);
		if (err)
			break;
		err = uw_dynamic_marks(lists, n, read, ctx, &after);
		if (!err && after == before)
			break;
		r.flags |= err ? DYNAMIC_CUT : DYNAMIC_TORN;
		/*
		 * If the lists cannot be read any more, do not try again: the process has
		 * ended, or the time is up.
		 */
		if (err || attempt == ATTEMPTS - 1) {
			err = 0;
			break;
		}
	}
	if (!err)
		err = tidy(&r);
	if (!err)
		err = put_together(&r, before, out);
	free(r.procs);
	free(r.data);
	return err;
}

/*
 * Store call-frame information that the caller supplied for generated code. Its first FDE
 * becomes the rules of proc. Return false if there is no FDE or no room.
 */
static bool keep_frames(struct reading *r, const struct uw_dynamic_code *code,
			struct dynamic_proc *proc)
{
	struct uw_cfi cfi = { .data = code->frames, .size = code->frames_size, .eh = true };
	uint64_t off = 0, next;
	struct uw_fde fde;
	uint8_t *block;
	int err = -ENOENT;

	for (; err == -ENOENT && off < code->frames_size; off = next) {
		next = off;
		err = uw_cfi_entry(&cfi, off, &fde, &next);
		if (!err || next <= off)
			break;
	}
	block = err ? NULL : keep(r, code->frames_size, &proc->data);
	if (!block)
		return false;
	memcpy(block, code->frames, code->frames_size);
	proc->kind = DYNAMIC_FDE;
	proc->size = (uint32_t)code->frames_size;
	proc->entry = (uint32_t)off;
	proc->bias = proc->start - fde.start;
	return true;
}

int uw_dynamic_make(uint16_t machine, const struct uw_dynamic_code *codes, size_t n, bool names,
		    struct uw_dynamic **out)
{
	struct reading r = { .arch = uw_arch_of(machine),
			     .flags = DYNAMIC_NAMES,
			     .room = DYNAMIC_SIZE_MAX - sizeof(struct dynamic_header) - 64 };
	int err;

	if (!r.arch)
		return -EINVAL;
	for (size_t i = n; i-- > 0 && !r.err && !(r.flags & DYNAMIC_CUT);) {
		struct dynamic_proc proc = { .start = codes[i].start,
					     .end = codes[i].end,
					     .kind = DYNAMIC_NAME };

		keep_name(&r, codes[i].name, strnlen(codes[i].name, NAME_MAX_SIZE), &proc.name);
		if (codes[i].frames && !names && keep_frames(&r, &codes[i], &proc))
			r.flags &= ~(uint32_t)DYNAMIC_NAMES;
		(void)add_proc(&r, &proc);
	}
	err = r.err ? r.err : tidy(&r);
	if (!err)
		err = put_together(&r, 0, out);
	free(r.procs);
	free(r.data);
	return err;
}

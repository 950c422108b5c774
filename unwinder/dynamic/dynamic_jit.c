/*
 * unwinder/dynamic/dynamic_jit.c: reads the ELF files that a process registered with GDB's JIT
 * interface ("JIT Compilation Interface" in GDB's manual).
 */
#include "unwinder/dynamic/target_memory.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"

enum {
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
	unsigned int names; /* the number of the section with the sections' names */
	bool relocatable;   /* ET_REL: symbol values are relative to their sections */
	const Elf64_Sym *symbols;
	size_t n_symbols;
	const char *strings; /* of symbols; ends with a NUL */
	size_t strings_size;
};

/*
 * Read a section. Return its bytes with a NUL behind them, which the caller frees, or NULL if
 * it cannot be read.
 */
static void *read_section(struct uw_reading *r, const struct file *f, const Elf64_Shdr *s)
{
	uint8_t *bytes;

	if (s->sh_type == SHT_NOBITS || s->sh_offset > f->size ||
	    s->sh_size > f->size - s->sh_offset || !uw_reading_spend(r, (size_t)s->sh_size)) {
		r->flags |= DYNAMIC_DAMAGED;
		return NULL;
	}
	bytes = malloc((size_t)s->sh_size + 1);
	if (!bytes) {
		r->err = -ENOMEM;
		return NULL;
	}
	bytes[s->sh_size] = 0;
	if (s->sh_size && !uw_reading_fetch(r, f->addr + s->sh_offset, bytes, (size_t)s->sh_size)) {
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
static bool read_sections(struct uw_reading *r, struct file *f)
{
	Elf64_Ehdr head;
	size_t size;

	if (f->size < sizeof(head) || !uw_reading_fetch(r, f->addr, &head, sizeof(head)))
		return false;
	if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_machine != r->arch->machine ||
	    head.e_shentsize != sizeof(Elf64_Shdr) || head.e_shnum > SECTIONS_MAX ||
	    head.e_shoff > f->size || head.e_shnum * sizeof(Elf64_Shdr) > f->size - head.e_shoff)
		return false;
	f->n = head.e_shnum;
	f->names = head.e_shstrndx;
	f->relocatable = head.e_type == ET_REL;
	size = f->n * sizeof(Elf64_Shdr);
	if (!size || !uw_reading_spend(r, size))
		return false;
	f->sections = malloc(size);
	if (!f->sections) {
		r->err = -ENOMEM;
		return false;
	}
	return uw_reading_fetch(r, f->addr + head.e_shoff, f->sections, size);
}

/* Read the first symbol table and its strings, if the file has one. */
static void read_symbols(struct uw_reading *r, struct file *f)
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
static uint32_t name_of(struct uw_reading *r, const struct file *f, uint64_t addr)
{
	uint32_t name = 0;

	/* That is done without reading, so the reader cannot say that it takes too long. */
	if (r->n_compared > UW_COMPARED_MAX) {
		r->flags |= DYNAMIC_CUT;
		return 0;
	}
	r->n_compared += f->n_symbols;
	for (size_t i = 0; i < f->n_symbols; i++) {
		const char *text = string_at(f->strings, f->strings_size, f->symbols[i].st_name);
		uint64_t value;

		if (ELF64_ST_TYPE(f->symbols[i].st_info) != STT_FUNC || !*text ||
		    !symbol_address(f, i, &value) || value != addr)
			continue;
		uw_reading_keep_name(r, text, strnlen(text, UW_NAME_MAX_SIZE), &name);
		break;
	}
	return name;
}

/* Read an .eh_frame section, relocate it and add a procedure for each FDE. */
static void read_frames(struct uw_reading *r, const struct file *f, unsigned int index)
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
	block = uw_reading_keep(r, (size_t)section->sh_size, &at);
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
		if (!uw_reading_add(r, &proc))
			break;
	}
	free(bytes);
}

/*
 * Add the functions of the symbol table with their names only, for a file without call-frame
 * information.
 */
static void read_names(struct uw_reading *r, const struct file *f)
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
		uw_reading_keep_name(r, text, strnlen(text, UW_NAME_MAX_SIZE), &proc.name);
		if (!uw_reading_add(r, &proc))
			return;
	}
}

/* Read one ELF file that the process registered. */
static void read_file(struct uw_reading *r, uint64_t addr, uint64_t size)
{
	struct file f = { .addr = addr, .size = size };
	size_t first = r->n_procs;
	const char *names = NULL;

	if (read_sections(r, &f)) {
		read_symbols(r, &f);
		if (f.names < f.n)
			names = read_section(r, &f, &f.sections[f.names]);
		for (unsigned int i = 0; i < f.n && names; i++)
			if (!strcmp(string_at(names, f.sections[f.names].sh_size,
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

/*
 * The structures are in GDB's manual, "JIT Compilation Interface". UW_VISITS_MAX ends a chain that
 * is a ring.
 */
void uw_reading_jit(struct uw_reading *r, uint64_t descriptor)
{
	uint8_t head[UW_JIT_SIZE], entry[ENTRY_SIZE];

	if (!uw_reading_fetch(r, descriptor, head, sizeof(head)))
		return;
	if (uw_reading_number(head, 4) != 1) { /* 0: the list has not been used yet */
		r->flags |= uw_reading_number(head, 4) ? DYNAMIC_DAMAGED : 0;
		return;
	}
	for (uint64_t at = uw_reading_number(head + UW_JIT_FIRST, 8); at;
	     at = uw_reading_number(entry + ENTRY_NEXT, 8)) {
		if (++r->visits > UW_VISITS_MAX || r->err || r->flags & DYNAMIC_CUT) {
			r->flags |= DYNAMIC_CUT;
			return;
		}
		if (!uw_reading_fetch(r, at, entry, sizeof(entry)))
			return;
		read_file(r, uw_reading_number(entry + ENTRY_ADDR, 8),
			  uw_reading_number(entry + ENTRY_FILE_SIZE, 8));
	}
}

/*
 * symbolizer/elf/plt.c: names PLT entries after the functions that they call.
 *
 * A PLT entry jumps through a slot of the GOT, and a relocation states whose address the slot gets:
 * entry → slot → relocation → name.
 */
#include "symbolizer/elf/symbol_table.h"

#include "base/growth.h"
#include "base/search.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CODE_MAX   ((uint64_t)4 << 20)
#define RELOCS_MAX ((uint64_t)64 << 20) /* bytes */
/* Names are copied, and in a hostile file every entry has the longest possible name. */
#define NAMES_MAX ((uint64_t)32 << 20)

#define NEAR 128 /* symbols read at once */

struct slot {
	uint64_t got;	 /* vaddr */
	uint64_t addend; /* for IRELATIVE: the address of the resolver */
	uint32_t symbol; /* index in .dynsym; 0: IRELATIVE */
};

struct plt {
	struct sym_builder *b;
	const struct uw_elf *image;
	struct slot *slots; /* sorted by got */
	size_t n_slots, room;
	uint64_t name_bytes;
	uint64_t reloc_bytes; /* of all sections; they may overlap */
	uint64_t *lazy; /* slots of .rela.plt in its order; lazy entries push an index into it */
	size_t n_lazy;
	Elf64_Sym near[NEAR]; /* cached part of .dynsym: entries mostly use symbols in a row */
	uint64_t near_first, n_near;
};

/* ---- slots ---------------------------------------------------------------- */

/* Return whether a relocation fills a slot that a PLT entry may use. */
static bool is_slot(const struct plt *plt, const Elf64_Rela *rela)
{
	uint32_t type = (uint32_t)ELF64_R_TYPE(rela->r_info);

	if (plt->image->machine == EM_X86_64)
		return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT ||
		       type == R_X86_64_IRELATIVE;
	return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT ||
	       type == R_AARCH64_IRELATIVE;
}

static int add_slot(struct plt *plt, const Elf64_Rela *rela)
{
	int err = UW_ARRAY_GROW(plt->slots, plt->n_slots, plt->room, SIZE_MAX);

	if (err)
		return err;
	plt->slots[plt->n_slots++] = (struct slot){
		.got = rela->r_offset,
		.addend = (uint64_t)rela->r_addend,
		.symbol = (uint32_t)ELF64_R_SYM(rela->r_info),
	};
	return 0;
}

/* Add the slots of a relocation section. lazy: it is .rela.plt. */
static int add_relocations(struct plt *plt, const Elf64_Shdr *section, bool lazy)
{
	Elf64_Rela *relas;
	void *bytes;
	size_t n;
	int err;

	if (section->sh_size > RELOCS_MAX - plt->reloc_bytes)
		return -E2BIG;
	plt->reloc_bytes += section->sh_size;
	err = sym_elf_load(plt->image, section->sh_offset, section->sh_size, RELOCS_MAX, &bytes);
	if (err)
		return err;
	relas = bytes;
	n = section->sh_size / sizeof(*relas);
	if (lazy && !plt->lazy) {
		plt->lazy = calloc(n + 1, sizeof(*plt->lazy));
		if (!plt->lazy)
			err = -ENOMEM;
		for (size_t i = 0; plt->lazy && i < n; i++)
			plt->lazy[i] = relas[i].r_offset;
		plt->n_lazy = plt->lazy ? n : 0;
	}
	for (size_t i = 0; !err && i < n; i++) {
		if (is_slot(plt, &relas[i]))
			err = add_slot(plt, &relas[i]);
	}
	free(bytes);
	return err;
}

UW_ORDER_2(compare_slots, struct slot, got, symbol)

/* ---- entries -------------------------------------------------------------- */

/* Return a symbol of .dynsym; NULL: it cannot be read, and *err says why. */
static const Elf64_Sym *symbol_at(struct plt *plt, uint32_t index, int *err)
{
	const Elf64_Shdr *dynsym = plt->b->dynsym;
	uint64_t n = dynsym ? dynsym->sh_size / sizeof(Elf64_Sym) : 0;
	uint64_t first = index - index % NEAR;

	*err = -EBADMSG;
	if (index >= n)
		return NULL;
	if (plt->b->dynsym_bytes)
		return (const Elf64_Sym *)plt->b->dynsym_bytes + index;
	if (first != plt->near_first || !plt->n_near) {
		plt->n_near = 0;
		n = n - first < NEAR ? n - first : NEAR;
		*err = uw_source_read(&plt->image->source,
				      dynsym->sh_offset + first * sizeof(Elf64_Sym), plt->near,
				      n * sizeof(Elf64_Sym));
		if (*err)
			return NULL;
		plt->near_first = first;
		plt->n_near = n;
	}
	return &plt->near[index - first];
}

/* Add an entry with a lazy name: the symbol's name stays in the file. */
static int add_lazy(struct plt *plt, uint64_t addr, uint64_t end, uint32_t symbol)
{
	const Elf64_Sym *sym;
	int err;

	sym = symbol_at(plt, symbol, &err);
	if (!sym)
		return err;
	if (sym->st_name >= plt->b->dynstr_size)
		return -EBADMSG;
	if (!sym->st_name)
		return 0;
	return sym_builder_add(plt->b, addr, end,
			       sym->st_name | plt->b->dynstr_flag | SYM_NAME_STUB, SYM_UNMEASURED,
			       SYM_KIND_STUB, SYM_BIND_LOCAL);
}

/*
 * Find the name of the symbol that the slot is for: *n bytes at *name, in the arena or in resolver.
 */
static int name_slot(struct plt *plt, const struct slot *slot, const char **name, size_t *n,
		     char resolver[static 32])
{
	const struct sym_builder *b = plt->b;
	const Elf64_Sym *sym;
	int err;

	if (!slot->symbol) { /* the name that objdump gives it */
		*n = (size_t)snprintf(resolver, 32, "*ABS*+0x%" PRIx64, slot->addend);
		*name = resolver;
		return 0;
	}
	sym = symbol_at(plt, slot->symbol, &err);
	if (!sym)
		return err;
	if (sym->st_name >= b->dynstr_size)
		return -EBADMSG;
	*name = b->names + b->dynstr_at + sym->st_name;
	*n = strnlen(*name, SYM_NAME_BYTES_MAX);
	return 0;
}

/* Add the PLT entry that jumps through the slot at got. */
static int add_entry(struct plt *plt, uint64_t addr, uint64_t end, uint64_t got)
{
	size_t low = UW_COUNT_WHILE(i, plt->n_slots, plt->slots[i].got < got), n = 0;
	const char *name = NULL;
	char resolver[32];
	uint64_t at, from;
	bool in_arena;
	int err;

	if (low == plt->n_slots || plt->slots[low].got != got)
		return 0; /* the first entry, which calls the dynamic linker, or an unknown one */
	if (plt->b->lazy_names && plt->slots[low].symbol)
		return add_lazy(plt, addr, end, plt->slots[low].symbol);
	err = name_slot(plt, &plt->slots[low], &name, &n, resolver);
	if (err || !n)
		return err;
	plt->name_bytes += n;
	if (plt->name_bytes > NAMES_MAX)
		return -E2BIG;
	in_arena = name != resolver;
	from = in_arena ? (uint64_t)(name - plt->b->names) : 0;
	err = sym_builder_names(plt->b, n + sizeof(SYM_STUB_SUFFIX) - 1, &at); /* moves the arena */
	if (err)
		return err;
	memcpy(plt->b->names + at, in_arena ? plt->b->names + from : name, n);
	memcpy(plt->b->names + at + n, SYM_STUB_SUFFIX, sizeof(SYM_STUB_SUFFIX) - 1);
	n += sizeof(SYM_STUB_SUFFIX) - 1;
	if (plt->b->lazy_names) {
		if (at >= SYM_NAME_ARENA)
			return -E2BIG;
		at |= SYM_NAME_ARENA;
	}
	return sym_builder_add(plt->b, addr, end, at, n, SYM_KIND_STUB, SYM_BIND_LOCAL);
}

static uint32_t word_at(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/*
 * Decode the entries of an x86_64 PLT (psABI §5.2; with IBT: §11; with the bnd prefix):
 *   [endbr64] [bnd] jmp *slot(%rip) …       states the slot itself
 *   [endbr64] push $index; [bnd] jmp PLT0   states the index in .rela.plt
 *   endbr64; mov $index, %r11d; jmp *slot(%rip)   of mold
 */
static int x86_64_entries(struct plt *plt, const Elf64_Shdr *section, const uint8_t *code)
{
	size_t size = (size_t)section->sh_size;
	size_t each = section->sh_entsize == 8 || section->sh_entsize == 32
			      ? (size_t)section->sh_entsize
			      : 16;
	int err = 0;

	for (size_t i = 0; !err && each <= size - i; i += each) {
		const uint8_t *p = code + i, *end = p + each;
		uint64_t addr = section->sh_addr + i;

		if (end - p >= 16 && memcmp(p, "\xf3\x0f\x1e\xfa", 4) == 0)
			p += 4;
		if (*p == 0xf2)
			p++;
		if (end - p >= 12 && p[0] == 0x41 && p[1] == 0xbb)
			p += 6;
		if (end - p >= 6 && p[0] == 0xff && p[1] == 0x25) {
			int64_t next = (p - code) + 6;
			int32_t disp = (int32_t)word_at(p + 2);

			err = add_entry(plt, addr, addr + each,
					section->sh_addr + (uint64_t)(next + disp));
		} else if (end - p >= 5 && p[0] == 0x68 && word_at(p + 1) < plt->n_lazy) {
			err = add_entry(plt, addr, addr + each, plt->lazy[word_at(p + 1)]);
		}
	}
	return err;
}

/*
 * Decode the entries of an aarch64 PLT (AAELF64, "PLT"):
 *   [bti c]; adrp x16, page; ldr x17, [x16, #low]; add x16, x16, #low; br x17
 */
static int aarch64_entries(struct plt *plt, const Elf64_Shdr *section, const uint8_t *code)
{
	const uint32_t bti_c = 0xd503245f, stp_x16_x30 = 0xa9bf7bf0;
	size_t size = (size_t)section->sh_size;
	int err = 0;

	for (size_t i = 0; !err && 16 <= size - i; i += 4) {
		uint32_t adrp = word_at(code + i), ldr = word_at(code + i + 4);
		uint32_t before = i ? word_at(code + i - 4) : 0;
		uint64_t addr = section->sh_addr + i, page, got;

		if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211 ||
		    before == stp_x16_x30)
			continue;
		/* immhi:immlo, 21 bits with sign, in pages */
		page = (uint64_t)(adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3);
		page = (page ^ 0x100000) - 0x100000;
		got = (addr & ~(uint64_t)0xfff) + (page << 12) + (uint64_t)(ldr >> 10 & 0xfff) * 8;
		err = add_entry(plt, before == bti_c ? addr - 4 : addr, addr + 16, got);
	}
	return err;
}

/* Load a PLT section and add its entries. -EBADMSG: not a section of code. */
static int add_section(struct plt *plt, const Elf64_Shdr *section)
{
	void *code;
	int err;

	if (!(section->sh_flags & SHF_EXECINSTR) ||
	    section->sh_size > UINT64_MAX - section->sh_addr)
		return -EBADMSG;
	err = sym_elf_load(plt->image, section->sh_offset, section->sh_size, CODE_MAX, &code);
	if (err)
		return err;
	err = plt->image->machine == EM_X86_64 ? x86_64_entries(plt, section, code)
					       : aarch64_entries(plt, section, code);
	free(code);
	return err;
}

int sym_plt_add(struct sym_builder *b, const struct uw_elf *image)
{
	/*
	 * .plt.got is for functions whose address is taken, too. .iplt is lld's section for
	 * IRELATIVE.
	 */
	static const char *const names[] = { ".plt", ".plt.sec", ".plt.bnd", ".iplt", ".plt.got" };
	enum { N = sizeof(names) / sizeof(names[0]) };
	const Elf64_Shdr *sections[N];
	struct plt plt = { .b = b, .image = image };
	bool any = false;
	int err = 0;

	if (image->narrow || (image->machine != EM_X86_64 && image->machine != EM_AARCH64))
		return 0;
	for (size_t i = 0; i < N; i++) {
		sections[i] = uw_elf_section(image, names[i]);
		any = any || sections[i];
	}
	if (!any)
		return 0;
	for (size_t i = 1; !err && i < image->n_sections; i++) {
		const Elf64_Shdr *s = &image->sections[i];
		const char *name = uw_elf_section_name(image, s);
		bool lazy = strcmp(name, ".rela.plt") == 0;

		/* .rela.dyn is large, and only .plt.got needs it. */
		if (s->sh_type == SHT_RELA && (s->sh_flags & SHF_ALLOC) &&
		    (lazy || sections[N - 1]))
			err = add_relocations(&plt, s, lazy);
	}
	if (plt.n_slots)
		qsort(plt.slots, plt.n_slots, sizeof(*plt.slots), compare_slots);
	for (size_t i = 0; !err && i < N; i++) {
		if (sections[i])
			err = add_section(&plt, sections[i]);
	}
	free(plt.slots);
	free(plt.lazy);
	return err;
}

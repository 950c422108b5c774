/*
 * unwinder/dynamic/tls_find.c: finds thread-local variables that an object exports, and where the dynamic
 * linker tells in which place each thread has them.
 */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/elf.h"
#include "base/elf_machine.h"
#include "unwinder/rule/object.h"

#define TABLE_MAX ((uint64_t)256 << 20) /* bytes of a table; as in dynamic_find.c */

struct table {
	uint8_t *bytes;
	size_t size;
};

static int read_table(const struct uw_elf *elf, const Elf64_Shdr *section, struct table *out)
{
	*out = (struct table){ .size = 0 };
	return section ? uw_elf_section_read(elf, section, TABLE_MAX, &out->bytes, &out->size)
		       : -ENOENT;
}

/* Find the number and the value of a defined thread-local symbol. */
static int find_symbol(const struct uw_elf *elf, const char *const sections[2], const char *name,
		       uint32_t *number, uint64_t *value)
{
	size_t length = strlen(name) + 1;
	struct table symbols, strings = { .size = 0 };
	int err = read_table(elf, uw_elf_section(elf, sections[0]), &symbols);

	if (!err)
		err = read_table(elf, uw_elf_section(elf, sections[1]), &strings);
	for (size_t i = 0; !err; i++) {
		Elf64_Sym s;

		if (i >= symbols.size / sizeof(s)) {
			err = -ENOENT;
			break;
		}
		memcpy(&s, symbols.bytes + i * sizeof(s), sizeof(s));
		if (s.st_shndx == SHN_UNDEF || ELF64_ST_TYPE(s.st_info) != STT_TLS ||
		    s.st_name >= strings.size || length > strings.size - s.st_name ||
		    memcmp(strings.bytes + s.st_name, name, length) != 0)
			continue;
		*number = (uint32_t)i;
		*value = s.st_value;
		break;
	}
	free(symbols.bytes);
	free(strings.bytes);
	return err;
}

/*
 * Note what a relocation says, if it is of the variable. One without a symbol is of the object itself: with the
 * variable's place as its addend, a descriptor is the variable's; a module's number is that of all its variables.
 */
static void take(const Elf64_Rela *r, uint32_t symbol, struct uw_tls *out)
{
	uint64_t of = ELF64_R_SYM(r->r_info);
	enum uw_tls_word word = UW_TLS_NONE;

	switch (ELF64_R_TYPE(r->r_info)) {
	case R_X86_64_TLSDESC:
		if ((of == symbol && !r->r_addend) || (!of && (uint64_t)r->r_addend == out->off))
			word = UW_TLS_DESC;
		break;
	case R_X86_64_DTPMOD64:
		if (of == symbol || !of)
			word = UW_TLS_MODULE;
		break;
	case R_X86_64_TPOFF64:
		if ((of == symbol && !r->r_addend) || (!of && (uint64_t)r->r_addend == out->off))
			word = UW_TLS_STATIC;
		break;
	default:
		break;
	}
	if (word == UW_TLS_NONE || out->word != UW_TLS_NONE)
		return;
	out->word = word;
	out->vaddr = r->r_offset + (word == UW_TLS_DESC ? 8 : 0);
}

static int find_word(const struct uw_elf *elf, uint32_t symbol, struct uw_tls *out)
{
	for (size_t i = 0; i < elf->n_sections && out->word == UW_TLS_NONE; i++) {
		const Elf64_Shdr *section = &elf->sections[i];
		struct table table;
		int err;

		if (section->sh_type != SHT_RELA || !(section->sh_flags & SHF_ALLOC))
			continue;
		err = read_table(elf, section, &table);
		if (err == -ENOENT)
			continue;
		if (err)
			return err;
		for (size_t at = 0; table.size - at >= sizeof(Elf64_Rela);
		     at += sizeof(Elf64_Rela)) {
			Elf64_Rela r;

			memcpy(&r, table.bytes + at, sizeof(r));
			take(&r, symbol, out);
		}
		free(table.bytes);
	}
	return 0;
}

/* Return whether a file that is position-independent is a program, and no library. */
static bool is_program(const struct uw_elf *elf)
{
	const Elf64_Shdr *section = uw_elf_section(elf, ".dynamic");
	struct table dynamic;
	bool is = false;

	for (size_t i = 0; i < elf->n_segments; i++)
		is |= elf->segments[i].p_type == PT_INTERP;
	if (read_table(elf, section, &dynamic))
		return is;
	for (size_t at = 0; dynamic.size - at >= sizeof(Elf64_Dyn); at += sizeof(Elf64_Dyn)) {
		Elf64_Dyn d;

		memcpy(&d, dynamic.bytes + at, sizeof(d));
		if (d.d_tag == DT_NULL)
			break;
		/* A library can have an interpreter, too: then it has a name of its own. */
		if (d.d_tag == DT_SONAME)
			is = false;
		if (d.d_tag == DT_FLAGS_1 && d.d_un.d_val & DF_1_PIE) {
			is = true;
			break;
		}
	}
	free(dynamic.bytes);
	return is;
}

int uw_object_tls(const struct uw_object *object, const char *name, struct uw_tls *out)
{
	static const char *const exported[2] = { ".dynsym", ".dynstr" };
	static const char *const all[2] = { ".symtab", ".strtab" };
	const struct uw_elf *elf = uw_object_elf(object);
	struct uw_tls tls = { .word = UW_TLS_NONE };
	const Elf64_Phdr *block = NULL;
	uint32_t symbol = 0;
	uint64_t align;
	int err;

	if (!uw_machine_tls_is_below(elf->machine) || elf->narrow)
		return -ENOTSUP;
	for (size_t i = 0; i < elf->n_segments; i++)
		if (elf->segments[i].p_type == PT_TLS)
			block = &elf->segments[i];
	err = block ? find_symbol(elf, exported, name, &symbol, &tls.off) : -ENOENT;
	if (err == -ENOENT && block) {
		err = find_symbol(elf, all, name, &symbol, &tls.off);
		symbol = UINT32_MAX; /* no relocation has this number */
	}
	if (err)
		return err;
	align = block->p_align ? block->p_align : 1;
	if (align & (align - 1) || align > UINT32_MAX || block->p_memsz > UINT32_MAX ||
	    block->p_memsz < 8 || tls.off > block->p_memsz - 8)
		return -EBADMSG;
	tls.block = (block->p_memsz + align - 1) & ~(align - 1);
	tls.is_executable = elf->type == ET_EXEC || is_program(elf);
	err = find_word(elf, symbol, &tls);
	if (!err)
		*out = tls;
	return err;
}

/* ---- Go ---------------------------------------------------------------------------------------- */

/*
 * The section .go.buildinfo: a magic text, the size of a pointer, flags; with the flag 2, from byte 32 on a length
 * (LEB128) and a text such as "go1.19.8" (debug/buildinfo). Before Go 1.18 there were pointers instead.
 */
static int go_version(const struct uw_elf *elf, unsigned int *major, unsigned int *minor)
{
	static const char magic[] = "\xff Go buildinf:";
	const Elf64_Shdr *section = uw_elf_section(elf, ".go.buildinfo");
	struct table info;
	char text[32] = "";
	int err = read_table(elf, section, &info);

	if (err)
		return err;
	err = -EBADMSG;
	if (info.size > 34 && !memcmp(info.bytes, magic, sizeof(magic) - 1)) {
		size_t n = info.bytes[32];

		if (!(info.bytes[15] & 2))
			err = -ENOTSUP;
		else if (n < 128 && n <= info.size - 33)
			memcpy(text, info.bytes + 33, n < sizeof(text) ? n : sizeof(text) - 1);
		if (sscanf(text, "go%3u.%3u", major, minor) == 2)
			err = 0;
	}
	free(info.bytes);
	return err;
}

/* What Go's own linker makes has one thread-local variable at most: this one, at the end of the storage. */
int uw_object_go(const struct uw_object *object, unsigned int *major, unsigned int *minor,
		 uint64_t *g)
{
	const struct uw_elf *elf = uw_object_elf(object);
	unsigned int version[2];
	uint64_t size = 0;
	struct uw_tls tls;
	int err;

	if (!uw_machine_tls_is_below(elf->machine) || elf->narrow)
		return -ENOTSUP;
	err = go_version(elf, &version[0], &version[1]);
	if (err)
		return err;
	for (size_t i = 0; i < elf->n_segments; i++)
		if (elf->segments[i].p_type == PT_TLS)
			size = elf->segments[i].p_memsz;
	*g = (uint64_t)-8;
	if (size > 8) {
		err = uw_object_tls(object, "runtime.tlsg", &tls);
		if (err)
			return err == -ENOENT ? -ENOTSUP : err;
		*g = tls.off - tls.block;
	}
	*major = version[0];
	*minor = version[1];
	return 0;
}

/*
 * symbolizer/elf/go_names.c: reads function names from the table that Go puts in every binary
 * (base/pclntab.h), for binaries without .symtab.
 */
#include "symbolizer/elf/symbol_table.h"

#include "base/elf_machine.h"
#include "base/pclntab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_MAX  ((uint64_t)256 << 20)
#define RELOCS_MAX ((uint64_t)64 << 20)
/* Names are copied, and in a hostile file every function has the longest possible name. */
#define NAMES_MAX ((uint64_t)128 << 20)

/* Return the section with the table. *part: the table is somewhere inside the section. */
static const Elf64_Shdr *section_of(const struct uw_elf *image, bool *part)
{
	const Elf64_Shdr *section = uw_elf_section(image, ".gopclntab");

	*part = false;
	if (!section)
		section = uw_elf_section(image, ".data.rel.ro.gopclntab");
	if (!section && uw_elf_section(image, ".go.buildinfo")) {
		section = uw_elf_section(image, ".data.rel.ro");
		*part = true;
	}
	return section;
}

/*
 * Find the relative relocation at vaddr, and return the value that the loader would write there.
 * -ENOENT.
 */
static int find_relocated(const struct uw_elf *image, uint64_t vaddr, uint64_t *value)
{
	const Elf64_Shdr *section = uw_elf_section(image, ".rela.dyn");
	const Elf64_Rela *relas;
	void *bytes;
	bool found = false;
	int err;

	if (!section)
		/* the name that Go's own linker uses */
		section = uw_elf_section(image, ".rela");
	if (!section)
		return -ENOENT;
	err = sym_elf_load(image, section->sh_offset, section->sh_size, RELOCS_MAX, &bytes);
	if (err)
		return err;
	relas = bytes;
	for (size_t i = 0; i < section->sh_size / sizeof(*relas) && !found; i++) {
		found = relas[i].r_offset == vaddr &&
			uw_machine_is_relative(image->machine, relas[i].r_info);
		if (found)
			*value = (uint64_t)relas[i].r_addend;
	}
	free(bytes);
	return found ? 0 : -ENOENT;
}

/*
 * Set the table's text address, if it is relocated or must be guessed. vaddr is that of the table.
 */
static bool find_text(const struct uw_elf *image, uint64_t vaddr, struct uw_pclntab *table)
{
	const Elf64_Shdr *text = uw_elf_section(image, ".text");

	if (!table->text_off || table->text ||
	    !find_relocated(image, vaddr + table->text_off, &table->text))
		return true;
	return text && uw_pclntab_guess_text(table, text->sh_addr, image->entry);
}

/* Add all functions of the table. */
static int add_functions(struct sym_builder *b, const struct uw_pclntab *table)
{
	struct uw_pclntab_function function;
	uint64_t name_bytes = 0, off;
	int err = 0;

	for (uint64_t i = 0; i < table->n && !err; i++) {
		size_t length;

		if (!uw_pclntab_at(table, i, &function) || !*function.name)
			continue;
		length = strnlen(function.name, SYM_NAME_BYTES_MAX);
		name_bytes += length + 1;
		err = name_bytes > NAMES_MAX ? -E2BIG : sym_builder_names(b, length, &off);
		if (err)
			break;
		memcpy(b->names + off, function.name, length);
		err = sym_builder_add(b, function.start, function.end, off, length, SYM_KIND_FUNC,
				      SYM_BIND_LOCAL);
	}
	return err;
}

int sym_gopclntab_add(struct sym_builder *b, const struct uw_elf *image)
{
	bool part;
	const Elf64_Shdr *section = section_of(image, &part);
	struct uw_pclntab table;
	uint64_t off;
	void *bytes;
	int err;

	if (!section || image->narrow)
		return 0;
	if (b->lazy_names) { /* the names are in no string table, so lazy names are impossible */
		b->odd = -ENOTSUP;
		return 0;
	}
	err = sym_elf_load(image, section->sh_offset, section->sh_size, TABLE_MAX, &bytes);
	if (err)
		return err;
	off = uw_pclntab_find(&table, bytes, section->sh_size, part, 0);
	if (off == section->sh_size)
		err = part ? 0 : -ENOTSUP; /* other data may be in this section, without a table */
	else
		err = find_text(image, section->sh_addr + off, &table) ? add_functions(b, &table)
								       : -ENOTSUP;
	free(bytes);
	return err;
}

/*
 * tests/image.h: makes ELF files in memory, for code that compilers do not write.
 *
 * A file has one segment, readable and executable, whose bytes lie at IMAGE_CODE in the file and at
 * that vaddr, and sections by name if a test wants them.
 */
#ifndef TESTS_IMAGE_H
#define TESTS_IMAGE_H

#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "unwinder/unwinder.h"

#define IMAGE_CODE     0x1000
#define IMAGE_SECTIONS 6

struct image_section {
	const char *name;
	const void *bytes; /* NULL: the bytes of the code, from vaddr on */
	uint64_t vaddr, size;
};

struct image {
	uint16_t machine;
	uint64_t entry;
	const void *code;
	size_t code_size;
	struct image_section sections[IMAGE_SECTIONS];
	size_t n_sections;
};

/* Sections with bytes of their own follow the code in its segment, at their vaddr. */
static inline struct uw_object *image_object(const struct image *image)
{
	enum { SIZE = 1 << 17, NAMES = SIZE - 512, HEADERS = SIZE - 4096 };
	uint8_t *file = calloc(1, SIZE);
	struct uw_object *object = NULL;
	Elf64_Shdr sections[IMAGE_SECTIONS + 2] = { 0 };
	size_t n = 1, name = 1;
	Elf64_Ehdr head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					 ELFDATA2LSB, EV_CURRENT },
			    .e_type = ET_DYN,
			    .e_machine = image->machine,
			    .e_version = EV_CURRENT,
			    .e_entry = image->entry,
			    .e_phoff = sizeof(head),
			    .e_shoff = HEADERS,
			    .e_ehsize = sizeof(head),
			    .e_phentsize = sizeof(Elf64_Phdr),
			    .e_phnum = 1,
			    .e_shentsize = sizeof(Elf64_Shdr) };
	Elf64_Phdr segment = { .p_type = PT_LOAD,
			       .p_flags = PF_R | PF_X,
			       .p_offset = IMAGE_CODE,
			       .p_vaddr = IMAGE_CODE,
			       .p_filesz = HEADERS - IMAGE_CODE,
			       .p_memsz = HEADERS - IMAGE_CODE,
			       .p_align = 0x1000 };

	if (!file)
		return NULL;
	memcpy(file + IMAGE_CODE, image->code, image->code_size);
	for (size_t i = 0; i < image->n_sections; i++) {
		const struct image_section *s = &image->sections[i];

		sections[n++] =
			(Elf64_Shdr){ .sh_name = (Elf64_Word)name,
				      .sh_type = SHT_PROGBITS,
				      .sh_flags = SHF_ALLOC | (s->bytes ? 0 : SHF_EXECINSTR),
				      .sh_addr = s->vaddr,
				      .sh_offset = s->vaddr,
				      .sh_size = s->size };
		if (s->bytes)
			memcpy(file + s->vaddr, s->bytes, s->size);
		memcpy(file + NAMES + name, s->name, strlen(s->name) + 1);
		name += strlen(s->name) + 1;
	}
	sections[n++] = (Elf64_Shdr){ .sh_type = SHT_STRTAB, .sh_offset = NAMES, .sh_size = name };
	head.e_shnum = (Elf64_Half)n;
	head.e_shstrndx = (Elf64_Half)(n - 1);
	memcpy(file, &head, sizeof(head));
	memcpy(file + sizeof(head), &segment, sizeof(segment));
	memcpy(file + HEADERS, sections, n * sizeof(*sections));
	(void)uw_object_open_image(file, SIZE, &object);
	free(file);
	return object;
}

#endif

/*
 * base/elf_headers.h: reads the headers of an ELF file: its own, and those of its sections and
 * segments. All other readers of ELF files in base/ and symbolizer/ stand on this one.
 */
#ifndef BASE_ELF_HEADERS_H
#define BASE_ELF_HEADERS_H

#include <elf.h>

#include "base/elf.h"

/* Headers of the 32-bit class are widened, so that users see one layout. */
struct uw_elf_headers {
	Elf64_Ehdr file;
	int sections_err;     /* why the section headers could not be read; 0: they could */
	Elf64_Shdr *sections; /* with section 0; owned, like the other arrays */
	size_t n_sections;
	Elf64_Phdr *segments;
	size_t n_segments;
	char *names; /* of the sections, with a NUL at the end; NULL: none */
	size_t names_size;
};

/*
 * Read the headers. A damaged section table is not an error, because the kernel runs files without
 * sections. -EBADMSG: the file is no ELF file, or its headers are damaged; -ENOTSUP: it is not
 * little-endian, or it is 32-bit and only64 is set; or a system code. On failure, only e_ident is
 * valid, or 0; nothing must be freed.
 */
int uw_elf_headers_read(const struct uw_source *source, bool only64, struct uw_elf_headers *out);
void uw_elf_headers_fini(struct uw_elf_headers *headers);

#endif

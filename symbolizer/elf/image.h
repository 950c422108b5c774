/*
 * symbolizer/elf/image.h: a bounded reader of one ELF file.
 *
 * The bytes come from a descriptor or from memory. Every span is checked against the file's size
 * before it is read. If the file shrinks meanwhile, a read fails; there is no signal. Both ELF
 * classes are supported, but only little-endian. Headers of the 32-bit class are widened, so that
 * users see one layout.
 */
#ifndef SYMBOLIZER_ELF_IMAGE_H
#define SYMBOLIZER_ELF_IMAGE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/elf.h"

struct sym_image {
	struct uw_source source; /* what it refers to is borrowed; fd is -1 in memory */
	bool narrow;		 /* ELFCLASS32 */
	uint16_t machine, type;
	uint64_t entry;
	bool sections_lost;   /* section headers are stated, but they are beyond the file's end */
	Elf64_Shdr *sections; /* owned; with section 0 */
	size_t n_sections;
	Elf64_Phdr *segments; /* owned */
	size_t n_segments;
	char *names; /* names of the sections, NUL-terminated; owned; NULL: none */
	size_t names_size;
};

/*
 * Open an ELF file. If only its section headers are cut off, the segments are usable. -EBADMSG:
 * damaged; -ENOTSUP: not little-endian ELF; or a system code. After success the caller must call
 * sym_image_fini; after failure not.
 */
int sym_image_init_fd(struct sym_image *image, int fd, uint64_t elf_off);
int sym_image_init_viewed(struct sym_image *image, int fd, uint64_t elf_off,
			  const struct uw_view *view);
int sym_image_init_bytes(struct sym_image *image, const void *bytes, size_t size);
void sym_image_fini(struct sym_image *image);

/*
 * Return a copy of [off, off + size) on the heap, followed by a NUL; the caller frees it. off is
 * relative to the ELF header. -EBADMSG: the file ends before, or size exceeds limit.
 */
int sym_image_load(const struct sym_image *image, uint64_t off, uint64_t size, uint64_t limit,
		   void **out);

/* Return a section's name; "" if it is damaged. Borrowed from the image. */
const char *sym_image_section_name(const struct sym_image *image, const Elf64_Shdr *section);
/* Return the section of this name; NULL: there is none, or it has no bytes in the file. */
const Elf64_Shdr *sym_image_section(const struct sym_image *image, const char *name);

#endif

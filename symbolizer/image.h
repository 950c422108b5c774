/*
 * symbolizer/image.h: a bounded reader of one ELF file.
 *
 * The bytes come from a descriptor or from memory; every span is checked
 * against the file's size before it is read, and a file that shrinks meanwhile
 * is an error, not a signal.  Both classes, little-endian only; headers of the
 * 32-bit class are widened, so that users see one layout.
 */
#ifndef SYMBOLIZER_IMAGE_H
#define SYMBOLIZER_IMAGE_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

struct sym_image {
	int fd;		      /* -1: in memory; borrowed */
	const uint8_t *bytes; /* where fd is -1; borrowed */
	uint64_t off;	      /* of the ELF header in the file */
	uint64_t size;	      /* bytes from there on */
	struct uw_view view;  /* of the file; without bytes: none */
	bool narrow;	      /* ELFCLASS32 */
	uint16_t machine, type;
	uint64_t entry;
	bool sections_lost;   /* there are headers, but beyond the file's end */
	Elf64_Shdr *sections; /* owned; section 0 included */
	size_t n_sections;
	Elf64_Phdr *segments; /* owned */
	size_t n_segments;
	char *names; /* of the sections, NUL-terminated; owned, NULL: none */
	size_t names_size;
};

/* Of a file, size bytes from off on; less is -EBADMSG, else a system code. */
int sym_read_at(int fd, uint64_t off, void *out, uint64_t size);
/* The same of a file that there may be a view of. */
int sym_read_viewed(int fd, const struct uw_view *view, uint64_t off, void *out, uint64_t size);

/*
 * Section headers that are cut off leave a file with segments usable.
 * -EBADMSG damaged, -ENOTSUP not little-endian ELF, or a system code.  On
 * success the caller owes sym_image_fini; on failure nothing.
 */
int sym_image_init_fd(struct sym_image *image, int fd, uint64_t elf_off);
int sym_image_init_viewed(struct sym_image *image, int fd, uint64_t elf_off,
			  const struct uw_view *view);
int sym_image_init_bytes(struct sym_image *image, const void *bytes, size_t size);
void sym_image_fini(struct sym_image *image);

/* All of [off, off + size) or -EBADMSG; off counts from the ELF header. */
int sym_image_read(const struct sym_image *image, uint64_t off, void *out, uint64_t size);
/* A copy on the heap with a NUL behind it; -EBADMSG where size exceeds limit. */
int sym_image_load(const struct sym_image *image, uint64_t off, uint64_t size, uint64_t limit,
		   void **out);

/* "" where the name is damaged; borrowed from the image. */
const char *sym_image_section_name(const struct sym_image *image, const Elf64_Shdr *section);
/* NULL if there is none, or it has no bytes in the file. */
const Elf64_Shdr *sym_image_section(const struct sym_image *image, const char *name);

#endif

/*
 * base/elf.h: the reader of ELF files: headers, sections and build-ids of little-endian files.
 *
 * Files are read, not mapped: if someone truncates a mapped file, access to it raises SIGBUS,
 * which kills the process. Only a caller who handles that passes a view of mapped bytes. Each
 * size is checked against the file's size before memory is allocated for it.
 */
#ifndef BASE_ELF_H
#define BASE_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

/* Where an ELF image is: in a file from offset base on, or in memory. */
struct uw_source {
	const uint8_t *image; /* borrowed; NULL: the image is in fd */
	int fd;
	uint64_t base;	     /* offset of the image in the file */
	uint64_t size;	     /* from base to the end */
	struct uw_view view; /* of the file; without bytes if there is none */
};

/* Read size bytes of a file at off. -EBADMSG: the file is shorter; or a system code. */
int uw_read_at(int fd, uint64_t off, void *out, uint64_t size);
/*
 * Read [off, off + size) of the image. -EBADMSG if it ends before; other codes are those of
 * pread(2).
 */
int uw_source_read(const struct uw_source *source, uint64_t off, void *out, uint64_t size);
/*
 * Read n entries of size bytes at off into memory that the caller frees. The size of the file
 * limits the size of the allocation. Codes are those of uw_source_read and uw_unpack_reserve, or
 * -ENOMEM.
 */
int uw_source_load(const struct uw_source *source, uint64_t off, uint64_t n, uint64_t size,
		   void **out);

/*
 * The headers of one ELF file. Those of the 32-bit class are widened, so that users see one layout.
 */
struct uw_elf {
	struct uw_source source; /* what it refers to is borrowed */
	bool narrow;		 /* ELFCLASS32 */
	uint16_t type, machine;
	uint64_t entry;
	int sections_err;     /* why the section headers could not be read; 0: they could */
	Elf64_Shdr *sections; /* with section 0; owned, like the other arrays */
	size_t n_sections;
	Elf64_Phdr *segments;
	size_t n_segments;
	char *names; /* of the sections, with a NUL at the end; NULL: none */
	size_t names_size;
};

/*
 * Read the headers of an ELF file of either class, or only of the 64-bit class. source is copied;
 * what it points to is borrowed. A damaged section table is not an error, because the kernel runs
 * files without sections. -EBADMSG: damaged headers, and uw_elf_init: no ELF file; -ENOTSUP: not
 * little-endian, and uw_elf_init_64: no ELF file, or one of the 32-bit class; -ENOMEM; or a system
 * code. After success the caller must call uw_elf_fini; after failure there is nothing to free.
 */
int uw_elf_init(struct uw_elf *elf, const struct uw_source *source);
int uw_elf_init_64(struct uw_elf *elf, const struct uw_source *source);
void uw_elf_fini(struct uw_elf *elf);

/* Return a section's name; "" if it has none, or it is damaged. Borrowed from elf. */
const char *uw_elf_section_name(const struct uw_elf *elf, const Elf64_Shdr *section);
/* Return the first section of that name that has bytes in the file, or NULL. */
const Elf64_Shdr *uw_elf_section(const struct uw_elf *elf, const char *name);

/*
 * Read a section of a file of the 64-bit class into memory that the caller frees. The bytes are
 * decompressed if the section has SHF_COMPRESSED or is named .zdebug_…. -ENOENT the section is
 * empty, -EFBIG it has more than cap bytes, -ENOTSUP an unknown compression, -EBADMSG, -ENOMEM, or a
 * code of uw_unpack_reserve.
 */
int uw_elf_section_read(const struct uw_elf *elf, const Elf64_Shdr *section, uint64_t cap,
			uint8_t **out, size_t *size);

/*
 * Find the build-id in a part of the image that has notes; align: of that part (base/elf_note.h).
 * Only the first MiB is read. Return false if it has none, or cannot be read.
 */
bool uw_source_build_id(const struct uw_source *source, uint64_t off, uint64_t size, uint64_t align,
			struct uw_build_id *out);
/* Read the build-id (NT_GNU_BUILD_ID); its size is 0 if the file has none. */
void uw_elf_build_id(const struct uw_elf *elf, struct uw_build_id *out);

#endif

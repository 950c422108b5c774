/*
 * base/elf.h: reads headers, sections and build-ids of ELF64 little-endian files.
 *
 * Files are read, not mapped: if someone truncates a mapped file, access to it raises SIGBUS,
 * which kills the process. Only a caller who handles that passes a view of mapped bytes. Each
 * size is checked against the file's size before memory is allocated for it.
 */
#ifndef BASE_ELF_H
#define BASE_ELF_H

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
 * limits the size of the allocation. Codes are those of uw_source_read, or -ENOMEM.
 */
int uw_source_load(const struct uw_source *source, uint64_t off, uint64_t n, uint64_t size,
		   void **out);

struct uw_phdr {
	uint32_t type, flags;
	uint64_t off, vaddr, file_size, mem_size, align;
};

struct uw_section {
	const char *name; /* in struct uw_elf's names; "" if it has none */
	uint32_t type;
	uint64_t flags, vaddr, off, size;
};

struct uw_elf {
	struct uw_source source;
	uint16_t type, machine;
	uint64_t entry;
	struct uw_phdr *phdrs; /* owned, as are the next */
	size_t n_phdrs;
	struct uw_section *sections;
	size_t n_sections;
	char *names;
};

/*
 * Read the headers of an ELF file. source is copied; what it points to is borrowed. A damaged
 * section table is not an error: the file then has no sections. -ENOTSUP not ELF64
 * little-endian, -EBADMSG damaged headers, -ENOMEM.
 */
int uw_elf_init(struct uw_elf *elf, const struct uw_source *source);
void uw_elf_fini(struct uw_elf *elf);

/* Return the first section of that name that has contents in the file, or NULL. */
const struct uw_section *uw_elf_section(const struct uw_elf *elf, const char *name);

/*
 * Read a section into memory that the caller frees. The bytes are decompressed if the section
 * has SHF_COMPRESSED or is named .zdebug_…. -ENOENT the section is empty, -ENOTSUP it has more
 * than cap bytes or an unknown compression, -EBADMSG, -ENOMEM.
 */
int uw_elf_section_read(const struct uw_elf *elf, const struct uw_section *section, uint64_t cap,
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

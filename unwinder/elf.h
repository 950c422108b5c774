/*
 * unwinder/elf.h: a small bounded reader of ELF64 little-endian files.
 *
 * Files are read, never mapped: whoever cuts a mapped file short has us killed by
 * SIGBUS.  Only a caller who is prepared for that gives a view.  Every size is checked
 * against the file before anything is allocated for it.
 */
#ifndef UNWINDER_ELF_H
#define UNWINDER_ELF_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

/* Where an ELF image lies: in a file from base on, or in memory. */
struct uw_source {
	const uint8_t *image; /* borrowed; NULL: fd */
	int fd;
	uint64_t base;	     /* of the image in the file */
	uint64_t size;	     /* from base to the end */
	struct uw_view view; /* of the file; without bytes: none */
};

/* All of [off, off + size) or -EBADMSG where the file ends before; system codes as they came. */
int uw_source_read(const struct uw_source *source, uint64_t off, void *out, uint64_t size);

struct uw_phdr {
	uint32_t type, flags;
	uint64_t off, vaddr, file_size, mem_size, align;
};

struct uw_section {
	const char *name; /* in the elf's names, "" where it has none */
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

/* -ENOTSUP not ELF64 little-endian; -EBADMSG damaged headers.  Damaged sections: none. */
int uw_elf_init(struct uw_elf *elf, const struct uw_source *source);
void uw_elf_fini(struct uw_elf *elf);

/* The first of that name with contents in the file; NULL: none. */
const struct uw_section *uw_elf_section(const struct uw_elf *elf, const char *name);

/*
 * The section's bytes, decompressed where SHF_COMPRESSED or named .zdebug_…,
 * at most cap bytes; the caller frees them.  -ENOTSUP beyond cap.
 */
int uw_elf_section_read(const struct uw_elf *elf, const struct uw_section *section, uint64_t cap,
			uint8_t **out, size_t *size);

/* From NT_GNU_BUILD_ID; size 0 where the file has none. */
void uw_elf_build_id(const struct uw_elf *elf, struct uw_build_id *out);

#endif

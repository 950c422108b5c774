/*
 * symbolizer/elf/section.h: one section of debug information, read piece by piece.
 *
 * The sections of a large file need more memory than the library may use. So they stay in the file,
 * and pieces are read. A compressed section is unpacked once: to memory or, if larger than some
 * megabytes, to an unnamed file.
 */
#ifndef SYMBOLIZER_ELF_SECTION_H
#define SYMBOLIZER_ELF_SECTION_H

#include "symbolizer/elf/open.h"

struct sym_blocks;

struct sym_section {
	struct uw_source source;   /* of its bytes; without bytes: no such section */
	uint8_t *owned;		   /* the source's memory, if it belongs to this section */
	int own_fd;		   /* the source's fd, if it belongs to this section; -1 */
	struct sym_blocks *blocks; /* cached pages; owned; NULL: not cached */
};

/*
 * Open the section of this name, like ".debug_info", whether it is compressed (SHF_COMPRESSED with
 * zlib or zstd; or ".zdebug_info") or not. The image's descriptor or memory must stay as long as
 * the section. -ENOENT, -EBADMSG, -E2BIG: it would unpack to more than a compiler's output can,
 * -ENOTSUP, or a system code.
 */
int sym_section_open(const struct uw_elf *image, const char *name, struct sym_section *out);
/* The same with a section's header; of more than one name there may be several. */
int sym_section_open_header(const struct uw_elf *image, const Elf64_Shdr *header,
			    struct sym_section *out);
void sym_section_close(struct sym_section *section);

/*
 * Cache up to 8 MiB of the section's pages, because it is read in small pieces at various places.
 * If there is no memory, reads only take longer.
 */
void sym_section_keep_pages(struct sym_section *section);

/* Read all of [off, off + size). -EBADMSG: not inside the section. */
int sym_section_read(const struct sym_section *section, uint64_t off, void *out, uint64_t size);
/*
 * Do the same without a copy if the section is in memory. Otherwise the caller frees *owned. *out
 * is never NULL.
 */
int sym_section_map(const struct sym_section *section, uint64_t off, uint64_t size,
		    const uint8_t **out, uint8_t **owned);

/* Copy the string at off, up to its NUL, cut to room - 1 bytes. Return its length, or -EBADMSG. */
int sym_section_text(const struct sym_section *section, uint64_t off, char *out, size_t room);

#endif

/*
 * symbolizer/section.h: one section of debug information, read piece by piece.
 *
 * A large file's sections are larger than the memory there is to spend, so they
 * stay where they are and pieces are read; what is compressed is unpacked
 * once, to memory or, beyond some megabytes, to a file without a name.
 */
#ifndef SYMBOLIZER_SECTION_H
#define SYMBOLIZER_SECTION_H

#include "symbolizer/image.h"

struct sym_blocks;

struct sym_section {
	uint64_t size;	      /* 0: there is none */
	const uint8_t *bytes; /* all of it in memory; NULL: it is to be read */
	int fd;		      /* where it is to be read from */
	uint64_t off;
	uint8_t *owned;		   /* bytes, where they are ours */
	int own_fd;		   /* fd, where it is ours; -1 */
	struct sym_blocks *blocks; /* pages that were read; owned; NULL: none are kept */
};

/*
 * The section of that name, as ".debug_info", whether it is compressed (SHF_COMPRESSED with zlib
 * or zstd; ".zdebug_info") or not.  image is borrowed while it is used.  -ENOENT, -EBADMSG, -E2BIG
 * where it would unpack to more than a compiler's output can, -ENOTSUP, or a system code.
 */
int sym_section_open(const struct sym_image *image, const char *name, struct sym_section *out);
void sym_section_close(struct sym_section *section);

/*
 * It will be read in small pieces, here and there: up to 8 MiB of its pages are kept.  Without memory
 * for that it only takes longer.
 */
void sym_section_keep_pages(struct sym_section *section);

/* All of [off, off + size) or -EBADMSG. */
int sym_section_read(const struct sym_section *section, uint64_t off, void *out, uint64_t size);
/*
 * The same without a copy where it is in memory; else *owned is to be freed.  *out is never NULL.
 */
int sym_section_map(const struct sym_section *section, uint64_t off, uint64_t size,
		    const uint8_t **out, uint8_t **owned);

/*
 * The text at off, up to its NUL, cut where it is longer than room - 1; gives its length.  -EBADMSG.
 */
int sym_section_text(const struct sym_section *section, uint64_t off, char *out, size_t room);

#endif

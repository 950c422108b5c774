/*
 * symbolizer/elf/open.h: opens ELF files from descriptors and memory, for their names and lines.
 *
 * Every span is checked against the file's size before it is read. If the file shrinks meanwhile, a
 * read fails; there is no signal. Both ELF classes are supported, but only little-endian.
 */
#ifndef SYMBOLIZER_ELF_OPEN_H
#define SYMBOLIZER_ELF_OPEN_H

#include <stddef.h>
#include <stdint.h>

#include "base/elf.h"

/*
 * Open an ELF file. The descriptor or the bytes are borrowed. If only its section headers are cut
 * off (sections_err), the segments are usable. -EBADMSG: damaged; -ENOTSUP: not little-endian ELF;
 * or a system code. After success the caller must call uw_elf_fini; after failure not.
 */
int sym_elf_open_fd(struct uw_elf *elf, int fd, uint64_t elf_off);
int sym_elf_open_viewed(struct uw_elf *elf, int fd, uint64_t elf_off, const struct uw_view *view);
int sym_elf_open_bytes(struct uw_elf *elf, const void *bytes, size_t size);

/*
 * Return a copy of [off, off + size) on the heap, followed by a NUL; the caller frees it. off is
 * relative to the ELF header. -EBADMSG: the file ends before, or size exceeds limit.
 */
int sym_elf_load(const struct uw_elf *elf, uint64_t off, uint64_t size, uint64_t limit, void **out);

#endif

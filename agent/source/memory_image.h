/* agent/source/memory_image.h: reads ELF files from the memory they are mapped in. */
#ifndef AGENT_SOURCE_MEMORY_IMAGE_H
#define AGENT_SOURCE_MEMORY_IMAGE_H

#include "unwinder/unwinder.h"

/*
 * Read the build-id of the file whose ELF header is mapped at start. -ENOENT if memory has no ELF
 * header there, or no build-id.
 */
int image_build_id(uw_read_fn read, void *ctx, uint64_t start, struct uw_build_id *out);

/*
 * Read the build-id of an ELF file, 32-bit or 64-bit, by its program headers. -ENOENT if the file
 * has none.
 */
int image_file_build_id(int fd, struct uw_build_id *out);

/* Read the build-id of the running kernel. Its size is 0 if it cannot be read. */
void image_kernel_build_id(struct uw_build_id *out);

struct image_load {
	uint64_t start, end, off; /* whole pages; off: file offset */
	uint32_t flags;		  /* PF_* */
};

/*
 * Return the segments of the file whose ELF header is mapped at start. The return value is their
 * number, at most max; 0 if memory has no ELF header there.
 */
size_t image_loads(uw_read_fn read, void *ctx, uint64_t start, struct image_load *out, size_t max);

/*
 * Rebuild the file that is mapped from start on. Its segments are put at their file offsets, and
 * the load bias is subtracted from the addresses in the dynamic section, where the dynamic linker
 * had added it. Section headers are lost unless they were mapped. The caller frees *out.
 *
 * Return -ENOENT if memory has no ELF header at start or lacks part of a read-only segment, and
 * -ENOTSUP if the file is larger than 256 MiB.
 */
int image_read(uw_read_fn read, void *ctx, uint64_t start, uint8_t **out, size_t *size);

#endif

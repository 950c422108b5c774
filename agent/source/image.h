/*
 * agent/source/image.h: ELF files as memory shows them: mapped, not stored.
 */
#ifndef AGENT_SOURCE_IMAGE_H
#define AGENT_SOURCE_IMAGE_H

#include "unwinder/unwinder.h"

/* The build-id of the file whose ELF header is mapped at start; -ENOENT: not there, or not read. */
int image_build_id(uw_read_fn read, void *ctx, uint64_t start, struct uw_build_id *out);

/* The build-id of an ELF file of either class, by its program headers; -ENOENT: it has none. */
int image_file_build_id(int fd, struct uw_build_id *out);

struct image_load {
	uint64_t start, end, off; /* whole pages; off: in the file */
	uint32_t flags;		  /* PF_* */
};

/*
 * Give the segments of the file whose ELF header is mapped at start, at most max of them.  Return
 * how many there are; 0: memory has no header there.
 */
size_t image_loads(uw_read_fn read, void *ctx, uint64_t start, struct image_load *out, size_t max);

/*
 * The file mapped from start on, its segments put back where the file has them
 * and dynamic addresses without the bias that a loader added.  Section headers
 * are lost unless they were mapped.  *out is the caller's to free.  -ENOENT
 * where memory has no ELF header there or lacks a part of a read-only segment,
 * -ENOTSUP beyond 256 MiB.
 */
int image_read(uw_read_fn read, void *ctx, uint64_t start, uint8_t **out, size_t *size);

#endif

/*
 * unwinder/procs.h: the ranges of all FDEs of an object (schema/procs.h), in
 * place: which procedure covers an address, and where none does, without reading
 * call-frame information.
 */
#ifndef UNWINDER_PROCS_H
#define UNWINDER_PROCS_H

#include <stddef.h>
#include <stdint.h>

#include "schema/procs.h"
#include "unwinder/ehframe.h"
#include "unwinder/unwinder.h"

struct uw_procs {
	const struct procs_header *header; /* the blob; borrowed, as is the next */
	const struct procs_entry *entries;
	const uint32_t *group; /* starts of entries 0, PROCS_GROUP, … */
	struct uw_blob *kept;  /* borrowed; NULL: all of it is there */
};

/* The blob begins at a multiple of 8.  -EBADMSG not one, or damaged; -ENOTSUP of another version. */
int uw_procs_open(struct uw_procs *procs, const void *blob, size_t size);
/* Of a blob that is read as it is needed, and outlives this. */
int uw_procs_open_kept(struct uw_procs *procs, struct uw_blob *blob);

/*
 * Of the FDEs of n sections, whose indexes this makes; of one range the first is kept.  A blob for
 * the caller to free.  -ENOTSUP: they overlap, or lie too far apart.
 */
int uw_procs_build(struct uw_frames *const frames[], unsigned int n, uint16_t machine,
		   uint64_t src_size, uint64_t src_hash, uint8_t **blob, size_t *size);

/*
 * The procedure around vaddr, or -ENOENT and the range without any: 0 and UINT64_MAX at the ends.
 * Others: that part could not be read, or is damaged.
 */
int uw_procs_find(const struct uw_procs *procs, uint64_t vaddr, uint64_t *start, uint64_t *end);
/* How many end at or before vaddr; fails as below. */
int uw_procs_before(const struct uw_procs *procs, uint64_t vaddr, size_t *n);
/* By rank, below n; as above. */
int uw_procs_at(const struct uw_procs *procs, size_t i, uint64_t *start, uint64_t *end);

#endif

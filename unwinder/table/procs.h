/*
 * unwinder/table/procs.h: the ranges of all FDEs of an object (schema/procs_blob.h), used in place. They show
 * which procedure covers an address, or that none does, without reading call-frame information.
 */
#ifndef UNWINDER_TABLE_PROCS_H
#define UNWINDER_TABLE_PROCS_H

#include <stddef.h>
#include <stdint.h>

#include "schema/procs_blob.h"
#include "unwinder/cfi/ehframe.h"
#include "unwinder/unwinder.h"

struct uw_procs {
	const struct procs_header *header; /* the blob; borrowed, as are entries and group */
	const struct procs_entry *entries;
	const uint32_t *group;	/* starts of entries 0, PROCS_GROUP, … */
	struct uw_blob *stored; /* borrowed; NULL: the whole blob is in memory */
};

/*
 * Open and check a whole blob, which must be aligned to 8. -EBADMSG: it is of another kind, or
 * damaged. -ENOTSUP: it has another version.
 */
int uw_procs_open(struct uw_procs *procs, const void *blob, size_t size);

/*
 * Do the same with a blob that is read while it is needed, and that outlives procs. The entries are
 * not checked.
 */
int uw_procs_open_stored(struct uw_procs *procs, struct uw_blob *blob);

/*
 * Make a blob of the FDEs of n sections; the caller frees it. This makes the sections' indexes. If
 * two FDEs have the same range, only one is stored. -ENOTSUP: FDEs overlap, or lie too far apart.
 */
int uw_procs_build(struct uw_frames *const frames[], unsigned int n, uint16_t machine,
		   uint64_t src_size, uint64_t src_hash, uint8_t **blob, size_t *size);

/*
 * Return the procedure around vaddr. -ENOENT: there is none, and [*start, *end) is the gap, which
 * begins at 0 before the first and ends at UINT64_MAX after the last. Other errors: that part
 * cannot be read, or is damaged.
 */
int uw_procs_find(const struct uw_procs *procs, uint64_t vaddr, uint64_t *start, uint64_t *end);

/*
 * Count the procedures that end at or before vaddr. Fails if that part cannot be read, or is
 * damaged.
 */
int uw_procs_before(const struct uw_procs *procs, uint64_t vaddr, size_t *n);
/* Return procedure i, which must be below n. Fails likewise. */
int uw_procs_at(const struct uw_procs *procs, size_t i, uint64_t *start, uint64_t *end);

#endif

/*
 * unwinder/table_build.h: call-frame information → a compiled table (schema/table.h).
 *
 * What compilers commonly write is decoded by a fast path here; everything
 * else, and everything the fast path is not sure of, by cfi.c, whose rows the
 * table repeats.  Where FDEs overlap or are damaged the table has no answer, so
 * that it never differs from asking the file.  Code is not looked at: a signal
 * trampoline told by its code, which may lie in padding or where an FDE ends, is
 * for the reader to see first (schema/table.h).
 */
#ifndef UNWINDER_TABLE_BUILD_H
#define UNWINDER_TABLE_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/types.h>

#include "unwinder/arch.h"
#include "unwinder/cfi.h"
#include "unwinder/unwinder.h"

/* Gaps between FDEs below this are padding between functions, not code without FDEs. */
#define UW_PADDING_MAX 16

struct uw_table_source {
	const struct uw_arch *arch;
	const struct uw_cfi *cfi[UW_FRAMES_N]; /* an earlier one has the last word; or NULL */
	const struct uw_build_id *build_id;
	const struct uw_segment *segments;
	size_t n_segments;
	/* Asked again and again while a table is made; true: give it up.  NULL: nobody asks. */
	bool (*stop)(void *ctx);
	void *stop_ctx;
};

/*
 * What one object's table may take.  The largest files known have 1.3 million FDEs and 10 million
 * rows; a table of 16 million rows (128 MB of them) is well within the bounds.
 */
#define UW_TABLE_FDES_MAX ((size_t)4 << 20)
#define UW_TABLE_ROWS_MAX ((size_t)32 << 20)
/*
 * Bytes of call-frame information that may be decoded: 5 s of work.  What the general decoder sees
 * to costs so many times as much, its CIE's instructions included, which are run for each FDE.
 */
#define UW_TABLE_WORK_MAX     ((uint64_t)1 << 30)
#define UW_TABLE_WORK_GENERAL 8

/* What the sections' bytes are known by: src_size and src_hash of a header. */
void uw_table_identify(const struct uw_table_source *source, __u64 *size, __u64 *hash);

/*
 * A blob for the caller to free.  -ENOENT there is nothing to compile; -ENOTSUP
 * more than a table can hold; -EFBIG more than the bounds above; -ECANCELED
 * stop said so; -ENOMEM.
 */
int uw_table_build(const struct uw_table_source *source, uint8_t **blob, size_t *size);

#endif

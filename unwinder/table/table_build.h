/*
 * unwinder/table/table_build.h: compiles call-frame information to a table (schema/table_blob.h).
 *
 * A fast decoder handles what compilers commonly write. cfi.c handles everything else, and the
 * table repeats its rows. Where FDEs overlap or are damaged, the table has no rule, so that it
 * never differs from the file. Code is not looked at: a signal trampoline that is recognized by its
 * code may lie in padding or where an FDE ends, and the reader must check for it first
 * (schema/table_blob.h).
 */
#ifndef UNWINDER_TABLE_TABLE_BUILD_H
#define UNWINDER_TABLE_TABLE_BUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/types.h>

#include "unwinder/arch/arch.h"
#include "unwinder/cfi/cfi.h"
#include "unwinder/unwinder.h"

/* Smaller gaps between FDEs are padding between functions, not code without FDEs. */
#define UW_PADDING_MAX 16

struct uw_table_source {
	const struct uw_arch *arch;
	const struct uw_cfi *cfi[UW_FRAMES_N]; /* an earlier one takes precedence; NULL: none */
	const struct uw_build_id *build_id;
	const struct uw_segment *segments;
	size_t n_segments;
	/* Called again and again while a table is made; true: give up. NULL: never give up. */
	bool (*stop)(void *ctx);
	void *stop_ctx;
};

/*
 * unwinder/limits.h limits the functions and rows of one object's table. The largest known files have
 * 1.3 million FDEs and 10 million rows. A table of 16 million rows (128 MB of them) is well within the
 * limits.
 *
 * Bytes of call-frame information that may be decoded: 5 s of work. Bytes that the general decoder
 * handles count this many times. That includes the CIE's instructions, which are run for each FDE.
 */
#define UW_TABLE_WORK_MAX     ((uint64_t)1 << 30)
#define UW_TABLE_WORK_GENERAL 8

/* Return the identity of the sections' bytes: src_size and src_hash of a header. */
void uw_table_identify(const struct uw_table_source *source, __u64 *size, __u64 *hash);

/*
 * Make a table; the caller frees the blob. -ENOENT: there is nothing to compile. -ENOTSUP: it is
 * more than a table can hold. -EFBIG: it exceeds the limits above. -ECANCELED: stop returned true.
 * -ENOMEM.
 */
int uw_table_build(const struct uw_table_source *source, uint8_t **blob, size_t *size);

#endif

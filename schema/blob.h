/*
 * schema/blob.h: the common beginning of everything that is stored as one byte string (table_blob.h,
 * procs_blob.h, symbols_blob.h). With it, a blob can be used before all of it was read.
 *
 *   header   struct blob_header and the format's own fields
 *   sums     8 bytes for each block of BLOB_BLOCK bytes behind the front, the last one
 *            shorter: XXH64 of the block, seed: the block's number
 *   …        what every use needs; the front ends here
 *   …        what is read only when it is needed
 *
 * All numbers are little-endian. The front contains the checksum of each block. So a reader that
 * has checked the front can check each block when it is read. A damaged block is not used at all.
 */
#ifndef SCHEMA_BLOB_H
#define SCHEMA_BLOB_H

#include <linux/types.h>

#define BLOB_BLOCK 4096u

struct blob_header {
	__u32 magic;
	__u16 version; /* of the format */
	__u16 machine; /* EM_…, or 0 */
	__u32 header_size;
	__u32 front; /* bytes of the front, with the header; a multiple of 8 */
	__u64 size;  /* of the whole blob */
	/*
	 * XXH64 of the front behind this header. The seed is the XXH64 of this header with this
	 * field as 0, seed 0.
	 */
	__u64 checksum;
};

_Static_assert(sizeof(struct blob_header) == 32, "header");
_Static_assert(__builtin_offsetof(struct blob_header, size) == 16, "size");
_Static_assert(__builtin_offsetof(struct blob_header, checksum) == 24, "checksum");

#endif

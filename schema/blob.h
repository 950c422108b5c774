/*
 * schema/blob.h: how everything begins that is kept as one string of bytes (table.h,
 * procs.h, symbols.h), so that it can be used before all of it was read.
 *
 *   header   BLOB_HEADER bytes and the format's own
 *   sums     8 bytes for each block of BLOB_BLOCK bytes behind the front, the last one
 *            shorter: XXH64 of it, seed: its number
 *   …        what every use needs
 *   front    what is sought when it is needed
 *
 * Little-endian.  Whoever has read the front, and found it sound, knows what each
 * block must be; where one is not, nothing of it is used.
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
	__u32 front;	/* how many bytes the checksum is of; a multiple of 8 */
	__u64 size;	/* of it all */
	__u64 checksum; /* XXH64 of the rest of the front, seeded with that of this header, seed 0,
			 * this field as 0 */
};

_Static_assert(sizeof(struct blob_header) == 32, "header");
_Static_assert(__builtin_offsetof(struct blob_header, size) == 16, "size");
_Static_assert(__builtin_offsetof(struct blob_header, checksum) == 24, "checksum");

#endif

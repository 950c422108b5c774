/*
 * schema/procs_blob.h: the ranges of one object's procedures, from its FDEs. The bytes are the same in
 * memory and in a store, where they accompany the object's table (table_blob.h).
 *
 * All numbers are little-endian, and the bytes are read in place, as those of table_blob.h (see blob.h):
 * a header, sums, and the start of each PROCS_GROUPth entry; behind the front n entries, ascending,
 * not empty, and not overlapping. An object whose FDEs overlap or span more than 4 GiB has no such
 * blob.
 */
#ifndef SCHEMA_PROCS_BLOB_H
#define SCHEMA_PROCS_BLOB_H

#include <linux/types.h>

#include "schema/blob.h"

#define PROCS_MAGIC   0x4350574fu /* "OWPC" */
#define PROCS_VERSION 2
#define PROCS_GROUP   512u

struct procs_header {
	struct blob_header blob;
	__u64 base;	/* vaddr to which starts are relative */
	__u64 src_size; /* as in table_blob.h */
	__u64 src_hash;
	__u32 n;
	__u32 group; /* offset of the starts of entries 0, PROCS_GROUP, …: u32 each */
};

struct procs_entry {
	__u32 start; /* relative to base */
	__u32 size;  /* bytes of code, > 0 */
};

_Static_assert(sizeof(struct procs_header) == 64, "header");
_Static_assert(__builtin_offsetof(struct procs_header, n) == 56, "n");
_Static_assert(sizeof(struct procs_entry) == 8, "entry");

#endif

/*
 * schema/procs.h: where one object's procedures begin and end, as its FDEs say:
 * the same bytes in memory and in a store, beside its table (table.h).
 *
 * Little-endian, read in place, of a table.h's kind (blob.h): a header, sums, and where
 * each PROCS_GROUP entries begin; behind the front n entries, ascending, none empty,
 * none overlapping.  Objects whose FDEs overlap or reach over more than 4 GiB have none.
 */
#ifndef SCHEMA_PROCS_H
#define SCHEMA_PROCS_H

#include <linux/types.h>

#include "schema/blob.h"

#define PROCS_MAGIC   0x4350574fu /* "OWPC" */
#define PROCS_VERSION 2
#define PROCS_GROUP   512u

struct procs_header {
	struct blob_header blob;
	__u64 base;	/* vaddr that starts count from */
	__u64 src_size; /* as in table.h */
	__u64 src_hash;
	__u32 n;
	__u32 group; /* offset of the starts of entries 0, PROCS_GROUP, …: u32 each */
};

struct procs_entry {
	__u32 start; /* from base */
	__u32 size;  /* bytes of code, > 0 */
};

_Static_assert(sizeof(struct procs_header) == 64, "header");
_Static_assert(__builtin_offsetof(struct procs_header, n) == 56, "n");
_Static_assert(sizeof(struct procs_entry) == 8, "entry");

#endif

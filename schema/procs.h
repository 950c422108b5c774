/*
 * schema/procs.h: where one object's procedures begin and end, as its FDEs say:
 * the same bytes in memory and in a store, beside its table (table.h).
 *
 * Little-endian, read in place: a header, then n entries, ascending, none empty,
 * none overlapping.  Objects whose FDEs overlap or reach over more than 4 GiB
 * have none.
 */
#ifndef SCHEMA_PROCS_H
#define SCHEMA_PROCS_H

#include <linux/types.h>

#define PROCS_MAGIC   0x4350574fu /* "OWPC" */
#define PROCS_VERSION 1

struct procs_header {
	__u32 magic;
	__u16 version;
	__u16 machine;	/* EM_… */
	__u64 size;	/* of it all */
	__u64 checksum; /* XXH64 of it all, seed 0, this field as 0 */
	__u64 base;	/* vaddr that starts count from */
	__u64 src_size; /* as in table.h */
	__u64 src_hash;
	__u32 n;
	__u32 zero;
	__u8 spare[8];
};

struct procs_entry {
	__u32 start; /* from base */
	__u32 size;  /* bytes of code, > 0 */
};

_Static_assert(sizeof(struct procs_header) == 64, "header");
_Static_assert(__builtin_offsetof(struct procs_header, checksum) == 16, "checksum");
_Static_assert(__builtin_offsetof(struct procs_header, n) == 48, "n");
_Static_assert(sizeof(struct procs_entry) == 8, "entry");

#endif

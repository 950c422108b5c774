/*
 * schema/dynamic_blob.h: unwind information that a process registered for code that it generated at run
 * time, as it was read from the process's memory. The bytes are the same in memory, in a capture
 * and in a file.
 *
 * All numbers are little-endian, and the bytes are read in place: a header, n_procs procedures by
 * ascending start, which do not overlap, then what they refer to: names, regions, and blocks of
 * CIEs and FDEs. The last byte is 0, so every name ends.
 */
#ifndef SCHEMA_DYNAMIC_BLOB_H
#define SCHEMA_DYNAMIC_BLOB_H

#include <linux/types.h>

#define DYNAMIC_MAGIC	0x4d44574fu /* "OWDM" */
#define DYNAMIC_VERSION 1

/*
 * Limits: bytes that are read from a process's memory, and bytes in all, with the names from files.
 */
#define DYNAMIC_LISTS_MAX (1u << 20)
#define DYNAMIC_SIZE_MAX  (8u << 20)

enum {
	DYNAMIC_CUT = 1,     /* incomplete: there was more than the limits allow */
	DYNAMIC_TORN = 2,    /* it changed while it was read */
	DYNAMIC_NAMES = 8,   /* only names, from a file: not for unwinding */
	DYNAMIC_DAMAGED = 4, /* entries that could not be read or understood are missing */
};

struct dynamic_header {
	__u32 magic;
	__u16 version;
	__u16 machine; /* EM_… */
	__u64 size;    /* of the whole */
	/*
	 * XXH64 of what follows the header. The seed is the XXH64 of the header with this field as
	 * 0.
	 */
	__u64 checksum;
	/* Identifies the process's lists when they were read; changes with their contents. */
	__u64 mark;
	__u32 n_procs;
	__u32 flags;
	__u8 spare[24];
};

enum {
	DYNAMIC_NAME = 0, /* only the name is known */
	/* data: struct dynamic_region, each with its operations, to the end of data */
	DYNAMIC_REGIONS = 1,
	/* data: a block of .eh_frame, in which entry is the offset of the FDE */
	DYNAMIC_FDE = 2,
};

struct dynamic_proc {
	__u64 start, end; /* addresses in the process; end is exclusive */
	__u64 bias;	  /* FDE: added to the addresses in the FDE */
	__u64 base;	  /* FDE: the address of data in the process */
	__u32 kind;
	__u32 name; /* offset in the whole; 0: no name */
	__u32 data, size;
	__u32 entry;
	__u32 zero;
};

/* As in libunwind-dynamic(3), without the pointers. The operations are sorted by ascending when. */
struct dynamic_region {
	__s32 insn_count;
	__u32 op_count;
};

struct dynamic_op {
	__s8 tag;
	__s8 qp; /* without meaning on machines that have no predicates */
	__s16 reg;
	__s32 when;
	__u64 val;
};

_Static_assert(sizeof(struct dynamic_header) == 64, "header");
_Static_assert(__builtin_offsetof(struct dynamic_header, checksum) == 16, "checksum");
_Static_assert(sizeof(struct dynamic_proc) == 56, "procedure");
_Static_assert(sizeof(struct dynamic_region) == 8, "region");
_Static_assert(sizeof(struct dynamic_op) == 16, "operation");

#endif

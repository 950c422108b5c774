/*
 * schema/dynamic.h: unwind information that a process registered for code it
 * generated at run time, as it was read out of that process: the same bytes in
 * memory, in a capture and in a file.
 *
 * Little-endian, read in place: a header, n procedures by ascending start, none of
 * which overlap, then what they point to: names, regions, blocks of CIEs and FDEs.
 * The last byte is 0, so that every name ends.
 */
#ifndef SCHEMA_DYNAMIC_H
#define SCHEMA_DYNAMIC_H

#include <linux/types.h>

#define DYNAMIC_MAGIC	0x4d44574fu /* "OWDM" */
#define DYNAMIC_VERSION 1

/* No more than this is read out of a process's memory, and with names from files in all. */
#define DYNAMIC_LISTS_MAX (1u << 20)
#define DYNAMIC_SIZE_MAX  (8u << 20)

enum {
	DYNAMIC_CUT = 1,     /* there was more than is kept */
	DYNAMIC_TORN = 2,    /* it changed while it was read */
	DYNAMIC_NAMES = 8,   /* names alone, out of a file: nothing is to be walked by it */
	DYNAMIC_DAMAGED = 4, /* entries that could not be read or understood are left out */
};

struct dynamic_header {
	__u32 magic;
	__u16 version;
	__u16 machine;	/* EM_… */
	__u64 size;	/* of it all */
	__u64 checksum; /* XXH64 of what follows the header, seed: of the header, this as 0 */
	__u64 mark;	/* of the lists when they were read: another one, other contents */
	__u32 n_procs;
	__u32 flags;
	__u8 spare[24];
};

enum {
	DYNAMIC_NAME = 0,    /* no more is known than its name */
	DYNAMIC_REGIONS = 1, /* data: struct dynamic_region with their operations, to its end */
	DYNAMIC_FDE = 2,     /* data: a block of .eh_frame, with the FDE at entry */
};

struct dynamic_proc {
	__u64 start, end; /* addresses of the process; end is past the last */
	__u64 bias;	  /* FDE: what is added to the addresses it states */
	__u64 base;	  /* FDE: the address that data had */
	__u32 kind;
	__u32 name; /* where in the whole; 0: it has none */
	__u32 data, size;
	__u32 entry;
	__u32 zero;
};

/* As libunwind-dynamic(3) has them, without the pointers; operations by ascending when. */
struct dynamic_region {
	__s32 insn_count;
	__u32 op_count;
};

struct dynamic_op {
	__s8 tag;
	__s8 qp; /* of no meaning on machines without predicates */
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

/*
 * schema/table_blob.h: the compiled unwind rules of one object. The bytes are the same in memory, in a
 * file and in a store.
 *
 * All numbers are little-endian. The bytes are position-independent and read in place. Every part
 * begins at a multiple of TABLE_ALIGN from the start; offsets and sizes are in bytes.
 *
 *   part     entry            what
 *   header   192              struct table_header
 *   sum      8                of each block behind the front (blob.h)
 *   seg      24               struct table_seg: which file offsets have which vaddr
 *   superblock  8             struct table_superblock: one per 256 blocks, and one more
 *                             behind the last
 *   rule     8                a packed rule, see below
 *   ext      16 or 32         of each rule: saved registers, TABLE_EXT_* × s16
 *   slow     varies           struct table_slow, each followed by its struct table_reg
 *   expr     varies           DWARF expressions of those, back to back
 *                             Here the front ends; what follows is read when it is needed.
 *   block    2 × 257 each     first row of each block of 256 units, relative to its
 *                             superblock's row; 257 for each superblock
 *   key      1                of each row: the unit in its block where the row begins;
 *                             TABLE_KEY_PAD bytes of 0xff follow the last
 *   rule_index  2 (or 4)      of each row: the rule's number (4 bytes with TABLE_WIDE_INDEX)
 *
 * The ranges of procedures are not part of the table. They are a blob of their own
 * (schema/procs_blob.h), which has the start and the end of each, and is stored where look-ups need it.
 *
 * A unit is 1 << unit_shift bytes of code, counted from base: 1 byte on x86_64, an instruction on
 * aarch64. A row is valid from its unit to the next row's unit. The row of a unit is the last row
 * that does not begin after it. If there is no such row, or its rule is TABLE_NONE, the table has
 * no answer, and the reader must look into the file. The reader must also look into the file if the
 * code at the pc is that of a signal trampoline. A trampoline without unwind information may be in
 * the padding after a function, and the function's row continues through the padding. A return
 * address at the beginning of the trampoline, less one, may even be in the function itself.
 *
 * Adjacent rows with the same rule are merged, so a row does not end where its procedure ends. But
 * where the next procedure begins, there is a row of its own, whose rule says so. One such row may
 * be left out: if both rows have the CFA as a call leaves it (TABLE_SP, 8 on x86_64, 0 on aarch64)
 * and are otherwise the same, and the space between the procedures is too small for a signal
 * trampoline (7 bytes on x86_64, 8 on aarch64), the second row is left out.
 *
 * A packed rule:
 *
 *   bits    0–2   enum table_kind
 *           3     signal: the caller was interrupted, its pc is exact
 *           4     the return address has an authentication code
 *           5     a procedure begins where the row does
 *           6     some register of ext is saved
 *           7     based: the place of some saved register is relative to the frame pointer
 *           8–31  offset of the CFA from its register, s24 × 8 bytes
 *           32–47 place of the saved frame pointer, relative to the CFA, s16 × 8 bytes
 *           48–63 place of the return address, likewise
 *
 * A place is TABLE_SAME if the register has not changed. The return address is TABLE_UNDEFINED in
 * an outermost frame. A slot below sp has been popped already. If the CFA is relative to sp, such a
 * slot is written as TABLE_SAME; if the CFA is relative to another register, the reader compares
 * the slot with sp. For TABLE_SLOW, bits 32–63 are the offset of the record in slow, and bits 8–31
 * are 0.
 *
 * ext on x86_64: the places of rbx r12 r13 r14 r15, s16 × 8 bytes from the CFA; on aarch64: of
 * x19…x28. The last elements of ext have other meanings. The last s16 is the CFA's register, for
 * TABLE_REG and TABLE_DEREF. The last but one is, in a based rule, the set of places that are
 * relative to the frame pointer (bit i: ext[i]; TABLE_BASED_FP: the frame pointer's own place). The
 * one before that is the number that TABLE_DEREF adds. The elements between, and everything unused,
 * are TABLE_SAME.
 *
 * How a walker applies a rule, with the frame's registers and pc:
 *
 *   TABLE_SP, _FP, _REG  CFA = register + offset
 *   TABLE_DEREF          CFA = *(register + offset) + add × 8: a realigned stack
 *   TABLE_PLT            CFA = sp + offset + (((pc & mask) >= least) << shift): a PLT
 *                        entry pushes before its last instructions.  Bits 32–36 of the rule
 *                        are mask, 37–41 least, 42–46 shift; the frame pointer and
 *                        ext are unchanged.  pc is the exact pc, not less one.
 *   ra                   *(CFA + place), always relative to the CFA
 *   fp, ext              *((based ? fp : CFA) + place × 8).  A place relative to fp comes
 *                        from an expression, and is read even if it is below sp.
 */
#ifndef SCHEMA_TABLE_BLOB_H
#define SCHEMA_TABLE_BLOB_H

#include <linux/types.h>

#include "schema/blob.h"

#define TABLE_MAGIC	  0x4254574fu /* "OWTB" */
#define TABLE_VERSION	  3
#define TABLE_HEADER_SIZE 192u
#define TABLE_ALIGN	  64u
#define TABLE_KEY_PAD	  32u	      /* bytes that may be read after the last key */
#define TABLE_BUILDER	  5u	      /* raised when the same file gives another table */
#define TABLE_NO_BLOCK	  0xffffffffu /* a superblock in which no row begins */

#define TABLE_BLOCK_UNITS	256u
#define TABLE_SUPERBLOCK_UNITS	65536u
#define TABLE_SUPERBLOCK_BLOCKS 257u /* entries of block for each superblock: 256 and the end */

#define TABLE_SAME	0x7fff
#define TABLE_UNDEFINED 0x7ffe

#define TABLE_EXT_X86_64  8u
#define TABLE_EXT_AARCH64 16u

enum table_flag {
	TABLE_WIDE_INDEX = 1 << 0, /* more than 65,536 rules */
};

enum table_kind {
	TABLE_NONE,  /* look into the file */
	TABLE_SLOW,  /* a record: expressions, unusual registers or offsets */
	TABLE_SP,    /* CFA = sp + offset */
	TABLE_FP,    /* CFA = fp + offset; differs from TABLE_SP in bit 0 only */
	TABLE_REG,   /* CFA = another register + offset */
	TABLE_PLT,   /* CFA = sp + offset, and more after a PLT entry's push */
	TABLE_DEREF, /* CFA = *(register + offset) + add */
	TABLE_KINDS
};

#define TABLE_RULE_KIND	  7u
#define TABLE_RULE_SIGNAL (1u << 3)
#define TABLE_RULE_SIGNED (1u << 4)
#define TABLE_RULE_BEGINS (1u << 5)
#define TABLE_RULE_SAVED  (1u << 6)
#define TABLE_RULE_BASED  (1u << 7)
#define TABLE_BASED_FP	  (1 << 14)

struct table_header {
	struct blob_header blob;
	__u64 base;	/* vaddr of unit 0 */
	__u64 src_size; /* of the unwind sections from which the table was made */
	__u64 src_hash; /* XXH64 of these sections, each seeded with the hash of the one before */
	__u8 build_id_size;
	__u8 unit_shift;
	__u8 ext_slots; /* TABLE_EXT_… */
	__u8 zero[5];
	__u8 build_id[32];
	__u32 span;   /* units that the table covers */
	__u32 n_rows; /* = number of keys = number of rule indexes */
	__u32 n_rules;
	__u32 n_superblocks; /* one more struct table_superblock follows them */
	__u32 n_blocks;	     /* 257 for each superblock that has some */
	__u32 n_segs;
	__u32 slow_size;
	__u32 expr_size;
	/* offsets of the parts */
	__u32 seg, superblock, block, key, rule_index, rule, ext, slow, expr;
	__u32 builder; /* TABLE_BUILDER */
	__u32 flags;   /* enum table_flag */
	__u8 spare[20];
};

struct table_seg {
	__u64 file_off, vaddr, size;
};

struct table_superblock {
	__u32 row;   /* the superblock's first row, or the next row if it has none */
	__u32 block; /* index of its first entry in block, or TABLE_NO_BLOCK */
};

struct table_slow {
	__s64 cfa_off;	/* or the offset in expr, if cfa_size > 0 */
	__u32 cfa_size; /* of the CFA's expression */
	__u8 cfa_reg;
	__u8 ra;    /* the column of the return address */
	__u8 flags; /* TABLE_RULE_SIGNAL, TABLE_RULE_SIGNED */
	__u8 n_regs;
};

struct table_reg {
	__s64 off;  /* from the CFA; or the offset in expr */
	__u32 size; /* of the expression */
	__u8 reg;
	__u8 kind; /* enum table_reg_kind */
	__u8 from; /* TABLE_REG_REGISTER: the register that holds the value */
	__u8 zero;
};

enum table_reg_kind { /* DWARF 5 §6.4.1 */
		      TABLE_REG_SAME,
		      TABLE_REG_UNDEFINED,
		      TABLE_REG_AT_CFA,
		      TABLE_REG_CFA_PLUS,
		      TABLE_REG_REGISTER,
		      TABLE_REG_AT_EXPR,
		      TABLE_REG_EXPR,
		      TABLE_REG_KINDS
};

_Static_assert(sizeof(struct table_header) == TABLE_HEADER_SIZE, "header");
_Static_assert(__builtin_offsetof(struct table_header, build_id) == 64, "build_id");
_Static_assert(__builtin_offsetof(struct table_header, span) == 96, "span");
_Static_assert(__builtin_offsetof(struct table_header, seg) == 128, "seg");
_Static_assert(__builtin_offsetof(struct table_header, flags) == 168, "flags");
_Static_assert(sizeof(struct table_seg) == 24, "seg");
_Static_assert(sizeof(struct table_superblock) == 8, "sup");
_Static_assert(sizeof(struct table_slow) == 16, "slow");
_Static_assert(sizeof(struct table_reg) == 16, "reg");

#endif

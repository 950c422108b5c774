/*
 * schema/table.h: one object's unwind rules, compiled: the same bytes in memory,
 * in a file and in a store.
 *
 * Little-endian, position-independent, read in place.  Every part begins at a
 * multiple of TABLE_ALIGN from the start; offsets and sizes are in bytes.
 *
 *   part     entry            what
 *   header   192              struct table_header
 *   sum      8                of each block behind the front (blob.h)
 *   seg      24               struct table_seg: which file offsets are which vaddr
 *   sup      8                struct table_sup: one per 256 blocks, and one more behind the last
 *   rule     8                a rule word, see below
 *   ext      16 or 32         of each rule: saved registers, TABLE_EXT_* × s16
 *   slow     varies           struct table_slow, each followed by its struct table_reg
 *   expr     varies           DWARF expressions of those, back to back
 *                             Here the front ends; what follows is read as it is needed.
 *   blk      2 × 257 a sup    first row of each block of 256 units, counted from the sup's row
 *   key      1                of each row: the unit in its block where it begins;
 *                             TABLE_KEY_PAD bytes of 0xff follow the last
 *   rid      2 (or 4)         of each row: which rule (4 bytes with TABLE_WIDE_RID)
 *
 * Where procedures begin and end is no part of it: those ranges are a blob of their
 * own (schema/procs.h), which says both and is kept where look-ups need it.
 *
 * A unit is 1 << unit_shift bytes of code from base on: 1 byte on x86_64, an
 * instruction on aarch64.  A row holds from its unit to the next row's.  The row
 * of a unit is the last that does not begin behind it; where none is, and where
 * its rule is TABLE_NONE, the table has no answer and the file must be asked.  So
 * must it where the code at the pc is a signal trampoline's: one without unwind
 * information may lie in the padding behind a function, which a row goes on through,
 * and a return address there, less one, in the function itself.
 *
 * Rows of the same rule are one, and so a row does not end where its procedure does.  But
 * where the next begins is a row of its own, whose rule says so.  Of two rows that both
 * have the CFA as a call leaves it (TABLE_SP, 8 on x86_64, 0 on aarch64) and are the same
 * otherwise, the second is left out where less than a signal trampoline fits between the
 * procedures: 7 bytes on x86_64, 8 on aarch64.
 *
 * A rule word:
 *
 *   bits    0–2   enum table_kind
 *           3     signal: the caller was interrupted, its pc is exact
 *           4     the return address carries an authentication code
 *           5     a procedure begins where the row does
 *           6     some register of ext is saved
 *           7     based: some saved register's place counts from the frame pointer
 *           8–31  CFA's offset from its register, s24 × 8 bytes
 *           32–47 where the frame pointer is saved, from the CFA, s16 × 8 bytes
 *           48–63 the return address, likewise
 *
 * A place is TABLE_SAME where the register is as it was; the return address
 * TABLE_UNDEFINED in an outermost frame.  Slots below sp were popped already and
 * are written as TABLE_SAME where the CFA counts from sp; where it counts from
 * another register the reader compares.  Of TABLE_SLOW bits 32–63 are the offset
 * of the record in slow and bits 8–31 are 0.
 *
 * ext, x86_64: where rbx r12 r13 r14 r15 are saved, s16 × 8 bytes from the CFA;
 * aarch64: x19…x28.  From behind, the last s16 is the CFA's register of TABLE_REG
 * and TABLE_DEREF, the next of a based word the set of places that count from the
 * frame pointer (bit i: ext[i]; TABLE_BASED_FP: the frame pointer's own), the next
 * what TABLE_DEREF adds.  Those between are TABLE_SAME, as is everything unused.
 *
 * How a walker applies them, with every register and the pc those of the frame:
 *
 *   TABLE_SP, _FP, _REG  CFA = register + offset
 *   TABLE_DEREF          CFA = *(register + offset) + add × 8: a realigned stack
 *   TABLE_PLT            CFA = sp + offset + (((pc & mask) >= least) << shift): a PLT
 *                        pushes before its last instructions.  Bits 32–36 of the word
 *                        are mask, 37–41 least, 42–46 shift; the frame pointer and
 *                        ext are as they were.  pc as it stands, not less one.
 *   ra                   *(CFA + place), always of the CFA
 *   fp, ext              *((based ? fp : CFA) + place × 8).  What counts from fp was
 *                        an expression and is read wherever it lies, even below sp.
 */
#ifndef SCHEMA_TABLE_H
#define SCHEMA_TABLE_H

#include <linux/types.h>

#include "schema/blob.h"

#define TABLE_MAGIC	  0x4254574fu /* "OWTB" */
#define TABLE_VERSION	  3
#define TABLE_HEADER_SIZE 192u
#define TABLE_ALIGN	  64u
#define TABLE_KEY_PAD	  32u	      /* so many may be read from behind the last on */
#define TABLE_BUILDER	  5u	      /* raised when the same file gives another table */
#define TABLE_NO_BLOCK	  0xffffffffu /* a sup where no row begins */

#define TABLE_BLOCK_UNITS 256u
#define TABLE_SUP_UNITS	  65536u
#define TABLE_SUP_BLOCKS  257u /* entries of blk a sup has: 256 and the end */

#define TABLE_SAME	0x7fff
#define TABLE_UNDEFINED 0x7ffe

#define TABLE_EXT_X86_64  8u
#define TABLE_EXT_AARCH64 16u

enum table_flag {
	TABLE_WIDE_RID = 1 << 0, /* more than 65,536 rules */
};

enum table_kind {
	TABLE_NONE,  /* ask the file */
	TABLE_SLOW,  /* a record: expressions, odd registers, odd offsets */
	TABLE_SP,    /* CFA = sp + offset */
	TABLE_FP,    /* CFA = fp + offset; SP but for bit 0 */
	TABLE_REG,   /* CFA = another register + offset */
	TABLE_PLT,   /* CFA = sp + offset, and more behind a PLT entry's push */
	TABLE_DEREF, /* CFA = *(register + offset) + add */
	TABLE_KINDS
};

#define TABLE_WORD_KIND	  7u
#define TABLE_WORD_SIGNAL (1u << 3)
#define TABLE_WORD_SIGNED (1u << 4)
#define TABLE_WORD_BEGINS (1u << 5)
#define TABLE_WORD_SAVED  (1u << 6)
#define TABLE_WORD_BASED  (1u << 7)
#define TABLE_BASED_FP	  (1 << 14)

struct table_header {
	struct blob_header blob;
	__u64 base;	/* vaddr of unit 0 */
	__u64 src_size; /* of the unwind sections it was made from */
	__u64 src_hash; /* XXH64 of them, each seeded with the hash of the one before */
	__u8 build_id_size;
	__u8 unit_shift;
	__u8 ext_slots; /* TABLE_EXT_… */
	__u8 zero[5];
	__u8 build_id[32];
	__u32 span;   /* units the table speaks of */
	__u32 n_rows; /* = keys = rids */
	__u32 n_rules;
	__u32 n_sups; /* one more follows them */
	__u32 n_blks; /* 257 a sup that has some */
	__u32 n_segs;
	__u32 slow_size;
	__u32 expr_size;
	__u32 seg, sup, blk, key, rid, rule, ext, slow, expr; /* offsets */
	__u32 builder;					      /* TABLE_BUILDER */
	__u32 flags;					      /* enum table_flag */
	__u8 spare[20];
};

struct table_seg {
	__u64 file_off, vaddr, size;
};

struct table_sup {
	__u32 row; /* its first, or the one behind where it has none */
	__u32 blk; /* index of its first entry there, or TABLE_NO_BLOCK */
};

struct table_slow {
	__s64 cfa_off;	/* or offset in expr, where cfa_size > 0 */
	__u32 cfa_size; /* of the expression */
	__u8 cfa_reg;
	__u8 ra;    /* the column that holds the return address */
	__u8 flags; /* TABLE_WORD_SIGNAL, TABLE_WORD_SIGNED */
	__u8 n_regs;
};

struct table_reg {
	__s64 off;  /* from the CFA; or in expr */
	__u32 size; /* of the expression */
	__u8 reg;
	__u8 kind; /* enum table_reg_kind */
	__u8 from; /* TABLE_REG_REGISTER: which */
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
_Static_assert(sizeof(struct table_sup) == 8, "sup");
_Static_assert(sizeof(struct table_slow) == 16, "slow");
_Static_assert(sizeof(struct table_reg) == 16, "reg");

#endif

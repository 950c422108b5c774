/*
 * schema/plan.h: plans, by which the BPF programs copy memory of a process beside its stack.
 *
 * A plan is a list of at most PLAN_OPS_MAX operations on eight registers. It runs in a sampled thread after
 * its stack was copied, and appends pieces of memory to the record: the slices. It only reads the memory of
 * that thread's own process. At most PLAN_STEPS_MAX operations run, and at most PLAN_BYTES_MAX bytes are
 * appended; a word that cannot be read ends the plan, unless the operation says where it goes on then. enum
 * plan_end says how it ended.
 *
 * A slice is a head, u64, with the address in its low 56 bits and the number of 8-byte words in its high
 * eight bits, and then these words.
 *
 * The outer frames of a chain are mostly the same in one sample after another. So a record may refer to an earlier one of
 * its CPU, its base, for the last bytes of its slices: those that are not sent again. See struct plan_reference.
 *
 * This file includes <linux/types.h> only, because the BPF side has no libc.
 */
#ifndef SCHEMA_PLAN_H
#define SCHEMA_PLAN_H

#include <linux/types.h>

#define PLAN_OPS_MAX   64u
#define PLAN_STEPS_MAX 512u
#define PLAN_BYTES_MAX 32768u
#define PLAN_PIECE_MAX 2040u /* bytes that one operation copies; a multiple of 8 */
#define PLAN_PAGE      4096u
#define PLAN_NEAR_MAX  64u  /* bytes that are copied by way of a window */
#define PLAN_WINDOWS   4u   /* a power of two */
#define PLAN_SEEN_MAX  64u  /* a power of two */
#define PLAN_DENSE     256u /* a power of two */
#define PLAN_ADDR_BITS 56u
#define PLAN_CHUNK \
	128u /* what refers to a base is whole chunks, counted from the end; a multiple of 8 */
#define PLAN_LEAST 512u /* bytes: fewer are sent as they are */
#define PLAN_BASE_USES \
	32u /* records that refer to a base: one that is lost is not missed for long */
#define PLAN_BASE_REST \
	16u /* records that are sent as they are after a base to which nothing referred */
#define PLAN_PLANS_MAX 64u    /* plans in use at the same time */
#define PLAN_TASKS_MAX 16384u /* processes that have one */
#define PLAN_PIDS      4096u  /* a power of two: remainders of pids, by which they are counted */

enum plan_reg {
	PLAN_R0, /* R0 to R5 are 0 when the plan begins */
	PLAN_R1,
	PLAN_R2,
	PLAN_R3,
	PLAN_R4,
	PLAN_R5,
	PLAN_BASE,   /* a number that is the process's own: where the file of its runtime is */
	PLAN_THREAD, /* the thread pointer: fsbase */
	PLAN_REGS
};

/* What an operation does first. addr is r[src] + imm. */
enum plan_what {
	PLAN_STOP, /* the plan is done */
	PLAN_ADD,  /* r[dst] = addr + (r[other] << size): r[other] is not used if size is 64 */
	PLAN_AND,  /* r[dst] = r[src] & imm */
	PLAN_LOAD, /* r[dst] = the size bytes at addr, 8 at most; size 0: 8 */
	/*
	 * Append size bytes (a multiple of 8) from addr on. Then r[dst] = word number at of these, and
	 * r[dst2] = word number at2.
	 */
	PLAN_COPY,
	/*
	 * r[dst] = where size bytes from addr on end, or r[other] if less than a word is before it, and append what of them is in
	 * [addr, r[other]). Together with a jump
	 * while r[dst] is not r[other] this copies a whole range.
	 */
	PLAN_RANGE,
	PLAN_PUT, /* append the word r[src] as a slice whose address is imm: a mark for the decoder */
	PLAN_WHATS
};

/* … and when it goes to operation number jump then, instead of to the next one. */
enum plan_when {
	PLAN_NEVER,
	PLAN_ALWAYS,
	PLAN_ZERO,    /* r[reg] is 0 */
	PLAN_NONZERO, /* r[reg] is not 0 */
	PLAN_EQUAL,   /* r[reg] is r[other] */
	PLAN_DIFFER,  /* r[reg] is not r[other] */
	/*
	 * r[reg] is 0, or an operation of this run with PLAN_SEEN had this value before. The BPF programs note
	 * PLAN_SEEN_MAX values, so they may take a value for a new one, and it is copied twice.
	 */
	PLAN_SEEN,
	PLAN_WHENS
};

/*
 * A read of user memory costs as much as some thousand bytes that it reads, and what a plan follows often lies side
 * by side: frames, functions of a file, names. So PLAN_COPY can have a window, which others may share. The first
 * time that something on a page is copied, only that is read; the second time, all of the page; and from then on
 * nothing, until something on another page is copied. A page from which earlier runs copied more than one thing is read
 * whole the first time. What is copied is the same as without a window.
 */
struct plan_op {
	__u8 what; /* enum plan_what */
	__u8 src, dst, dst2;
	__u16 size;
	__u8 at, at2;
	__u8 when; /* enum plan_when */
	__u8 reg, other, jump;
	__u8 otherwise; /* the next operation if memory cannot be read or there is no room; 0: the plan ends */
	__u8 near; /* of PLAN_COPY: the number of its window, 1 to PLAN_WINDOWS; 0: it has none */
	__u8 reserved[2];
	__s64 imm;
};

struct plan {
	__u32 n;
	__u32 is_whole; /* the slices say all: no memory that they lead to is read after them */
	struct plan_op ops[PLAN_OPS_MAX];
};

/*
 * Make of a plan what is installed in the kernel: the numbers of registers are their offsets there, in bytes, which saves
 * the BPF programs an instruction for each register that they use.
 */
static inline void plan_install(struct plan *plan)
{
	for (__u32 i = 0; i < plan->n; i++) {
		struct plan_op *op = &plan->ops[i];

		op->src = (__u8)(op->src * 8);
		op->dst = (__u8)(op->dst * 8);
		op->dst2 = (__u8)(op->dst2 * 8);
		op->reg = (__u8)(op->reg * 8);
		op->other = (__u8)(op->other * 8);
	}
}

/* An entry of the table of processes with a plan. The key is the pid. */
struct plan_task {
	__u64 start_ns; /* CLOCK_BOOTTIME; 0: any process that has this pid now */
	__u64 base;
	__u32 plan; /* index in the table of plans */
	__u32 reserved;
};

/* How a plan ended. */
enum plan_end {
	PLAN_NONE,  /* there was no plan */
	PLAN_DONE,  /* all was copied */
	PLAN_FAULT, /* memory could not be read */
	PLAN_STEPS, /* PLAN_STEPS_MAX operations were not enough */
	PLAN_ROOM,  /* there was more than there is room for */
	PLAN_BAD,   /* an operation that does not exist */
	PLAN_LOST,  /* the record refers to one that was not seen; never in a record */
	PLAN_ENDS
};

/*
 * The last word of a record's slices, if its head says so (capture_head.slices_refer). size is 0: the record has all of its
 * slices, and is the base of that number from now on. Else its slices go on with the last size bytes of those of that base. It
 * may have been cut within a slice.
 */
struct plan_reference {
	__u32 base; /* counted for each CPU, from 1 on */
	__u32 size; /* bytes, a multiple of PLAN_CHUNK; 0: this is the base */
};

/* The last base of a CPU, in the table of those. */
struct plan_base {
	__u32 round;  /* slices_round when it was sent; 0: it was not */
	__u32 number; /* as in struct plan_reference */
	__u32 size;   /* bytes */
	__u32 uses;   /* records that may still refer to it */
	__u32 rest; /* records that are not compared, as the slices of those before were not alike */
	__u32 reserved;
	__u8 bytes[PLAN_BYTES_MAX];
};

/* The page on which the operations of a window copied something last. */
struct plan_window {
	__u64 page; /* its address, and PLAN_PART or PLAN_AGAIN; or PLAN_NO_PAGE */
	__u8 bytes[PLAN_PAGE + PLAN_NEAR_MAX];
};

#define PLAN_PART    1u /* bytes does not have it */
#define PLAN_AGAIN   2u /* more than one thing was copied from it */
#define PLAN_NO_PAGE 4u

/* The state of a plan while it runs, in the scratch buffer. */
struct plan_run {
	__u64 r[PLAN_REGS];
	__u32 plan, next; /* the next operation */
	__u32 at, limit;  /* offsets behind the head: of the next slice, and of the end of all */
	__u32 end;	  /* enum plan_end */
	__u32 size;	  /* bytes of the last slice */
	__u32 same; /* the last bytes of all slices that are those of the base, as far as they were compared */
	__u32 most;		   /* that can be the same */
	__u64 number;		   /* of this run: what was noted in the runs before is of no use */
	__u64 seen[PLAN_SEEN_MAX]; /* values, each plus a number for the run */
	__u8 dense[PLAN_DENSE];	   /* by hashes of pages, from run to run: PLAN_AGAIN was set */
	struct plan_window windows[PLAN_WINDOWS];
};

_Static_assert(sizeof(struct plan_op) == 24, "no padding");
_Static_assert(sizeof(struct plan_task) == 24, "no padding");
_Static_assert(sizeof(struct plan_reference) == 8, "a word");
_Static_assert(sizeof(struct plan_run) == 17544, "no padding");
_Static_assert(PLAN_PIECE_MAX / 8 < 256, "the number of words fits the head");
_Static_assert(PLAN_BYTES_MAX + sizeof(struct plan_reference) < 1 << 16, "fits the record's head");
_Static_assert(!(PLAN_OPS_MAX & (PLAN_OPS_MAX - 1)), "a power of two");
_Static_assert(!(PLAN_WINDOWS & (PLAN_WINDOWS - 1)), "a power of two");

#endif

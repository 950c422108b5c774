/*
 * unwinder/cursor.h: one frame after another by call-backs into a target, with
 * the place of every register.
 *
 * A *target* is what is unwound: call-backs (accessors) that read its memory and
 * registers, an address space (struct uw_space) if its mappings are known, and
 * a cache of rules.  A *cursor* stands on one frame of one of its threads.
 *
 * Threads: all functions here are safe to call from any number of threads at
 * once, on one target or on several; one cursor belongs to one thread at a time.
 * Only the memory accessor is called while a target with an address space is
 * locked: it must not call back into the same target.  Nothing here is safe in
 * a signal handler.
 */
#ifndef UNWINDER_CURSOR_H
#define UNWINDER_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- procedures ----------------------------------------------------------------- */

enum uw_proc_format {			   /* the numbers that libunwind has for them */
		      UW_PROC_DYNAMIC = 0, /* made by the target's own code generator */
		      UW_PROC_TABLE = 1,   /* call-frame information: ELF files', or copied here */
};

#define UW_PROC_DEBUG_FRAME 32u /* flag: from .debug_frame */

/* The procedure around an address, as unwind information has it. */
struct uw_proc_info {
	uint64_t start, end; /* run-time addresses; end is past the last byte */
	uint64_t lsda;	     /* data of its language's exceptions; 0: none */
	uint64_t handler;    /* its personality routine; 0: none */
	uint64_t gp;	     /* global pointer, where a table counts from one */
	uint32_t flags;	     /* UW_PROC_… */
	int32_t format;	     /* enum uw_proc_format */
	/* Its rules, if they were asked for: see uw_proc_info_free. */
	void *unwind_info;
	uint64_t unwind_info_size;
};

/* Which procedure is wanted, and how the target's memory is read on the way. */
struct uw_proc_query {
	uint64_t pc;
	bool rules;	  /* unwind_info too */
	uint16_t machine; /* EM_X86_64, EM_AARCH64 */
	uw_read_fn read;  /* NULL: no memory; then some handlers are not known */
	void *ctx;	  /* read's */
};

/*
 * The procedure by an ELF file that is mapped with bias (run-time address - vaddr): for a
 * find_proc_info accessor to answer with.  unwind_info keeps the object.  -ENOENT the file knows
 * none around pc, -EBADMSG, -ENOTSUP, -ENOMEM.
 */
int uw_proc_info_object(struct uw_object *object, uint64_t bias, const struct uw_proc_query *query,
			struct uw_proc_info *out);

/* A binary search table, as in .eh_frame_hdr: pairs of signed 32-bit distances, start and FDE. */
struct uw_search_table {
	uint64_t base;	  /* run-time address that FDEs count from: of .eh_frame_hdr */
	uint64_t start;	  /* … that starts of procedures do: mostly the same */
	uint64_t entries; /* run-time address of the first pair */
	uint64_t n;	  /* pairs */
	uint64_t gp;	  /* what DW_EH_PE_datarel counts from; 0: not known */
};

/*
 * The same by a search table, and the FDE and CIE it leads to, read out of the target's memory.
 * What is read is copied: unwind_info stands by itself.  -ENOENT no entry covers pc, -EFAULT
 * memory cannot be read, -EBADMSG, -ENOTSUP, -ENOMEM.
 */
int uw_proc_info_search(const struct uw_search_table *table, const struct uw_proc_query *query,
			struct uw_proc_info *out);

/* Releases unwind_info, which one of the two above made, and clears it; NULL is fine. */
void uw_proc_info_free(struct uw_proc_info *info);

/* ---- targets ---------------------------------------------------------------------- */

/*
 * Call-backs into a target; ctx is what the cursor was made with: a thread, say.
 * Those that are NULL know nothing.  A result is the host's, whatever the target's byte order.
 */
struct uw_accessors {
	/* Memory: 0, or -EFAULT if any byte is not to be had; all of it or nothing. */
	uw_read_fn read_mem;
	/* A register of the innermost frame by DWARF number, or -ENODATA. */
	int (*read_reg)(void *ctx, unsigned int reg, uint64_t *value);
	/*
	 * The procedure around pc; rules: unwind_info is wanted, one that uw_proc_info_object or
	 * uw_proc_info_search made.  0; 1: pc is the outermost frame's; -ENOENT: others are
	 * asked, the steppers of the address space or the code's bytes; any other code ends the
	 * walk.  Asked before the address space.
	 */
	int (*find_proc_info)(void *ctx, uint64_t pc, bool rules, struct uw_proc_info *out);
	/* After each find_proc_info that was asked for rules; NULL: uw_proc_info_free. */
	void (*put_proc_info)(void *ctx, struct uw_proc_info *info);
	/* Where the list of the target's code generators begins (libunwind's _U_dyn_info_list). */
	int (*dyn_list_addr)(void *ctx, uint64_t *addr);
	/*
	 * The name of the procedure around addr, with a NUL, and how far into it addr is.
	 * -ENOMEM: cut to size; -ENOENT.
	 */
	int (*proc_name)(void *ctx, uint64_t addr, char *name, size_t size, uint64_t *off);
};

struct uw_target;

/*
 * machine: EM_X86_64, EM_AARCH64.  byte_order: 0 or __LITTLE_ENDIAN of <endian.h>; -ENOTSUP any
 * other.  accessors are copied.  space: the target's mappings, borrowed for its life and not to
 * be used or changed while one of its cursors steps; NULL: there are only the accessors.
 */
int uw_target_new(uint16_t machine, int byte_order, const struct uw_accessors *accessors,
		  struct uw_space *space, struct uw_target **out);
void uw_target_free(struct uw_target *target); /* NULL is fine; none of its cursors is used again */

/* The target's own copy; what is changed there counts from the next call on. */
struct uw_accessors *uw_target_accessors(struct uw_target *target);
uint16_t uw_target_machine(const struct uw_target *target);
struct uw_space *uw_target_space(const struct uw_target *target);

/* aarch64: which bits of a code address hold its authentication code; 0: told by the space. */
void uw_target_code_mask(struct uw_target *target, uint64_t mask);

/*
 * Where the list of the target's code generators begins: what dyn_list_addr says, kept
 * until a flush unless nothing is to be kept.  -ENOENT there is none.
 */
int uw_target_dyn_list(struct uw_target *target, void *ctx, uint64_t *addr);

enum uw_caching {			 /* of what accessors say */
		  UW_CACHING_NONE,	 /* every step asks anew */
		  UW_CACHING_GLOBAL,	 /* rules are kept by address; as a target begins */
		  UW_CACHING_PER_THREAD, /* the same: the cache is the target's */
};

/* -EINVAL no such policy.  A change forgets what was kept. */
int uw_target_caching(struct uw_target *target, enum uw_caching policy);

/* How many rules are kept: rounded up to a power of two, at most 2^16.  -EINVAL 0, -ENOMEM. */
int uw_target_cache_size(struct uw_target *target, size_t n);

/* Forgets what is kept for addresses in [start, end); 0, 0: everything. */
void uw_target_flush(struct uw_target *target, uint64_t start, uint64_t end);

/* ---- cursors ------------------------------------------------------------------------ */

/* A plain value: a copy is another cursor on the same frame, and goes its own way. */
struct uw_cursor {
	uint64_t opaque[96];
};

/*
 * On the innermost frame of the thread that ctx stands for, whose registers are read now.
 * -ENODATA pc or sp is not known, or what the accessor says.
 */
int uw_cursor_init(struct uw_cursor *cursor, struct uw_target *target, void *ctx);

/* The same with registers that are told here: of an outer frame whose pc is a return address
 * unless exact. */
int uw_cursor_init_at(struct uw_cursor *cursor, struct uw_target *target, void *ctx,
		      const struct uw_regs *regs, bool exact);

/* What accessors get back from here on, in this cursor and its copies. */
void uw_cursor_context(struct uw_cursor *cursor, void *ctx);

/*
 * To the caller's frame: 1; 0: there is no caller, and uw_cursor_stop tells whether that is
 * proven (ROOT) or not (GUESS_ENDED); or why not, the cursor staying: -EFAULT
 * memory is missing, -ENOENT nothing is known of the code, -EBADMSG what is known is damaged,
 * -ENODATA a register is not known, -ELOOP the way does not lead up; or what find_proc_info said.
 */
int uw_cursor_step(struct uw_cursor *cursor);

/* After a step that did not lead on: why, in a walk's words, and the address that goes with it. */
enum uw_stop uw_cursor_stop(const struct uw_cursor *cursor, uint64_t *addr);

/* In this frame, by DWARF number: 0, -ENODATA not known or undefined, -EINVAL no such register. */
int uw_cursor_reg(const struct uw_cursor *cursor, unsigned int reg, uint64_t *value);

/*
 * Another value from here on outward, in this cursor and its copies: never in the target.
 * The frame is then looked up by the new pc as it stands.  -EINVAL no such register.
 */
int uw_cursor_set_reg(struct uw_cursor *cursor, unsigned int reg, uint64_t value);

/*
 * Where this frame's value of reg is kept: MEMORY at addr; REGISTER from, of the innermost
 * frame; VALUE, worked out and kept nowhere, by an expression or not; UNDEFINED.  -EINVAL.
 */
int uw_cursor_save(const struct uw_cursor *cursor, unsigned int reg, struct uw_save *save);

/* pc, lookup, sp, how the frame was found; of cfa and signal what a step from here would find. */
int uw_cursor_frame(const struct uw_cursor *cursor, struct uw_frame *frame);

/* How this frame was found, without a step: see struct uw_frame. */
void uw_cursor_found(const struct uw_cursor *cursor, uint8_t *stepper, uint8_t *confidence,
		     bool *exact);

/* The procedure of this frame, without rules.  -ENOENT none is known. */
int uw_cursor_proc_info(const struct uw_cursor *cursor, struct uw_proc_info *out);

/*
 * Its name, by the proc_name accessor, which is asked where the call was (the frame's lookup);
 * *off counts to the pc.  Of code that the process registered itself: the name it gave.
 */
int uw_cursor_proc_name(const struct uw_cursor *cursor, char *name, size_t size, uint64_t *off);

/* 1: this frame is a signal's trampoline, and its caller was interrupted; 0: it is not. */
int uw_cursor_is_signal(const struct uw_cursor *cursor);

/* Of which it is a cursor; NULL: of none. */
struct uw_target *uw_cursor_target(const struct uw_cursor *cursor);

/* The DWARF number of "rip", "x29", "lr"; -1: no such name. */
int uw_reg_find(uint16_t machine, const char *name);

#ifdef __cplusplus
}
#endif

#endif

/*
 * unwinder/cursor.h: steps through the frames of a thread one by one, reading its state through
 * callbacks, and tells where each register is saved.
 *
 * A *target* is the process that is unwound. It consists of callbacks (accessors) that read its
 * memory and registers, of an address space (struct uw_space) if its mappings are known, and of
 * a rule cache. A *cursor* points to one frame of one of the target's threads.
 *
 * Threads: all functions here are safe to call from any number of threads at once, on one
 * target or on several; a cursor belongs to one thread at a time. While a target with an
 * address space is locked, only the memory accessor is called; it must not call back into the
 * same target. No function here is safe in a signal handler.
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

enum uw_proc_format {			   /* the values are libunwind's */
		      UW_PROC_DYNAMIC = 0, /* registered by the target's own code generator */
		      UW_PROC_TABLE = 1,   /* call-frame information of an ELF file, or copied */
};

#define UW_PROC_DEBUG_FRAME 32u /* flag: the information is from .debug_frame */

/* The procedure around an address, as unwind information describes it. */
struct uw_proc_info {
	/* Run-time addresses; end is past the last byte. Of a stub without rules only pc is known to be in it. */
	uint64_t start, end;
	uint64_t lsda;	  /* language-specific data for exceptions; 0: none */
	uint64_t handler; /* address of its personality routine; 0: none */
	uint64_t gp;	  /* global pointer, if a table counts from one */
	uint32_t flags;	  /* UW_PROC_… */
	int32_t format;	  /* enum uw_proc_format */
	/* Its rules, if they were requested; release them with uw_proc_info_free. */
	void *unwind_info;
	uint64_t unwind_info_size;
};

/* The procedure to look up, and how to read the target's memory for it. */
struct uw_proc_query {
	uint64_t pc;
	bool rules;	  /* also fill in unwind_info */
	uint16_t machine; /* ELF machine (e_machine) */
	uw_read_fn read;  /* NULL: no memory; some handlers are then unknown */
	void *ctx;	  /* read's */
};

/*
 * Look up a procedure in an ELF file that is mapped with bias (run-time address - vaddr). A
 * find_proc_info accessor can return the result. unwind_info holds a reference to the object.
 * -ENOENT the file has no procedure around pc, -EBADMSG, -ENOTSUP, -ENOMEM.
 */
int uw_proc_info_object(struct uw_object *object, uint64_t bias, const struct uw_proc_query *query,
			struct uw_proc_info *out);

/*
 * A binary search table as in .eh_frame_hdr: pairs of signed 32-bit offsets, to a procedure's
 * start and to its FDE.
 */
struct uw_search_table {
	uint64_t base;	  /* run-time address that FDE offsets count from: that of .eh_frame_hdr */
	uint64_t start;	  /* run-time address that start offsets count from: mostly the same */
	uint64_t entries; /* run-time address of the first pair */
	uint64_t n;	  /* pairs */
	uint64_t gp;	  /* base of DW_EH_PE_datarel pointers; 0: not known */
};

/*
 * Look up a procedure in a search table. The table and the FDE and CIE that it refers to are
 * read from the target's memory and copied, so unwind_info does not depend on that memory
 * later. -ENOENT no entry covers pc, -EFAULT memory cannot be read, -EBADMSG, -ENOTSUP,
 * -ENOMEM.
 */
int uw_proc_info_search(const struct uw_search_table *table, const struct uw_proc_query *query,
			struct uw_proc_info *out);

/*
 * Release unwind_info, which uw_proc_info_object or uw_proc_info_search made, and set it to
 * NULL. NULL is fine.
 */
void uw_proc_info_free(struct uw_proc_info *info);

/* ---- targets ---------------------------------------------------------------------- */

/*
 * Callbacks into a target. ctx is the value that the cursor was initialized with, for example a
 * thread. Any callback may be NULL, which means that it knows nothing. Results have the host's
 * byte order, whatever the target's byte order is.
 */
struct uw_accessors {
	/* Read memory: 0, or -EFAULT if any byte cannot be read; all bytes or none. */
	uw_read_fn read_mem;
	/* Read a register of the innermost frame by DWARF number; -ENODATA: not known. */
	int (*read_reg)(void *ctx, unsigned int reg, uint64_t *value);
	/*
	 * Look up the procedure around pc; called before the address space is used. rules:
	 * unwind_info is wanted, as uw_proc_info_object or uw_proc_info_search makes it. Return
	 * 0; 1 if pc belongs to the outermost frame; -ENOENT to go on with the steppers of the
	 * address space or with the code's bytes; any other code ends the walk.
	 */
	int (*find_proc_info)(void *ctx, uint64_t pc, bool rules, struct uw_proc_info *out);
	/*
	 * Release *info after a find_proc_info that set unwind_info; NULL: uw_proc_info_free is
	 * called.
	 */
	void (*put_proc_info)(void *ctx, struct uw_proc_info *info);
	/* Find the list of the target's code generators (libunwind's _U_dyn_info_list). */
	int (*dyn_list_addr)(void *ctx, uint64_t *addr);
	/*
	 * Copy the name of the procedure around addr, with a NUL, and set *off to the offset of
	 * addr in the procedure. -ENOMEM: the name was cut to size; -ENOENT.
	 */
	int (*proc_name)(void *ctx, uint64_t addr, char *name, size_t size, uint64_t *off);
};

struct uw_target;

/*
 * Create a target. machine is EM_X86_64 or EM_AARCH64; byte_order is 0 or __LITTLE_ENDIAN of
 * <endian.h>. The accessors are copied. space holds the target's mappings; it is borrowed for
 * the target's life and must not be used or changed while one of its cursors steps. NULL: only
 * the accessors are used. -ENOTSUP another machine or byte order, -EINVAL no accessors or a
 * space of another machine, -ENOMEM.
 */
int uw_target_new(uint16_t machine, int byte_order, const struct uw_accessors *accessors,
		  struct uw_space *space, struct uw_target **out);
/* Free the target, whose cursors become invalid. NULL is fine. */
void uw_target_free(struct uw_target *target);

/* Return the target's copy of the accessors. A change to them takes effect with the next call. */
struct uw_accessors *uw_target_accessors(struct uw_target *target);
/* Return the machine that the target was created with. */
uint16_t uw_target_machine(const struct uw_target *target);
/* Return the target's address space, or NULL if it has none. */
struct uw_space *uw_target_space(const struct uw_target *target);

/*
 * Set which bits of a code address hold its authentication code (aarch64). With 0, they follow
 * from the highest address of the space, or from 48-bit addresses without a space.
 */
void uw_target_code_mask(struct uw_target *target, uint64_t mask);

/*
 * Find the list of the target's code generators with the dyn_list_addr accessor. The address is
 * cached until a flush, unless the policy is UW_CACHING_NONE. -ENOENT there is no list.
 */
int uw_target_dyn_list(struct uw_target *target, void *ctx, uint64_t *addr);

enum uw_caching {			 /* policy for results of the accessors */
		  UW_CACHING_NONE,	 /* every step calls the accessors again */
		  UW_CACHING_GLOBAL,	 /* rules are cached by address; the default */
		  UW_CACHING_PER_THREAD, /* same as GLOBAL: the cache belongs to the target */
};

/* Set the caching policy. A change empties the cache. -EINVAL no such policy. */
int uw_target_caching(struct uw_target *target, enum uw_caching policy);

/*
 * Set how many rules are cached. n is rounded up to a power of two and may be at most 2^16.
 * -EINVAL n is 0, -ENOMEM n is too large.
 */
int uw_target_cache_size(struct uw_target *target, size_t n);

/*
 * Remove the cached rules for addresses in [start, end), or all rules if both are 0. The cached
 * address of the list of code generators is removed in both cases.
 */
void uw_target_flush(struct uw_target *target, uint64_t start, uint64_t end);

/* ---- cursors ------------------------------------------------------------------------ */

/*
 * A cursor is a plain value: a copy of it is another cursor on the same frame and moves
 * independently.
 */
struct uw_cursor {
	uint64_t opaque[96];
};

/*
 * Place the cursor on the innermost frame of the thread that ctx stands for. All registers are
 * read now. -ENODATA pc or sp is not known; otherwise the code that the read_reg accessor
 * returned.
 */
int uw_cursor_init(struct uw_cursor *cursor, struct uw_target *target, void *ctx);

/*
 * Place the cursor on a frame whose registers are given. exact: pc is where the thread is;
 * otherwise pc is the return address of an outer frame. -ENODATA pc or sp is not known.
 */
int uw_cursor_init_at(struct uw_cursor *cursor, struct uw_target *target, void *ctx,
		      const struct uw_regs *regs, bool exact);

/* Set the ctx that accessors get from now on, in this cursor and in later copies of it. */
void uw_cursor_context(struct uw_cursor *cursor, void *ctx);

/*
 * Step to the caller's frame. Return 1 if there is one. Return 0 if there is none:
 * uw_cursor_stop tells whether that is proven (ROOT) or not (GUESS_ENDED). On an error the
 * cursor stays where it is: -EFAULT memory is missing, -ENOENT the code has no unwind
 * information, -EBADMSG the information is damaged, -ENODATA a register is not known, -ELOOP
 * the caller's frame is not further up the stack, or the code that find_proc_info returned.
 */
int uw_cursor_step(struct uw_cursor *cursor);

/*
 * Return why the last step did not find a caller, and the address that belongs to the reason.
 * addr may be NULL.
 */
enum uw_stop uw_cursor_stop(const struct uw_cursor *cursor, uint64_t *addr);

/*
 * Read a register of this frame by DWARF number. -ENODATA not known or undefined, -EINVAL no
 * such register.
 */
int uw_cursor_reg(const struct uw_cursor *cursor, unsigned int reg, uint64_t *value);

/*
 * Set a register of this frame, in this cursor and in later copies of it; the target is not
 * changed. If reg is the pc, the frame is looked up by exactly that address. -EINVAL no such
 * register.
 */
int uw_cursor_set_reg(struct uw_cursor *cursor, unsigned int reg, uint64_t value);

/*
 * Tell where this frame's value of reg is saved. MEMORY: at addr. REGISTER: in register from of
 * the innermost frame. VALUE: computed, by an expression or not, and saved nowhere. UNDEFINED.
 * -EINVAL no such register.
 */
int uw_cursor_save(const struct uw_cursor *cursor, unsigned int reg, struct uw_save *save);

/*
 * Describe the frame: pc, lookup, sp and how it was found. cfa and signal are those that a step
 * from here would find; they stay 0 if the step fails.
 */
int uw_cursor_frame(const struct uw_cursor *cursor, struct uw_frame *frame);

/* Tell how this frame was found, without a step: see struct uw_frame. */
void uw_cursor_found(const struct uw_cursor *cursor, uint8_t *stepper, uint8_t *confidence,
		     bool *exact);

/* Look up the procedure of this frame, without rules. -ENOENT none is known. */
int uw_cursor_proc_info(const struct uw_cursor *cursor, struct uw_proc_info *out);

/*
 * Copy the name of this frame's procedure. *off is the offset of pc in the procedure. For code
 * that the process registered itself, the registered name is used; otherwise the proc_name
 * accessor is called with the frame's lookup, which is the place of the call. -ENOMEM the name
 * was cut to size, -ENOENT none is known.
 */
int uw_cursor_proc_name(const struct uw_cursor *cursor, char *name, size_t size, uint64_t *off);

/* Return 1 if this frame is a signal trampoline, whose caller was interrupted; 0 if it is not. */
int uw_cursor_is_signal(const struct uw_cursor *cursor);

/* Return the cursor's target, or NULL if the cursor was not initialized. */
struct uw_target *uw_cursor_target(const struct uw_cursor *cursor);

/*
 * Return the DWARF number of a register by name ("rip", "x29", "lr"), or -1 if there is no such
 * name.
 */
int uw_reg_find(uint16_t machine, const char *name);

#ifdef __cplusplus
}
#endif

#endif

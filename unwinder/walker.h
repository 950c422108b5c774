/*
 * unwinder/walker.h: walks whole stacks of a process that callbacks read.
 *
 * A *walker* belongs to one process and walks any of its threads.  The user can
 * supply three things: how the process is read (struct uw_process), which steppers
 * walk through which code (struct uw_steppers), and how code is named (struct
 * uw_lookup).
 *
 * Threads: as described in cursor.h; several threads may walk with one walker.
 */
#ifndef UNWINDER_WALKER_H
#define UNWINDER_WALKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UW_THREAD_DEFAULT UINT64_MAX /* the first that struct uw_process lists */

/* How a process is read. Each function returns 0 or a negative errno value. */
struct uw_process {
	uint16_t machine; /* ELF machine (e_machine) */
	/* Read a register of a thread by DWARF number. -ENODATA: its value is not known. */
	int (*reg)(void *ctx, uint64_t thread, unsigned int reg, uint64_t *value);
	uw_read_fn read;
	/*
	 * List up to max threads that can be walked, the default one first, and set *n to how many
	 * there are.
	 */
	int (*threads)(void *ctx, uint64_t *ids, size_t max, size_t *n);
	uint64_t (*id)(void *ctx); /* returns the process's number; NULL: it is 0 */
	void *ctx;
};

/* How code is named. */
struct uw_lookup {
	/*
	 * Look up the function at addr, and copy its name with a NUL. object, if not NULL, may get
	 * anything that goes with the name.
	 */
	int (*name)(void *ctx, uint64_t addr, char *name, size_t size, void **object);
	/* Look up the file that is mapped at addr. NULL: files are not known. */
	int (*library)(void *ctx, uint64_t addr, char *path, size_t size);
	void *ctx;
};

struct uw_walker;

/* A frame. It is a value that does not change with the process. */
struct uw_stack_frame {
	uint64_t ra; /* where control will resume; for the innermost frame, the pc */
	uint64_t sp; /* the stack pointer in this frame */
	uint64_t fp; /* the frame pointer in this frame; 0: not known */
	/* Where they were found: MEMORY at addr, REGISTER from, VALUE; UNDEFINED: not known. */
	struct uw_save ra_at, sp_at, fp_at;
	struct uw_regs regs; /* all registers that are known in this frame, also those three */
	const struct uw_walker *by; /* the walker that made the frame */
	bool exact;		    /* ra is the pc itself: innermost, or interrupted by a signal */
	/* see struct uw_frame; UW_STEPPER_CONTEXT from uw_walker_frame */
	uint8_t stepper, confidence;
};

/* A stack; the innermost frame is frames[0]. */
struct uw_stack_walk {
	struct uw_stack_frame *frames; /* owned by the caller, with room for max_frames */
	size_t max_frames;
	size_t n_frames;
	enum uw_stop stop; /* why it ended */
	uint64_t stop_addr;
};

/*
 * Make a walker. process and lookup are copied. space has the process's mappings and is borrowed
 * for the walker's life; NULL: no mappings are known, and only the user's steppers find callers.
 * The space uses steppers from now on; NULL: the built-in ones. lookup NULL: nothing has a name.
 * -EINVAL: process cannot read registers or memory. -ENOTSUP: the machine is not supported.
 * -ENOMEM.
 */
int uw_walker_new(const struct uw_process *process, struct uw_space *space,
		  const struct uw_steppers *steppers, const struct uw_lookup *lookup,
		  struct uw_walker **out);
/* Free the walker; NULL is allowed. */
void uw_walker_free(struct uw_walker *walker);

/* Return the walker's copy of process, borrowed for the walker's life. */
const struct uw_process *uw_walker_process(const struct uw_walker *walker);

/* Return the steppers in use, borrowed for the walker's life. NULL: the built-in ones. */
const struct uw_steppers *uw_walker_steppers(const struct uw_walker *walker);

/* Return the walker's copy of lookup, borrowed for the walker's life. */
const struct uw_lookup *uw_walker_lookup(const struct uw_walker *walker);

/*
 * Walk a thread. 0: there is at least one frame, and out->stop says why there are no more.
 * Otherwise the error of the process's callbacks says why there is not even one frame. -EINVAL: out
 * has no room.
 */
int uw_walker_walk(struct uw_walker *walker, uint64_t thread, struct uw_stack_walk *out);

/* Walk on from a frame, which becomes frames[0]. */
int uw_walker_walk_from(struct uw_walker *walker, const struct uw_stack_frame *from,
			struct uw_stack_walk *out);

/* Return the frame that a walk of this thread would begin with. */
int uw_walker_initial(struct uw_walker *walker, uint64_t thread, struct uw_stack_frame *out);

/*
 * List up to max threads that can be walked, and set *n to how many there are. -ENOENT: the process
 * cannot list them.
 */
int uw_walker_threads(struct uw_walker *walker, uint64_t *ids, size_t max, size_t *n);

/*
 * Make a frame to walk on from. ra_sp_fp[0] is a return address, or with exact a pc. Where the
 * registers were found is not known.
 */
int uw_walker_frame(const struct uw_walker *walker, const uint64_t ra_sp_fp[3], bool exact,
		    struct uw_stack_frame *out);

/*
 * Look up the name of a frame's function with the walker's callback, at the address of the call: ra
 * - 1, unless exact. object is NULL or gets what goes with the name. -ENOENT: there is no callback.
 * Its errors are returned unchanged.
 */
int uw_walker_name(const struct uw_stack_frame *frame, char *name, size_t size, void **object);

/* Look up the file of a frame's code likewise. */
int uw_walker_library(const struct uw_stack_frame *frame, char *path, size_t size);

#ifdef __cplusplus
}
#endif

#endif

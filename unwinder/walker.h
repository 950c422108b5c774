/*
 * unwinder/walker.h: whole stacks of a process that call-backs tell of.
 *
 * A *walker* belongs to one process and walks any of its threads.  Three things
 * can be the user's own: how the process is read (struct uw_process), who walks
 * through which code (struct uw_steppers), how code is named (struct uw_lookup).
 *
 * Threads: as cursor.h has it; several threads may walk with one walker.
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

/* How a process is read.  Each answers 0 or a negative errno value. */
struct uw_process {
	uint16_t machine; /* EM_X86_64, EM_AARCH64 */
	/* A register of a thread by DWARF number, or -ENODATA. */
	int (*reg)(void *ctx, uint64_t thread, unsigned int reg, uint64_t *value);
	uw_read_fn read;
	/* Up to max threads that can be walked, the default one first; *n: how many there are. */
	int (*threads)(void *ctx, uint64_t *ids, size_t max, size_t *n);
	uint64_t (*id)(void *ctx); /* the process's; NULL: 0 */
	void *ctx;
};

/* How code is named. */
struct uw_lookup {
	/* The function at addr, with a NUL, and, unless object is NULL, anything that goes with it. */
	int (*name)(void *ctx, uint64_t addr, char *name, size_t size, void **object);
	/* The file that is loaded at addr; NULL: nobody knows. */
	int (*library)(void *ctx, uint64_t addr, char *path, size_t size);
	void *ctx;
};

struct uw_walker;

/* A frame: a value, which stays as it is whatever the process does. */
struct uw_stack_frame {
	uint64_t ra; /* where control will resume; of the innermost, the pc */
	uint64_t sp; /* the stack's top in this frame */
	uint64_t fp; /* the frame pointer's value in it; 0: not known */
	/* Where they were found: MEMORY at addr, REGISTER from, VALUE; UNDEFINED: not known. */
	struct uw_save ra_at, sp_at, fp_at;
	struct uw_regs regs;	     /* all that are known in it, those three among them */
	const struct uw_walker *by;  /* whose frame it is */
	bool exact;		     /* ra is the very pc: innermost, or interrupted by a signal */
	uint8_t stepper, confidence; /* see struct uw_frame; by hand: UW_STEPPER_CONTEXT */
};

/* A stack: the innermost frame is frames[0]. */
struct uw_stack_walk {
	struct uw_stack_frame *frames; /* the caller's, room for max_frames */
	size_t max_frames;
	size_t n_frames;
	enum uw_stop stop; /* why it ended */
	uint64_t stop_addr;
};

/*
 * process and lookup are copied.  space: the process's mappings, borrowed for the walker's life;
 * NULL: none are known, and only steppers of the user's lead on.  steppers: used by the space
 * from now on; NULL: the built-in ones.  lookup NULL: nothing has a name.  -EINVAL without
 * registers and memory, -ENOTSUP a machine that is not known, -ENOMEM.
 */
int uw_walker_new(const struct uw_process *process, struct uw_space *space,
		  const struct uw_steppers *steppers, const struct uw_lookup *lookup,
		  struct uw_walker **out);
void uw_walker_free(struct uw_walker *walker); /* NULL is fine */

/* Borrowed for the walker's life; steppers: NULL: the built-in ones. */
const struct uw_process *uw_walker_process(const struct uw_walker *walker);
const struct uw_steppers *uw_walker_steppers(const struct uw_walker *walker);
const struct uw_lookup *uw_walker_lookup(const struct uw_walker *walker);

/*
 * Walks a thread: 0 and at least one frame, out->stop says why there are no more; or what the
 * process's call-backs said where not even one is to be had.
 */
int uw_walker_walk(struct uw_walker *walker, uint64_t thread, struct uw_stack_walk *out);

/* Walks on from a frame, which becomes frames[0]. */
int uw_walker_walk_from(struct uw_walker *walker, const struct uw_stack_frame *from,
			struct uw_stack_walk *out);

/* The frame that a walk of this thread would begin with. */
int uw_walker_initial(struct uw_walker *walker, uint64_t thread, struct uw_stack_frame *out);

/* The threads that can be walked: up to max of them; *n: how many there are. */
int uw_walker_threads(struct uw_walker *walker, uint64_t *ids, size_t max, size_t *n);

/* A frame by hand, to walk on from: a return address, or exact a pc; no locations are known. */
int uw_walker_frame(const struct uw_walker *walker, const uint64_t ra_sp_fp[3], bool exact,
		    struct uw_stack_frame *out);

/*
 * By the walker's lookup, which is asked where the call was: ra - 1, unless exact.  object: NULL
 * or what goes with the name.  -ENOENT it has no such call-back, or what that said.
 */
int uw_walker_name(const struct uw_stack_frame *frame, char *name, size_t size, void **object);
int uw_walker_library(const struct uw_stack_frame *frame, char *path, size_t size);

#ifdef __cplusplus
}
#endif

#endif

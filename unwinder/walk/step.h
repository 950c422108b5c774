/* unwinder/walk/step.h: rule + registers + memory → the caller's registers. */
#ifndef UNWINDER_WALK_STEP_H
#define UNWINDER_WALK_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/arch/arch.h"
#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

/* A thread in one of its frames. */
struct uw_machine {
	const struct uw_arch *arch;
	struct uw_regs regs;
	uw_read_fn read;
	void *ctx;
	uint64_t bias;	  /* of the object whose rule is applied, for DW_OP_addr */
	uint64_t missing; /* the address of the last read that failed */
};

/*
 * Read a little-endian number of 1, 2, 4 or 8 bytes. -EFAULT: it cannot be read, and missing is
 * set.
 */
int uw_machine_read(struct uw_machine *machine, uint64_t addr, unsigned int size, uint64_t *out);

/* Return a register's value in *out. -ENODATA: it is not known. */
int uw_machine_reg(const struct uw_machine *machine, unsigned int reg, uint64_t *out);

/*
 * Apply a rule. Return 1: machine->regs are the caller's now. Return 0: this is the outermost
 * frame. Otherwise the error says why there is no caller, and the registers are unchanged: -EFAULT,
 * -ENODATA, -EBADMSG, -ENOTSUP. *cfa is set as soon as it is known. If the slot of a caller's
 * register was not captured, the register is unknown in the caller, which is an error only when it
 * is needed.
 */
int uw_step(struct uw_machine *machine, const struct uw_rule *rule, uint64_t *cfa);

/*
 * Return whether the caller of a frame with stack pointer sp may have caller_sp: its frame lies
 * above. exact is that of the frame; same_pc: the caller has the frame's pc.
 */
static inline bool uw_step_rises(const struct uw_arch *arch, bool exact, uint64_t sp,
				 uint64_t caller_sp, bool same_pc)
{
	if (caller_sp > sp)
		return true;
	/*
	 * With a link register, a call need not touch the stack. Without one, interrupted code may
	 * have its return address in a register (vfork).
	 */
	return (arch->lr != arch->pc || exact) && caller_sp == sp && !same_pc;
}

#endif

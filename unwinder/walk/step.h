/* unwinder/walk/step.h: rule + registers + memory → the caller's registers. */
#ifndef UNWINDER_WALK_STEP_H
#define UNWINDER_WALK_STEP_H

#include <errno.h>
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
 * Change a rule so that the CFA counts from the frame pointer instead of sp, if the rule says where
 * the frame record is. Use this where sp is only a lower bound: on machines whose frame records may
 * be anywhere in the frame, after a step by frame pointer. False: the rule is unchanged.
 */
bool uw_step_from_record(const struct uw_arch *arch, struct uw_rule *rule);

/*
 * Do the same as uw_step for a frame whose sp is only a lower bound if *sp_low. *sp_low is then
 * that of the caller, and the rule the one that was applied.
 */
static inline int uw_step_low(struct uw_machine *machine, struct uw_rule *rule, bool *sp_low,
			      uint64_t *cfa)
{
	if (*sp_low)
		(void)uw_step_from_record(machine->arch, rule);
	/* A CFA that does not count from sp is the caller's sp, whatever this frame's sp was. */
	*sp_low &= rule->cfa_reg == machine->arch->sp && !rule->cfa_size;
	return uw_step(machine, rule, cfa);
}

/* Return why a walk ends if uw_step did not return 1. */
static inline enum uw_stop uw_step_stop(int got)
{
	return got == 0		 ? UW_STOP_ROOT
	       : got == -EFAULT	 ? UW_STOP_TRUNCATED
	       : got == -ENODATA ? UW_STOP_REG_UNKNOWN
	       : got == -E2BIG	 ? UW_STOP_LIMIT
				 : UW_STOP_BAD_CFI;
}

/*
 * Return whether a rule takes lr for the return address where a call out of this frame has left the frame's own pc in lr:
 * what lr had before is not known. (Compilers move code out of functions, and call it without CFI for that.) exact is that
 * of the frame, pc its pc, and lr what lr has, both without authentication codes.
 */
static inline bool uw_step_lost_link(const struct uw_arch *arch, const struct uw_rule *rule,
				     bool exact, uint64_t pc, uint64_t lr)
{
	const struct uw_reg_rule *ra = uw_rule_reg(rule, arch->lr);

	return arch->lr != arch->pc && !exact && rule->ra == arch->lr && lr == pc &&
	       (!ra || ra->kind == UW_RULE_SAME);
}

/*
 * Return whether the caller's frame may lie anywhere after this rule: signal stacks do, and
 * expressions may switch stacks on purpose.
 */
static inline bool uw_step_switches(const struct uw_rule *rule)
{
	return rule->signal || rule->cfa_size || rule->cfa_kind != UW_CFA_PLAIN;
}

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

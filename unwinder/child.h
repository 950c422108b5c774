/*
 * unwinder/child.h: a thread that clone or clone3 has just made.
 *
 * It continues behind the system call as its parent does, but on a stack of its own, where
 * nobody has called anything yet. What the C library put there for it (the function that it
 * is to call) looks like a return address, and the row of the parent's unwind information
 * may cover the pc or reach across the gap to it. So the registers decide.
 */
#ifndef UNWINDER_CHILD_H
#define UNWINDER_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/arch.h"
#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

struct uw_object;

/* Whether the system call's result is 0: most others return something, which no code tells so soon. */
static inline bool uw_child_result(const struct uw_arch *arch, const struct uw_regs *regs)
{
	return regs->known >> arch->result & 1 && !regs->value[arch->result];
}

/*
 * Whether the thread with these registers, whose pc is at vaddr in the object, is such a one.
 * *rule then says that it has no return address.
 */
bool uw_child_rule(struct uw_object *object, uint64_t vaddr, const struct uw_regs *regs,
		   struct uw_rule *rule);

/* The same by the code alone; bare: no unwind information covers the pc. */
bool uw_child_rule_by_code(const struct uw_arch *arch, const struct uw_code *code, bool bare,
			   const struct uw_regs *regs, struct uw_rule *rule);

/*
 * Whether the code at vaddr lies so close behind such a call that the registers must be asked.
 * On x86_64 that is never where a row of a table surely goes on (UW_WORD_INSIDE).
 */
bool uw_child_may_begin(struct uw_object *object, uint64_t vaddr);

#endif

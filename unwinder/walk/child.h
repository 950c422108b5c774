/*
 * unwinder/walk/child.h: recognises a thread that clone or clone3 has just created.
 *
 * The thread continues behind the system call as its parent does, but on a stack of its own
 * with no caller. What the C library stored there for it (the function to call) looks like a
 * return address. The row of the parent's unwind information may cover the pc, or reach across
 * the gap to it. So only the registers can tell such a thread.
 */
#ifndef UNWINDER_WALK_CHILD_H
#define UNWINDER_WALK_CHILD_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/arch/arch.h"
#include "unwinder/rule.h"
#include "unwinder/unwinder.h"

struct uw_object;

/*
 * Return whether the system call's result is 0, as it is in the new thread. This cheap test
 * comes first: in most other frames the register holds something else.
 */
static inline bool uw_child_result(const struct uw_arch *arch, const struct uw_regs *regs)
{
	return regs->known >> arch->result & 1 && !regs->value[arch->result];
}

/*
 * Return whether the thread with these registers, whose pc is at vaddr in the object, has just
 * been created. *rule then says that it has no return address.
 */
bool uw_child_rule(struct uw_object *object, uint64_t vaddr, const struct uw_regs *regs,
		   struct uw_rule *rule);

/* Do the same with the code around the pc. bare: no unwind information covers the pc. */
bool uw_child_rule_by_code(const struct uw_arch *arch, const struct uw_code *code, bool bare,
			   const struct uw_regs *regs, struct uw_rule *rule);

/*
 * Return whether the code at vaddr is so close behind such a system call that the registers
 * must be checked.
 */
bool uw_child_may_begin(struct uw_object *object, uint64_t vaddr);
/*
 * Return whether this may be where the unwind information goes on, too: an FDE covers the code, or a
 * table's row certainly continues (UW_ORIGIN_INSIDE). On x86_64 only Go has some for that code; of C
 * libraries none has.
 */
bool uw_child_may_be_covered(const struct uw_object *object);

#endif

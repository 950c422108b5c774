/*
 * unwinder/walk/saves.h: tells where a step finds the caller's registers. Cursors and explanations
 * use it; a walk does not need to know.
 */
#ifndef UNWINDER_WALK_SAVES_H
#define UNWINDER_WALK_SAVES_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/rule.h"
#include "unwinder/unwinder.h"
#include "unwinder/walk/step.h"

/*
 * Tell where a step by a rule finds the caller's pc, in *pc, and all other registers that have a
 * rule, in saves, and return how many those are. machine has the callee's registers. Values are not
 * computed: known is false in all.
 */
size_t uw_saves_by_rule(struct uw_machine *machine, const struct uw_rule *rule, uint64_t cfa,
			struct uw_save *pc, struct uw_save saves[UW_REGS_MAX]);

/*
 * Tell where a guess of that stepper (LEAF, FP or SCAN) found the caller's pc, and for FP also the
 * frame pointer; otherwise *fp is not set. regs are the callee's, sp is the caller's.
 */
void uw_saves_by_guess(const struct uw_arch *arch, uint8_t stepper, const struct uw_regs *regs,
		       uint64_t sp, struct uw_save *pc, struct uw_save *fp);

#endif

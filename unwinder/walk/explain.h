/* unwinder/walk/explain.h: tells where a rule finds a register of the caller. */
#ifndef UNWINDER_WALK_EXPLAIN_H
#define UNWINDER_WALK_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/rule.h"
#include "unwinder/unwinder.h"
#include "unwinder/walk/step.h"

/*
 * Tell in *save where the caller's register that rule describes is saved. machine has the
 * callee's registers. The value itself is not computed. is_ra: the rule is that of the return
 * address, which is never treated as popped.
 */
void uw_explain_reg(struct uw_machine *machine, const struct uw_reg_rule *rule, uint64_t cfa,
		    bool is_ra, struct uw_save *save);

#endif

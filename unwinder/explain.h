/* unwinder/explain.h: where a rule says that a register is kept. */
#ifndef UNWINDER_EXPLAIN_H
#define UNWINDER_EXPLAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/rule.h"
#include "unwinder/step.h"
#include "unwinder/unwinder.h"

/*
 * Of the caller's register that the rule is of; machine: still in the frame.  The value is not
 * worked out.  is_ra: the return address, which is never popped.
 */
void uw_explain_reg(struct uw_machine *machine, const struct uw_reg_rule *rule, uint64_t cfa,
		    bool is_ra, struct uw_save *save);

#endif

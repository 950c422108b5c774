/* unwinder/remote/proc_info.h: the rules of a struct uw_proc_info. */
#ifndef UNWINDER_REMOTE_PROC_INFO_H
#define UNWINDER_REMOTE_PROC_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/cursor.h"
#include "unwinder/rule.h"

/*
 * Look up the rule at lookup in an info that has rules. *bias is the bias of its file. Expressions
 * are borrowed from the info. -EINVAL: the info has no rules that this library made. -ENOENT,
 * -EBADMSG, -ENOTSUP.
 */
int uw_proc_info_rule(const struct uw_proc_info *info, uint64_t lookup, bool exact,
		      struct uw_rule *rule, uint64_t *bias);

#endif

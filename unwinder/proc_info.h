/* unwinder/proc_info.h: the rules behind a struct uw_proc_info. */
#ifndef UNWINDER_PROC_INFO_H
#define UNWINDER_PROC_INFO_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/cursor.h"
#include "unwinder/rule.h"

/*
 * The rule at lookup of an info that holds rules; *bias: what its file was mapped with.
 * Expressions in it are the info's: they go when that is freed.  -EINVAL the info holds none
 * of ours, -ENOENT, -EBADMSG, -ENOTSUP.
 */
int uw_proc_info_rule(const struct uw_proc_info *info, uint64_t lookup, bool exact,
		      struct uw_rule *rule, uint64_t *bias);

#endif

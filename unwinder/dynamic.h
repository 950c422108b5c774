/*
 * unwinder/dynamic.h: rules for code generated at run time, out of what its process
 * registered (schema/dynamic.h).
 */
#ifndef UNWINDER_DYNAMIC_H
#define UNWINDER_DYNAMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema/dynamic.h"
#include "unwinder/rule.h"

/* As many regions and operations as one procedure may have; what has more is damaged. */
#define UW_DYNAMIC_REGIONS 256
#define UW_DYNAMIC_OPS	   4096

/*
 * The rule at lookup, in addresses of the process, borrowing from dynamic.  1: it is the one
 * of the code at *alias, whoever knows that; -ENOENT nothing was registered that says; -EBADMSG,
 * -ENOTSUP.
 */
int uw_dynamic_rule(const struct uw_dynamic *dynamic, uint64_t lookup, struct uw_rule *rule,
		    uint64_t *alias);

/* Whether something was registered that says how the code at lookup is left. */
bool uw_dynamic_covers(const struct uw_dynamic *dynamic, uint64_t lookup);

/*
 * Takes bytes over, from malloc, header and procedures in their places; fills in what the
 * header must say of the whole.
 */
int uw_dynamic_take(uint8_t *bytes, size_t size, struct uw_dynamic **out);

#endif

/*
 * unwinder/dynamic/dynamic.h: rules for code generated at run time, from what its process
 * registered (schema/dynamic_blob.h).
 */
#ifndef UNWINDER_DYNAMIC_DYNAMIC_H
#define UNWINDER_DYNAMIC_DYNAMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema/dynamic_blob.h"
#include "unwinder/rule.h"

/* The most regions and operations that one procedure may have; a procedure with more is damaged. */
#define UW_DYNAMIC_REGIONS 256
#define UW_DYNAMIC_OPS	   4096

/*
 * Find the rule at lookup. Addresses are those of the process; the rule borrows from dynamic.
 * Return 1 if the rule is that of the code at *alias, which the caller has to look up; -ENOENT
 * no registered procedure has rules for lookup; -EBADMSG, -ENOTSUP.
 */
int uw_dynamic_rule(const struct uw_dynamic *dynamic, uint64_t lookup, struct uw_rule *rule,
		    uint64_t *alias);

/* Return whether a registered procedure has rules for the code at lookup. */
bool uw_dynamic_covers(const struct uw_dynamic *dynamic, uint64_t lookup);

/*
 * Make an object of bytes from malloc, which it owns from now on unless it fails (-ENOMEM).
 * Header and procedures must be in place; magic, version, size and checksum of the header are
 * filled in.
 */
int uw_dynamic_take(uint8_t *bytes, size_t size, struct uw_dynamic **out);

#endif

/* unwinder/walk/space.h: what the parts of the library look up in an address space. */
#ifndef UNWINDER_WALK_SPACE_H
#define UNWINDER_WALK_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

/*
 * Return the space's number. It changes with every change of the space, and no other space ever has
 * it.
 */
uint64_t uw_space_id(const struct uw_space *space);

/* Return the end of the highest mapping ever added. */
uint64_t uw_space_top(const struct uw_space *space);

/* Return the space's steppers; NULL: the built-in ones. */
const struct uw_steppers *uw_space_steppers(const struct uw_space *space);

/* Return the mapping around addr, so that it can be resolved in place; NULL: none. */
struct uw_mapping *uw_space_at(struct uw_space *space, uint64_t addr);

/* Return the unmapped range around addr, where nothing is mapped. */
void uw_space_gap(const struct uw_space *space, uint64_t addr, uint64_t *start, uint64_t *end);

/*
 * Return the mapping's object; the callback is called if that was not done before. NULL: there is
 * none.
 */
struct uw_object *uw_space_resolve(struct uw_space *space, struct uw_mapping *mapping);

/*
 * Read bytes of the file that is mapped at addr, from memory that cannot have been written. mapping
 * is the one around addr; NULL is allowed. -EFAULT: the file does not have that memory.
 */
int uw_space_read(struct uw_space *space, struct uw_mapping *mapping, uint64_t addr, void *out,
		  size_t size);

/* Return whether the process registered unwind information for the code at lookup. */
bool uw_space_is_dynamic(const struct uw_space *space, uint64_t lookup);

#endif

/* unwinder/space.h: what the walk asks of an address space. */
#ifndef UNWINDER_SPACE_H
#define UNWINDER_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

/* Another one after every change, and never one that another space has or had. */
uint64_t uw_space_id(const struct uw_space *space);

/* One past the last address ever mapped. */
uint64_t uw_space_top(const struct uw_space *space);

/* Who is asked about its frames; NULL: the built-in steppers. */
const struct uw_steppers *uw_space_steppers(const struct uw_space *space);

/* The mapping around addr, to be resolved in place; NULL: none. */
struct uw_mapping *uw_space_at(struct uw_space *space, uint64_t addr);

/* Around addr, where nothing is mapped: [*start, *end) is empty too. */
void uw_space_gap(const struct uw_space *space, uint64_t addr, uint64_t *start, uint64_t *end);

/* Its object, asked for now if it was not before; NULL: there is none to use. */
struct uw_object *uw_space_resolve(struct uw_space *space, struct uw_mapping *mapping);

/* Did the process register how the code at lookup is left? */
bool uw_space_is_dynamic(const struct uw_space *space, uint64_t lookup);

#endif

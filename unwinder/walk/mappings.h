/*
 * unwinder/walk/mappings.h: the mappings of an address space, sorted. Finding, adding and removing
 * one takes about a microsecond or less, also among 65,000 and in any order: the mappings lie in
 * arrays of bounded size, and a change moves the mappings of one array only.
 */
#ifndef UNWINDER_WALK_MAPPINGS_H
#define UNWINDER_WALK_MAPPINGS_H

#include <stddef.h>
#include <stdint.h>

#include "unwinder/unwinder.h"

/* At most so many mappings are in one chunk. Most processes have fewer: one chunk. */
#define UW_CHUNK_MAX 256

/* Mappings that follow one another. */
struct uw_chunk {
	struct uw_mapping *maps; /* owned */
	size_t n;		 /* at least 1 */
};

/* All zero: no mappings. Each mapping owns a reference to its object. */
struct uw_mappings {
	struct uw_chunk *chunks; /* sorted by start, without overlaps; owned */
	size_t n_chunks, room_chunks;
	size_t room; /* of each chunk, in mappings; UW_CHUNK_MAX if there are several chunks */
	size_t n;    /* in all chunks */
};

/* Free the mappings, and put their objects. */
void uw_mappings_fini(struct uw_mappings *all);

/* Copy the mappings, with references to their objects. -ENOMEM. */
int uw_mappings_copy(const struct uw_mappings *all, struct uw_mappings *out);

/* Return the first mapping that ends above addr, borrowed until a change; NULL: there is none. */
struct uw_mapping *uw_mappings_above(const struct uw_mappings *all, uint64_t addr);

/* Return the unmapped range around addr, where nothing is mapped. */
void uw_mappings_gap(const struct uw_mappings *all, uint64_t addr, uint64_t *start, uint64_t *end);

/*
 * Add a mapping in place of the parts of others that it overlaps. Takes over the reference to its
 * object. On failure nothing is changed or taken over: -ENOMEM.
 */
int uw_mappings_set(struct uw_mappings *all, const struct uw_mapping *mapping);

/* Remove [start, end) from the mappings. On failure nothing is changed: -ENOMEM. */
int uw_mappings_remove(struct uw_mappings *all, uint64_t start, uint64_t end);

#endif

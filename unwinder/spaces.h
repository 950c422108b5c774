/*
 * unwinder/spaces.h: address spaces: which object is mapped where in a process at one
 * time. Part of unwinder.h.
 */
#ifndef UNWINDER_SPACES_H
#define UNWINDER_SPACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwinder/objects.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- address spaces: the mappings of one process at one time ------------ */

/* What a mapping shows. */
enum uw_mapping_kind {
	UW_MAPPING_FILE,  /* backed by a file; off counts in it */
	UW_MAPPING_ANON,  /* executable memory without a file: generated code */
	UW_MAPPING_VDSO,  /* the kernel's image */
	UW_MAPPING_OTHER, /* [vsyscall], [uprobes] and the like */
};

/* A memory mapping (VMA) of a process. */
struct uw_mapping {
	uint64_t start, end; /* run-time addresses, end is past the last byte */
	uint64_t off;	     /* file offset of start */
	uint32_t prot;	     /* PROT_READ | PROT_WRITE | PROT_EXEC */
	uint8_t kind;	     /* enum uw_mapping_kind */
	/* the resolve callback was called; object NULL then means that there is none */
	bool resolved;
	struct uw_object *object; /* the space holds a reference */
	uint64_t bias;		  /* run-time address - vaddr; valid if object is set */
	void *user;		  /* the caller's own; copied with the mapping, never used */
};

struct uw_space;

/*
 * Return the object of a mapping that a pc lies in, with a reference that passes to the space, or
 * NULL. It is called once for each mapping, from inside uw_walk.
 */
typedef struct uw_object *(*uw_resolve_fn)(void *ctx, const struct uw_mapping *mapping);

/*
 * Make an empty space. resolve is called with ctx to get objects; it may be NULL. -EINVAL: the
 * machine is not supported. -ENOMEM.
 */
int uw_space_new(uint16_t machine, uw_resolve_fn resolve, void *ctx, struct uw_space **out);

/* Free the space; NULL is allowed. */
void uw_space_free(struct uw_space *space);

/* Copy the space, as fork() does. */
int uw_space_copy(const struct uw_space *space, struct uw_space **out);

/*
 * Do the same as uw_space_copy, but copy the mappings only when one of the two spaces changes: most
 * children exec or sleep. Spaces that share mappings must be used by the same thread. Call
 * uw_space_own before a walk in *out. -ENOMEM.
 */
int uw_space_share(struct uw_space *space, struct uw_space **out);

/*
 * Copy the mappings that a space from uw_space_share still shares. Return 0 also if it shares none.
 * -ENOMEM.
 */
int uw_space_own(struct uw_space *space);

/* Remove all mappings, as exec does. */
void uw_space_clear(struct uw_space *space);

/* Return the ELF machine (e_machine) that the space was created with. */
uint16_t uw_space_machine(const struct uw_space *space);

/*
 * Add a mapping. It replaces the parts of others that it overlaps; what lies on either side of it
 * stays. If the mapping has an object, the space takes one more reference to it and computes the
 * bias. -EINVAL: the mapping is empty. -ENOMEM.
 */
int uw_space_map(struct uw_space *space, const struct uw_mapping *mapping);

/* Remove [start, end) from the mappings. If nothing is mapped there, the space does not change. */
int uw_space_unmap(struct uw_space *space, uint64_t start, uint64_t end);

/*
 * Return the mapping around addr, borrowed until the space changes. NULL: nothing is mapped there.
 */
const struct uw_mapping *uw_space_find(const struct uw_space *space, uint64_t addr);

/* Do the same as uw_space_find, and get the mapping's object if that was not done before. */
const struct uw_mapping *uw_space_resolved(struct uw_space *space, uint64_t addr);

/*
 * Return the first mapping that ends above addr, borrowed until the space changes; NULL: there is
 * none. This goes through all mappings by ascending address:
 * for (m = uw_space_above(space, 0); m; m = uw_space_above(space, m->end))
 */
const struct uw_mapping *uw_space_above(const struct uw_space *space, uint64_t addr);

/* Return how many mappings the space has. */
size_t uw_space_n_mappings(const struct uw_space *space);

#ifdef __cplusplus
}
#endif

#endif

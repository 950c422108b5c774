/*
 * unwinder/walk/space.c: an address space: the mappings of one process and the objects that they
 * show.
 */
#include "unwinder/walk/space.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "unwinder/arch/arch.h"
#include "unwinder/dynamic/dynamic.h"
#include "unwinder/rule/object.h"
#include "unwinder/walk/mappings.h"

struct uw_space {
	uint64_t id;
	uint64_t top;
	uint16_t machine;
	uw_resolve_fn resolve;
	void *ctx;
	struct uw_mappings maps;
	/* how many spaces share what maps points to; owned by all of them; NULL: not shared */
	size_t *sharers;
	bool lent;			    /* maps belonged to another space first */
	const struct uw_steppers *steppers; /* borrowed */
	struct uw_dynamic *dynamic;	    /* one reference; NULL: none */
};

/*
 * The last number that a space got. Workers' caches outlive spaces and use these numbers as keys:
 * an address may be used again, a number is not.
 */
static atomic_uint_fast64_t last_id;

/* Give the space a new number, so that nothing cached about it is used any more. */
static void changed(struct uw_space *space)
{
	space->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
}

int uw_space_new(uint16_t machine, uw_resolve_fn resolve, void *ctx, struct uw_space **out)
{
	struct uw_space *space;

	if (!uw_arch_of(machine))
		return -EINVAL;
	space = calloc(1, sizeof(*space));
	if (!space)
		return -ENOMEM;
	space->machine = machine;
	space->resolve = resolve;
	space->ctx = ctx;
	changed(space);
	*out = space;
	return 0;
}

/* Stop sharing mappings. The last space that shares them frees them. */
static void leave_maps(struct uw_space *space)
{
	if (!--*space->sharers) {
		free(space->sharers);
		uw_mappings_fini(&space->maps);
	}
	space->sharers = NULL;
	space->lent = false;
	space->maps = (struct uw_mappings){ 0 };
}

void uw_space_clear(struct uw_space *space)
{
	if (space->sharers)
		leave_maps(space);
	uw_mappings_fini(&space->maps);
	space->top = 0;
	uw_dynamic_put(space->dynamic);
	space->dynamic = NULL;
	changed(space);
}

void uw_space_free(struct uw_space *space)
{
	if (!space)
		return;
	uw_space_clear(space);
	free(space);
}

/* Make maps this space's alone, before it is changed. */
static int own(struct uw_space *space)
{
	struct uw_mappings maps;
	int err;

	if (!space->sharers)
		return 0;
	if (*space->sharers == 1) {
		free(space->sharers);
		space->sharers = NULL;
		space->lent = false;
		return 0;
	}
	err = uw_mappings_copy(&space->maps, &maps);
	if (err)
		return err;
	leave_maps(space);
	space->maps = maps;
	changed(space);
	return 0;
}

int uw_space_own(struct uw_space *space)
{
	return space->lent ? own(space) : 0;
}

/* Return a copy of the space that still refers to the same mappings. NULL: no memory. */
static struct uw_space *begin_copy(const struct uw_space *space)
{
	struct uw_space *copy = malloc(sizeof(*copy));

	if (copy)
		*copy = *space;
	return copy;
}

/* Take the copy's references and give it a number. */
static void finish_copy(struct uw_space *copy, struct uw_space **out)
{
	if (copy->dynamic)
		uw_dynamic_get(copy->dynamic);
	changed(copy);
	*out = copy;
}

int uw_space_share(struct uw_space *space, struct uw_space **out)
{
	struct uw_space *copy;

	if (!space->maps.n)
		return uw_space_copy(space, out);
	if (!space->sharers) {
		space->sharers = malloc(sizeof(*space->sharers));
		if (!space->sharers)
			return -ENOMEM;
		*space->sharers = 1;
	}
	copy = begin_copy(space);
	if (!copy)
		return -ENOMEM;
	++*space->sharers;
	copy->lent = true;
	finish_copy(copy, out);
	return 0;
}

int uw_space_copy(const struct uw_space *space, struct uw_space **out)
{
	struct uw_space *copy = begin_copy(space);
	int err;

	if (!copy)
		return -ENOMEM;
	copy->sharers = NULL;
	copy->lent = false;
	err = uw_mappings_copy(&space->maps, &copy->maps);
	if (err) {
		free(copy);
		return err;
	}
	finish_copy(copy, out);
	return 0;
}

uint16_t uw_space_machine(const struct uw_space *space)
{
	return space->machine;
}

uint64_t uw_space_id(const struct uw_space *space)
{
	return space->id;
}

uint64_t uw_space_top(const struct uw_space *space)
{
	return space->top;
}

const struct uw_steppers *uw_space_steppers(const struct uw_space *space)
{
	return space->steppers;
}

void uw_space_use(struct uw_space *space, const struct uw_steppers *steppers)
{
	space->steppers = steppers;
	changed(space);
}

struct uw_mapping *uw_space_at(struct uw_space *space, uint64_t addr)
{
	struct uw_mapping *m = uw_mappings_above(&space->maps, addr);

	return m && m->start <= addr ? m : NULL;
}

const struct uw_mapping *uw_space_find(const struct uw_space *space, uint64_t addr)
{
	const struct uw_mapping *m = uw_mappings_above(&space->maps, addr);

	return m && m->start <= addr ? m : NULL;
}

void uw_space_gap(const struct uw_space *space, uint64_t addr, uint64_t *start, uint64_t *end)
{
	uw_mappings_gap(&space->maps, addr, start, end);
}

const struct uw_mapping *uw_space_above(const struct uw_space *space, uint64_t addr)
{
	return uw_mappings_above(&space->maps, addr);
}

size_t uw_space_n_mappings(const struct uw_space *space)
{
	return space->maps.n;
}

/* Set the mapping's object and bias, if the two fit. Takes over one reference to object. */
static void attach(const struct uw_space *space, struct uw_mapping *mapping,
		   struct uw_object *object)
{
	uint64_t vaddr;

	mapping->resolved = true;
	mapping->object = NULL;
	if (!object)
		return;
	if (uw_object_machine(object) != space->machine ||
	    uw_object_map(object, mapping->off, mapping->end - mapping->start,
			  mapping->prot & PROT_EXEC, &vaddr)) {
		uw_object_put(object);
		return;
	}
	mapping->object = object;
	mapping->bias = mapping->start - vaddr;
}

int uw_space_map(struct uw_space *space, const struct uw_mapping *mapping)
{
	struct uw_mapping new = *mapping;
	int err;

	if (new.start >= new.end)
		return -EINVAL;
	err = own(space);
	if (err)
		return err;
	if (new.object)
		attach(space, &new, uw_object_get(new.object));
	err = uw_mappings_set(&space->maps, &new);
	if (err) {
		uw_object_put(new.object);
		return err;
	}
	if (new.end > space->top)
		space->top = new.end;
	changed(space);
	return 0;
}

int uw_space_unmap(struct uw_space *space, uint64_t start, uint64_t end)
{
	const struct uw_mapping *first;
	int err;

	if (start >= end)
		return -EINVAL;
	/*
	 * If nothing was mapped there, as for each new block of a heap, caches of the space stay
	 * valid.
	 */
	first = uw_mappings_above(&space->maps, start);
	if (!first || first->start >= end)
		return 0;
	err = own(space);
	if (!err)
		err = uw_mappings_remove(&space->maps, start, end);
	if (!err)
		changed(space);
	return err;
}

struct uw_object *uw_space_resolve(struct uw_space *space, struct uw_mapping *mapping)
{
	if (!mapping->resolved) {
		/* first, because the callback may look at the space */
		mapping->resolved = true;
		attach(space, mapping, space->resolve ? space->resolve(space->ctx, mapping) : NULL);
	}
	return mapping->object;
}

int uw_space_read(struct uw_space *space, struct uw_mapping *mapping, uint64_t addr, void *out,
		  size_t size)
{
	struct uw_object *object;

	if (!mapping || mapping->prot & PROT_WRITE ||
	    (mapping->kind != UW_MAPPING_FILE && mapping->kind != UW_MAPPING_VDSO) ||
	    size > mapping->end - addr)
		return -EFAULT;
	object = uw_space_resolve(space, mapping);
	return object ? uw_object_read(object, addr - mapping->bias, out, size) : -EFAULT;
}

const struct uw_mapping *uw_space_resolved(struct uw_space *space, uint64_t addr)
{
	struct uw_mapping *mapping = uw_space_at(space, addr);

	if (mapping)
		(void)uw_space_resolve(space, mapping);
	return mapping;
}

/* ---- code generated at run time ------------------------------------------------------- */

void uw_space_set_dynamic(struct uw_space *space, struct uw_dynamic *dynamic)
{
	if (dynamic == space->dynamic)
		return;
	if (dynamic)
		uw_dynamic_get(dynamic);
	uw_dynamic_put(space->dynamic);
	space->dynamic = dynamic;
	changed(space);
}

struct uw_dynamic *uw_space_dynamic(const struct uw_space *space)
{
	return space->dynamic;
}

bool uw_space_is_dynamic(const struct uw_space *space, uint64_t lookup)
{
	return space->dynamic && uw_dynamic_covers(space->dynamic, lookup);
}

/*
 * unwinder/walk/space.c: an address space: the mappings of one process, sorted, and the objects
 * that they show.
 */
#include "unwinder/walk/space.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "unwinder/arch/arch.h"
#include "unwinder/dynamic/dynamic.h"
#include "unwinder/rule/object.h"

struct uw_space {
	uint64_t id;
	uint64_t top;
	uint16_t machine;
	uw_resolve_fn resolve;
	void *ctx;
	/* sorted by start, without overlaps; owned, with the room around */
	struct uw_mapping *maps;
	size_t n;
	size_t front, back; /* how many mappings there is room for before and after maps */
	/* how many spaces share maps; owned by all of them; NULL: not shared */
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

/* Free the array that maps lies in. References to objects are left to the caller. */
static void free_array(struct uw_space *space)
{
	if (space->maps)
		free(space->maps - space->front);
	space->maps = NULL;
	space->n = space->front = space->back = 0;
}

static void put_objects(const struct uw_space *space)
{
	for (size_t i = 0; i < space->n; i++)
		uw_object_put(space->maps[i].object);
}

/* Stop sharing mappings. The last space that shares them frees them. */
static void leave_maps(struct uw_space *space)
{
	if (!--*space->sharers) {
		put_objects(space);
		free(space->sharers);
		free_array(space);
	}
	space->sharers = NULL;
	space->lent = false;
	space->maps = NULL;
	space->n = space->front = space->back = 0;
}

void uw_space_clear(struct uw_space *space)
{
	if (space->sharers)
		leave_maps(space);
	put_objects(space);
	space->back += space->n;
	space->n = 0;
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
	free_array(space);
	free(space);
}

/* Copy the mappings, with references to their objects. NULL: no memory. */
static struct uw_mapping *copy_maps(const struct uw_space *space)
{
	struct uw_mapping *maps = malloc((space->n ? space->n : 1) * sizeof(*maps));

	for (size_t i = 0; maps && i < space->n; i++) {
		maps[i] = space->maps[i];
		if (maps[i].object)
			uw_object_get(maps[i].object);
	}
	return maps;
}

/* Make maps this space's alone, before it is changed. */
static int own(struct uw_space *space)
{
	struct uw_mapping *maps;
	size_t n = space->n;

	if (!space->sharers)
		return 0;
	if (*space->sharers == 1) {
		free(space->sharers);
		space->sharers = NULL;
		space->lent = false;
		return 0;
	}
	maps = copy_maps(space);
	if (!maps)
		return -ENOMEM;
	leave_maps(space);
	space->maps = maps;
	space->n = n;
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

	if (!space->n)
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

	if (!copy)
		return -ENOMEM;
	copy->sharers = NULL;
	copy->lent = false;
	copy->front = copy->back = 0;
	copy->maps = copy_maps(space);
	if (!copy->maps) {
		free(copy);
		return -ENOMEM;
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

/* Return the index of the first mapping that ends above addr. */
static size_t first_above(const struct uw_space *space, uint64_t addr)
{
	size_t low = 0, high = space->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (space->maps[middle].end <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct uw_mapping *uw_space_at(struct uw_space *space, uint64_t addr)
{
	size_t i = first_above(space, addr);

	return i < space->n && space->maps[i].start <= addr ? &space->maps[i] : NULL;
}

const struct uw_mapping *uw_space_find(const struct uw_space *space, uint64_t addr)
{
	size_t i = first_above(space, addr);

	return i < space->n && space->maps[i].start <= addr ? &space->maps[i] : NULL;
}

void uw_space_gap(const struct uw_space *space, uint64_t addr, uint64_t *start, uint64_t *end)
{
	size_t i = first_above(space, addr);

	*start = i ? space->maps[i - 1].end : 0;
	*end = i < space->n ? space->maps[i].start : UINT64_MAX;
}

const struct uw_mapping *uw_space_mappings(const struct uw_space *space, size_t *n)
{
	*n = space->n;
	return space->maps;
}

/*
 * Return whether a change at i moves the mappings before it, not those after it. mmap() allocates
 * downwards, so a process with tens of thousands of mappings mostly adds one before all others; the
 * ones after it then stay where they are. If there are few mappings, moving them is faster than the
 * other way is worth.
 */
static bool moves_front(const struct uw_space *space, size_t i)
{
	return space->n > 64 && i < space->n / 2;
}

/* Make room for so many more mappings around i, on the side that moves. */
static int make_room(struct uw_space *space, size_t i, size_t more)
{
	bool at_front = moves_front(space, i);
	size_t *here = at_front ? &space->front : &space->back;
	size_t *other = at_front ? &space->back : &space->front;
	size_t size = space->front + space->n + space->back, extra;
	struct uw_mapping *array;

	if (more <= *here)
		return 0;
	/* Many mappings were removed on the other side: half of that room serves here. */
	if (*other / 2 >= more && *other > space->n) {
		extra = *other / 2;
		array = at_front ? space->maps + extra : space->maps - extra;
		memmove(array, space->maps, space->n * sizeof(*array));
		*other -= extra;
	} else {
		extra = space->n + more + 14;
		array = malloc((size + extra) * sizeof(*array));
		if (!array)
			return -ENOMEM;
		array += space->front + (at_front ? extra : 0);
		if (space->n)
			memcpy(array, space->maps, space->n * sizeof(*array));
		if (space->maps)
			free(space->maps - space->front);
	}
	space->maps = array;
	*here += extra;
	return 0;
}

/* Open a slot at i. There is room on one side at least. */
static void open_slot(struct uw_space *space, size_t i)
{
	if ((moves_front(space, i) && space->front) || !space->back) {
		memmove(space->maps - 1, space->maps, i * sizeof(*space->maps));
		space->maps--;
		space->front--;
	} else {
		memmove(&space->maps[i + 1], &space->maps[i],
			(space->n - i) * sizeof(*space->maps));
		space->back--;
	}
	space->n++;
}

/* Close the slots [i, last). */
static void close_slots(struct uw_space *space, size_t i, size_t last)
{
	size_t gone = last - i;

	if (i < space->n - last) {
		memmove(&space->maps[gone], space->maps, i * sizeof(*space->maps));
		space->maps += gone;
		space->front += gone;
	} else {
		memmove(&space->maps[i], &space->maps[last],
			(space->n - last) * sizeof(*space->maps));
		space->back += gone;
	}
	space->n -= gone;
}

/*
 * Remove [start, end) from the mappings. There must be room for one more. Return the index where a
 * mapping of that range would be inserted.
 */
static size_t cut(struct uw_space *space, uint64_t start, uint64_t end)
{
	size_t i = first_above(space, start), last;

	if (i < space->n && space->maps[i].start < start) {
		struct uw_mapping *m = &space->maps[i];

		if (m->end > end) { /* it extends beyond both ends: two mappings now */
			open_slot(space, i + 1);
			m = &space->maps[i];
			m[1] = *m;
			m[1].start = end;
			m[1].off += end - m->start;
			if (m->object)
				uw_object_get(m->object);
			m->end = start;
			return i + 1;
		}
		m->end = start;
		i++;
	}
	for (last = i; last < space->n && space->maps[last].end <= end; last++)
		uw_object_put(space->maps[last].object);
	if (last > i)
		close_slots(space, i, last);
	if (i < space->n && space->maps[i].start < end) {
		space->maps[i].off += end - space->maps[i].start;
		space->maps[i].start = end;
	}
	return i;
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
	size_t i;
	int err;

	if (new.start >= new.end)
		return -EINVAL;
	err = own(space);
	if (!err)
		err = make_room(space, first_above(space, new.start), 2);
	if (err)
		return err;
	if (new.object)
		attach(space, &new, uw_object_get(new.object));
	i = cut(space, new.start, new.end);
	open_slot(space, i);
	space->maps[i] = new;
	if (new.end > space->top)
		space->top = new.end;
	changed(space);
	return 0;
}

int uw_space_unmap(struct uw_space *space, uint64_t start, uint64_t end)
{
	size_t i;
	int err;

	if (start >= end)
		return -EINVAL;
	/*
	 * If nothing was mapped there, as for each new block of a heap, caches of the space stay
	 * valid.
	 */
	i = first_above(space, start);
	if (i == space->n || space->maps[i].start >= end)
		return 0;
	err = own(space);
	if (!err)
		err = make_room(space, i, 1);
	if (err)
		return err;
	(void)cut(space, start, end);
	changed(space);
	return 0;
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

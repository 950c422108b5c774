/* unwinder/walk/mappings.c: sorted mappings in chunks: finds, adds and removes them. */
#include "unwinder/walk/mappings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/growth.h"
#include "base/search.h"

#define ROOM_FIRST 16
/* Two neighbours with fewer mappings become one, so that there are few chunks for their mappings. */
#define MERGE_BELOW (UW_CHUNK_MAX / 4 * 3)

/* A place between two mappings: in front of mapping i of a chunk, or behind the chunk's last. */
struct place {
	size_t chunk, i;
};

void uw_mappings_fini(struct uw_mappings *all)
{
	for (size_t c = 0; c < all->n_chunks; c++) {
		for (size_t i = 0; i < all->chunks[c].n; i++)
			uw_object_put(all->chunks[c].maps[i].object);
		free(all->chunks[c].maps);
	}
	free(all->chunks);
	*all = (struct uw_mappings){ 0 };
}

int uw_mappings_copy(const struct uw_mappings *all, struct uw_mappings *out)
{
	struct uw_mappings copy = { .room_chunks = all->n_chunks, .room = all->room };

	if (!all->n) {
		*out = (struct uw_mappings){ 0 };
		return 0;
	}
	copy.chunks = calloc(all->n_chunks, sizeof(*copy.chunks));
	for (; copy.chunks && copy.n_chunks < all->n_chunks; copy.n_chunks++) {
		const struct uw_chunk *from = &all->chunks[copy.n_chunks];
		struct uw_mapping *maps = malloc(all->room * sizeof(*maps));

		if (!maps)
			break;
		memcpy(maps, from->maps, from->n * sizeof(*maps));
		for (size_t i = 0; i < from->n; i++)
			if (maps[i].object)
				uw_object_get(maps[i].object);
		copy.chunks[copy.n_chunks] = (struct uw_chunk){ maps, from->n };
		copy.n += from->n;
	}
	if (copy.n < all->n) {
		uw_mappings_fini(&copy);
		return -ENOMEM;
	}
	*out = copy;
	return 0;
}

/* ---- finding --------------------------------------------------------------------------- */

/* Return the place of the first mapping that ends above addr; chunk n_chunks: there is none. */
static struct place first_above(const struct uw_mappings *all, uint64_t addr)
{
	const struct uw_chunk *chunks = all->chunks;
	size_t chunk =
		UW_COUNT_WHILE(c, all->n_chunks, chunks[c].maps[chunks[c].n - 1].end <= addr);

	if (chunk == all->n_chunks)
		return (struct place){ chunk, 0 };
	return (struct place){ chunk, UW_COUNT_WHILE(i, chunks[chunk].n - 1,
						     chunks[chunk].maps[i].end <= addr) };
}

struct uw_mapping *uw_mappings_above(const struct uw_mappings *all, uint64_t addr)
{
	struct place at = first_above(all, addr);

	return at.chunk < all->n_chunks ? &all->chunks[at.chunk].maps[at.i] : NULL;
}

void uw_mappings_gap(const struct uw_mappings *all, uint64_t addr, uint64_t *start, uint64_t *end)
{
	struct place at = first_above(all, addr);

	*end = at.chunk < all->n_chunks ? all->chunks[at.chunk].maps[at.i].start : UINT64_MAX;
	*start = 0;
	if (at.i) {
		*start = all->chunks[at.chunk].maps[at.i - 1].end;
	} else if (at.chunk) {
		const struct uw_chunk *before = &all->chunks[at.chunk - 1];

		*start = before->maps[before->n - 1].end;
	}
}

/* ---- chunks ---------------------------------------------------------------------------- */

/* Insert a chunk without mappings at index c. -ENOMEM. */
static int add_chunk(struct uw_mappings *all, size_t c)
{
	struct uw_mapping *maps;
	int err = UW_ARRAY_GROW(all->chunks, all->n_chunks, all->room_chunks, SIZE_MAX);

	if (err)
		return err;
	maps = malloc(all->room * sizeof(*maps));
	if (!maps)
		return -ENOMEM;
	memmove(&all->chunks[c + 1], &all->chunks[c], (all->n_chunks - c) * sizeof(*all->chunks));
	all->chunks[c] = (struct uw_chunk){ .maps = maps };
	all->n_chunks++;
	return 0;
}

/* Free the chunks [first, last), which have no mappings. */
static void free_chunks(struct uw_mappings *all, size_t first, size_t last)
{
	for (size_t c = first; c < last; c++)
		free(all->chunks[c].maps);
	memmove(&all->chunks[first], &all->chunks[last],
		(all->n_chunks - last) * sizeof(*all->chunks));
	all->n_chunks -= last - first;
}

/* Append mappings to a chunk, which has room for them. */
static void append(struct uw_chunk *chunk, const struct uw_mapping *maps, size_t n)
{
	memcpy(&chunk->maps[chunk->n], maps, n * sizeof(*maps));
	chunk->n += n;
}

/* Move the second half of a chunk to a new one behind it. */
static int split(struct uw_mappings *all, size_t c)
{
	int err = add_chunk(all, c + 1);
	struct uw_chunk *chunk = &all->chunks[c];
	size_t half = chunk->n / 2;

	if (err)
		return err;
	append(&all->chunks[c + 1], &chunk->maps[half], chunk->n - half);
	chunk->n = half;
	return 0;
}

/* After a change of chunk c: free it if it is empty, and merge neighbours with few mappings. */
static void tidy(struct uw_mappings *all, size_t c)
{
	if (!all->chunks[c].n)
		free_chunks(all, c, c + 1);
	/* A change may have left few mappings in c and in the one behind it. */
	for (size_t k = c + 2; k > (c ? c - 1 : 0); k--) {
		const struct uw_chunk *next = &all->chunks[k];

		if (k >= all->n_chunks || next[-1].n + next->n >= MERGE_BELOW)
			continue;
		append(&all->chunks[k - 1], next->maps, next->n);
		free_chunks(all, k, k + 1);
	}
}

/* ---- changing -------------------------------------------------------------------------- */

/*
 * Return the place for a mapping that begins at start: in front of the first one that ends above
 * start. There is at least one chunk.
 */
static struct place place_for(const struct uw_mappings *all, uint64_t start)
{
	struct place at = { 0 };

	if (!all->n)
		return at; /* the only chunk is empty */
	at = first_above(all, start);
	if (at.chunk == all->n_chunks)
		at = (struct place){ at.chunk - 1, all->chunks[at.chunk - 1].n };
	return at;
}

/* Make room for two more mappings in the chunk where one that begins at start belongs. -ENOMEM. */
static int make_room(struct uw_mappings *all, uint64_t start)
{
	struct uw_chunk *chunk;
	size_t c;

	if (!all->n_chunks) {
		all->room = ROOM_FIRST;
		return add_chunk(all, 0);
	}
	c = place_for(all, start).chunk;
	chunk = &all->chunks[c];
	if (chunk->n + 2 <= all->room)
		return 0;
	if (all->room == UW_CHUNK_MAX)
		return split(all, c);
	return UW_ARRAY_RESERVE(chunk->maps, chunk->n + 2, all->room, UW_CHUNK_MAX);
}

/* Insert a mapping. Its chunk has room for it. */
static void insert(struct uw_mappings *all, struct place at, const struct uw_mapping *mapping)
{
	struct uw_chunk *chunk = &all->chunks[at.chunk];

	memmove(&chunk->maps[at.i + 1], &chunk->maps[at.i],
		(chunk->n - at.i) * sizeof(*chunk->maps));
	chunk->maps[at.i] = *mapping;
	chunk->n++;
	all->n++;
}

/* Cut off what a mapping has before addr. */
static void cut_front(struct uw_mapping *m, uint64_t addr)
{
	m->off += addr - m->start;
	m->start = addr;
}

/*
 * Remove the mappings behind the place up to end, and the part of the next one before end. Chunks
 * behind that of the place are freed if they get empty.
 */
static void remove_until(struct uw_mappings *all, struct place at, uint64_t end)
{
	size_t c = at.chunk, i = at.i;

	for (; c < all->n_chunks; c++, i = 0) {
		struct uw_chunk *chunk = &all->chunks[c];
		size_t last = i;

		for (; last < chunk->n && chunk->maps[last].end <= end; last++)
			uw_object_put(chunk->maps[last].object);
		memmove(&chunk->maps[i], &chunk->maps[last],
			(chunk->n - last) * sizeof(*chunk->maps));
		chunk->n -= last - i;
		all->n -= last - i;
		if (i < chunk->n) {
			if (chunk->maps[i].start < end)
				cut_front(&chunk->maps[i], end);
			break;
		}
	}
	if (c > at.chunk + 1)
		free_chunks(all, at.chunk + 1, c);
}

/*
 * Remove [start, end) from the mappings. There is a chunk with room for one more. Return the place
 * for a mapping of that range; its chunk may be empty.
 */
static struct place cut(struct uw_mappings *all, uint64_t start, uint64_t end)
{
	struct place at = place_for(all, start);
	const struct uw_chunk *chunk = &all->chunks[at.chunk];

	if (at.i < chunk->n && chunk->maps[at.i].start < start) {
		struct uw_mapping *m = &chunk->maps[at.i], rest = *m;

		m->end = start;
		at.i++;
		if (rest.end > end) { /* it extends beyond both ends: two mappings now */
			if (rest.object)
				uw_object_get(rest.object);
			cut_front(&rest, end);
			insert(all, at, &rest);
			return at;
		}
	}
	remove_until(all, at, end);
	return at;
}

int uw_mappings_set(struct uw_mappings *all, const struct uw_mapping *mapping)
{
	int err = make_room(all, mapping->start);
	struct place at;

	if (err)
		return err;
	at = cut(all, mapping->start, mapping->end);
	insert(all, at, mapping);
	tidy(all, at.chunk);
	return 0;
}

int uw_mappings_remove(struct uw_mappings *all, uint64_t start, uint64_t end)
{
	int err = make_room(all, start);

	if (!err)
		tidy(all, cut(all, start, end).chunk);
	return err;
}

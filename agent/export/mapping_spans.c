/* agent/export/mapping_spans.c: finds the segments that the locations of a profile lie in. */
#include "agent/export/mapping_spans.h"

#include "agent/array.h"
#include "unwinder/unwinder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

/*
 * Return the segment that the location lies in; NULL if it lies in none or the module has no
 * object.
 */
static const struct uw_segment *segment_of(const struct location *location)
{
	size_t n = 0;
	const struct uw_segment *s =
		location->module->object ? uw_object_segments(location->module->object, &n) : NULL;

	for (size_t i = 0; i < n; i++)
		if (location->vaddr >= s[i].vaddr && location->vaddr - s[i].vaddr < s[i].mem_size)
			return &s[i];
	return NULL;
}

/* segment NULL: the span is for all locations of the module outside of its segments. */
static bool is_span_of(const struct span *s, const struct module *module,
		       const struct uw_segment *segment)
{
	return s->module == module && s->segment == (segment != NULL) &&
	       (!segment || s->first == (segment->vaddr & ~(uint64_t)(PAGE - 1)));
}

/*
 * Append the span of a segment, or an empty span that grows with its locations; index it by hash.
 */
static int add_span(struct spans *s, const struct module *module, const struct uw_segment *segment,
		    uint64_t hash, uint32_t *out)
{
	struct span *span;
	int err;

	err = array_grow(s->all, s->n, s->room);
	if (err)
		return err;
	err = uw_hash_add(&s->by_place, hash, (uint32_t)s->n);
	if (err)
		return err;
	*out = (uint32_t)s->n++;
	span = &s->all[*out];
	*span = (struct span){ .module = module, .first = UINT64_MAX };
	if (segment) {
		/* The loader maps whole pages. */
		uint64_t skew = segment->vaddr & (PAGE - 1);
		uint64_t last = segment->vaddr + (segment->mem_size - 1);

		span->segment = true;
		span->first = segment->vaddr - skew;
		span->last = (last < segment->vaddr ? UINT64_MAX : last) | (PAGE - 1);
		span->off = segment->off - (segment->off < skew ? segment->off : skew);
	}
	return 0;
}

/*
 * Find or add the span of a location. A span without a segment is extended to contain the location.
 */
static int place_location(struct spans *s, const struct profile *p, uint32_t id)
{
	const struct location *l = &p->locations[id];
	const struct uw_segment *segment = segment_of(l);
	uint64_t hash = hash_u64(l->module->id, segment ? segment->vaddr + 1 : 0);
	uint32_t at =
		UW_HASH_FIND(i, &s->by_place, hash, is_span_of(&s->all[i], l->module, segment));
	struct span *span;

	if (at == UW_HASH_NONE) {
		int err = add_span(s, l->module, segment, hash, &at);

		if (err)
			return err;
	}
	s->of[id] = at;
	span = &s->all[at];
	if (span->segment)
		return 0;
	if (l->vaddr < span->first)
		span->first = l->vaddr & ~(uint64_t)(PAGE - 1);
	if (l->vaddr > span->last)
		span->last = l->vaddr | (PAGE - 1);
	/* In a file that could not be opened, addresses are file offsets. */
	span->off = l->module->kind == MODULE_FILE ? span->first : 0;
	return 0;
}

int spans_make(const struct profile *p, struct spans *out)
{
	struct spans s = { .of = malloc((p->n_locations + 1) * sizeof(*s.of)) };
	int err = s.of ? 0 : -ENOMEM;

	if (!err)
		memset(s.of, 0xff, p->n_locations * sizeof(*s.of)); /* SPAN_NONE */
	for (size_t i = 0; !err && i < p->n_location_ids; i++)
		if (s.of[p->location_ids[i]] == SPAN_NONE)
			err = place_location(&s, p, p->location_ids[i]);
	if (err)
		spans_fini(&s);
	else
		*out = s;
	return err;
}

void spans_fini(struct spans *s)
{
	free(s->all);
	free(s->of);
	uw_hash_fini(&s->by_place);
	*s = (struct spans){ 0 };
}

/* Return whether the base name is a library's: "libc.so.6", "ld-linux-x86-64.so.2", "module.so". */
static bool is_library(const char *path)
{
	const char *slash = strrchr(path, '/'), *so = strstr(slash ? slash : path, ".so");

	return so && (!so[3] || so[3] == '.');
}

struct span *spans_program(struct spans *s, const struct profile *p)
{
	struct span *first = NULL;

	for (size_t i = 0; i < p->n_entries; i++) {
		const struct profile_entry *e = &p->entries[i];

		for (uint32_t j = 0; j < e->n_locations; j++)
			s->all[s->of[p->location_ids[e->first_location + j]]].weight +=
				e->n_samples;
	}
	for (size_t i = 0; i < s->n; i++)
		if (s->all[i].module->kind == MODULE_FILE && !is_library(s->all[i].module->path) &&
		    (!first || s->all[i].weight > first->weight))
			first = &s->all[i];
	return first;
}

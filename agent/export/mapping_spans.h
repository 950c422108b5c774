/*
 * agent/export/mapping_spans.h: divides the addresses of a profile into the mappings that a result lists:
 * one for each segment of a file.
 */
#ifndef AGENT_EXPORT_MAPPING_SPANS_H
#define AGENT_EXPORT_MAPPING_SPANS_H

#include "agent/hash.h"
#include "agent/pipeline/profile.h"

/*
 * A mapping in the making: a segment of a file or, for addresses of a module outside of segments,
 * the range of those that were sampled.
 */
struct span {
	const struct module *module;
	bool segment;	      /* the bounds are those of the file's segment */
	uint64_t first, last; /* address of the first and last byte */
	uint64_t off;	      /* file offset of first */
	uint64_t weight;      /* frames in it, weighted by their samples */
	uint64_t id;	      /* for the caller; 0 at first */
};

struct spans {
	struct span *all;
	size_t n, room;
	struct uw_hash_index by_place;
	uint32_t *of; /* by location of the profile: its span; SPAN_NONE: no entry has it */
};

#define SPAN_NONE UINT32_MAX

/* Find the spans of all locations that the profile's entries have. -ENOMEM. */
int spans_make(const struct profile *profile, struct spans *out);
void spans_fini(struct spans *spans);

/*
 * Return the span of the main program; for a whole system, of the program with the most frames.
 * NULL: there is none.
 */
struct span *spans_program(struct spans *spans, const struct profile *profile);

#endif

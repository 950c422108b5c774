/* agent/runtime/context_internal.h: what context.c and context_go.c share. */
#ifndef AGENT_RUNTIME_CONTEXT_INTERNAL_H
#define AGENT_RUNTIME_CONTEXT_INTERNAL_H

#include "agent/runtime/context.h"

/*
 * Clear these registers, and end the part with its mark. Operations that fail go on here, as do those that jump to
 * operation 0.
 */
void context_end_part(struct plan *plan, const uint8_t *used, size_t n_used);

/* Return whether a slice is the mark with this address, and its word. */
bool context_is_mark(const struct uw_region *slice, uint64_t addr, uint64_t *word);

struct context_decoding {
	const struct context_input *in;
	struct labels *to;
	size_t n; /* labels besides trace_id and span_id */
};

/* Add a label of bytes that a program wrote, if the name may be that of a label. */
void context_add(struct context_decoding *d, const void *key, size_t n_key, const void *value,
		 size_t n_value);

/* Add the labels in the slices behind a mark, up to the last mark. */
enum context_state context_go_map(struct context_decoding *d, const struct uw_region *slices,
				  uint32_t n);
enum context_state context_go_list(struct context_decoding *d, const struct uw_region *slices,
				   uint32_t n);

#endif

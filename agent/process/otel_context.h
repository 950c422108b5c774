/*
 * agent/process/otel_context.h: decodes what a program says of itself in its process context
 * (OpenTelemetry enhancement proposal 4719): the attributes of its resource, such as service.name, and how its
 * threads say what they work for (proposal 4947).
 */
#ifndef AGENT_PROCESS_OTEL_CONTEXT_H
#define AGENT_PROCESS_OTEL_CONTEXT_H

#include "agent/labels.h"

#include <stddef.h>
#include <stdint.h>

enum {
	OTEL_CONTEXT_LABELS = 32, /* attributes of one process */
	OTEL_CONTEXT_VALUE = 256, /* bytes of a value */
};

/*
 * Add an attribute as a label each to `to`, under the names that the rules give them. bytes are the
 * payload, which the program wrote: a message ProcessContext, or Resource as in earlier drafts.
 *
 * Labels are made of texts, numbers and truth values. Left out are lists and other values; what is meant for
 * readers of its threads ("threadlocal."); keys without a dot, because those are names of offwind's own labels, or that have other characters than letters,
 * digits, '_', '.' and '-'; values that are empty or longer than OTEL_CONTEXT_VALUE; an attribute whose
 * name is there already; what is beyond OTEL_CONTEXT_LABELS or has no room.
 *
 * Return how many were added; of a damaged payload those before the damage; -ENOMEM.
 */
int otel_context_decode(const void *bytes, size_t size, const struct label_rules *rules,
			struct labels *to);

enum { OTEL_CONTEXT_KEYS = 256 }; /* attributes that threads can have: a key is one byte */

/* What the attributes of threads are called. All zero: there are none. */
struct otel_context_keys {
	bool published; /* threads have the variable otel_thread_ctx_v1 */
	size_t n;
	struct { /* in the payload; size 0: it is no key of a label */
		uint16_t at, size;
	} keys[OTEL_CONTEXT_KEYS];
};

/* Find what a payload says of threads; a damaged one says what is before the damage. */
void otel_context_threads(const void *bytes, size_t size, struct otel_context_keys *out);

#endif

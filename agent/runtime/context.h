/*
 * agent/runtime/context.h: what a thread works for when it is sampled, as it says itself: labels of samples.
 *
 * A plan (schema/plan.h) copies what the thread has published, before what leads to frames of interpreted code.
 * Its slices begin with a mark that says what they are, and end with another mark, so they are decoded without
 * the process and without its files:
 *
 *   CONTEXT_OTEL      the variable otel_thread_ctx_v1 points to a record (OpenTelemetry enhancement proposal
 *                     4947): trace and span, and attributes whose names the process context has
 *   CONTEXT_GO_MAP    the pprof labels of the goroutine: a map of texts, until Go 1.23
 *   CONTEXT_GO_LIST   the same as a list of texts, from Go 1.24 on
 *
 * All of it is the process's own and may be anything.
 */
#ifndef AGENT_RUNTIME_CONTEXT_H
#define AGENT_RUNTIME_CONTEXT_H

#include "agent/event.h"
#include "agent/labels.h"
#include "agent/process/otel_context.h"
#include "agent/runtime/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Marks: addresses of slices with one word, where no process has memory. */
enum {
	CONTEXT_SLOTS =
		0xfd8, /* how many modules' storage the thread has room for behind the one that is read */
	CONTEXT_OTEL = 0xfe0,	 /* the address of the record */
	CONTEXT_GO_MAP = 0xfe8,	 /* of the map's header */
	CONTEXT_GO_LIST = 0xff0, /* of the list's header */
	CONTEXT_END = 0xff8,
};

/* Where threads have a variable: at offset from the thread pointer, or in a module's block of their storage. */
struct context_place {
	uint64_t module; /* 0: from the thread pointer */
	uint64_t off;
};

/*
 * Find where the threads of a process have otel_thread_ctx_v1, if an object exports it. live reads the memory of the
 * process; glibc: it is that C library's. -ENOENT: the object does not export it. -EAGAIN: the dynamic linker has not
 * written yet where it is. -ENOTSUP: nothing tells where it is. Or a code of live.
 */
int context_otel_place(const struct uw_object *object, uint64_t bias, bool glibc,
		       runtime_live_fn live, void *ctx, struct context_place *out);

/*
 * Make the part of a plan that copies the record of a thread. A part ends behind its last operation, and leaves all
 * registers 0.
 */
void context_otel_part(const struct context_place *place, struct plan *out);

/*
 * Make the part that copies the pprof labels of the goroutine that a thread runs, for a program of this version of Go.
 * g: where threads have the address of the running goroutine's g, from the thread pointer. -ENOTSUP: it is not known
 * where that version has them.
 */
int context_go_part(unsigned int major, unsigned int minor, uint64_t g, struct plan *out);

/*
 * Put a plan together: a part, and what else is copied of the process; either may be NULL. -E2BIG: they have more
 * operations than there is room for.
 */
int context_join(const struct plan *part, const struct plan *plan, struct plan *out);

/* Return how many slices of a sample are a part's: the first ones, up to its last mark. */
uint32_t context_slices(const struct event_sample *sample);

/* What a sample says of its thread's work. */
enum context_state {
	CONTEXT_NONE,	  /* nothing: there was no part, or no record */
	CONTEXT_LABELS,	  /* there are labels, at least one or none at all */
	CONTEXT_CHANGING, /* the record is being written, or is invalid */
	CONTEXT_MISSING,  /* memory could not be read, or is impossible */
};

struct context_input {
	const struct event_sample *sample;
	const void *payload;		      /* of the process context; NULL: none */
	const struct otel_context_keys *keys; /* in it */
	const char *others; /* labels that the process has: a text of agent/labels.h, or NULL */
	const struct label_rules *rules; /* NULL: none */
};

/*
 * Add the labels of a sample to a set: trace_id, span_id, and the attributes under their names. Left out are names
 * that are offwind's own or the process's, names with other characters than letters, digits, '_', '.' and '-', and
 * what is beyond the limits thread-labels and thread-label-bytes (limits_reach).
 */
enum context_state context_decode(const struct context_input *in, struct labels *to);

/* Return a state's sentence for explain; NULL: there is nothing to say. */
const char *context_says(enum context_state state);

#endif

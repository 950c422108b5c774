/*
 * agent/live/bases.h: keeps the slices of records to which later ones refer, and puts those together again; see
 * schema/plan.h.
 */
#ifndef AGENT_LIVE_BASES_H
#define AGENT_LIVE_BASES_H

#include "schema/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The last base of a CPU. */
struct live_base {
	uint32_t number;
	uint32_t size;	/* 0: there is none */
	uint8_t *bytes; /* PLAN_BYTES_MAX; NULL: there was none yet */
};

struct live_bases { /* all zero: none is known */
	struct live_base *cpus;
	size_t n, room;
	uint8_t whole[PLAN_BYTES_MAX]; /* the slices that were put together last */
};

/*
 * Follow the reference of a CPU's record, whose own slices are *size bytes (at most PLAN_BYTES_MAX) at *bytes. If they are a base,
 * keep a copy. Else let *bytes and *size be all of the record's slices; they are valid until the next call. Return false, and change nothing,
 * if the base is not known. Records must come in the order in which the CPU made them. bases NULL: no base is kept or known.
 */
bool live_bases_follow(struct live_bases *bases, uint32_t cpu,
		       const struct plan_reference *reference, const uint8_t **bytes,
		       uint32_t *size);
void live_bases_fini(struct live_bases *bases);

#endif

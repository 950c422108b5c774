/*
 * agent/source/live_event.h: what a recording samples, from perf's words for it.
 */
#ifndef AGENT_SOURCE_LIVE_EVENT_H
#define AGENT_SOURCE_LIVE_EVENT_H

#include "agent/source/source.h"

#include <linux/perf_event.h>
#include <stddef.h>
#include <stdint.h>

enum live_event_kind {
	LIVE_EVENT_SAMPLED,    /* a perf event on each CPU that overflows */
	LIVE_EVENT_TRACEPOINT, /* one perf event for all CPUs */
	LIVE_EVENT_PROBE,      /* on an instruction of a file */
	LIVE_EVENT_OFF_CPU,    /* waiting threads: no perf event */
	LIVE_EVENT_ALLOC,      /* allocated memory: probes on allocators as they are seen */
};

struct live_event {
	enum live_event_kind kind;
	struct perf_event_attr attr; /* SAMPLED and TRACEPOINT; disabled */
	struct source_event info;
	uint32_t every; /* TRACEPOINT and PROBE: one of so many, at least 1 */
	bool paced;	/* SAMPLED: the program sees each and finds out which to sample */
	/* PROBE: where in which file; symbol NULL: off counts from the file's beginning.  Owned. */
	char *file, *symbol;
	uint64_t off;
};

struct live_events {
	struct live_event *events;
	size_t n;
};

/*
 * All that the options ask for, in the order of events, probes, waiting,
 * allocations; the clock where they ask for none of the first two, and not for
 * allocations alone.  The clock is cycles where the
 * machine counts them, else cpu-clock.  On failure error (size 512) says which
 * word is wrong and why.
 */
int live_events_of(const struct source_live_options *options, struct live_events *out, char *error);
void live_events_fini(struct live_events *events);

/* Whether cycles, or else cpu-clock, can be sampled here: 0, or why not. */
int live_clock_try(bool hardware);

#endif

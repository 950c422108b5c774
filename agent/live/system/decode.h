/* agent/live/system/decode.h: the events of a recording, parsed from perf's names for them. */
#ifndef AGENT_LIVE_SYSTEM_DECODE_H
#define AGENT_LIVE_SYSTEM_DECODE_H

#include "agent/source/source.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum live_event_kind {
	LIVE_EVENT_SAMPLED,    /* a perf event on each CPU, which overflows */
	LIVE_EVENT_TRACEPOINT, /* one perf event for all CPUs */
	LIVE_EVENT_PROBE,      /* an instruction of a file */
	LIVE_EVENT_OFF_CPU,    /* threads that wait; no perf event */
	LIVE_EVENT_ALLOC,      /* allocated memory: probes on allocators */
};

struct live_event {
	enum live_event_kind kind;
	struct perf_event_attr attr; /* for SAMPLED and TRACEPOINT; disabled */
	struct source_event info;
	uint32_t every; /* TRACEPOINT and PROBE: take one in so many, at least 1 */
	bool paced;	/* SAMPLED: the BPF program sees each one and decides which to sample */
	/*
	 * PROBE: a place in a file, off bytes after symbol; without a symbol (NULL), off is a file
	 * offset. Owned.
	 */
	char *file, *symbol;
	uint64_t off;
};

struct live_events {
	struct live_event *events;
	size_t n;
};

/*
 * Build the list of all events that the options ask for, in this order: events, probes, waits,
 * allocations. If the options name neither events nor probes, the clock is added, except for
 * allocations alone. The clock is cycles if the machine counts them and no waits are recorded;
 * otherwise it is cpu-clock. live_events_fini frees the list. On failure error, of LIVE_ERROR_SIZE
 * bytes, says which word is wrong and why.
 */
int live_events_of(const struct source_live_options *options, struct live_events *out, char *error);
void live_events_fini(struct live_events *events);
/* Let the events that have a rate have this one. Return whether one of them had another. */
bool live_events_set_rate(struct live_events *events, uint32_t frequency_hz);

/* Where tracefs is not mounted, let this process read the numbers of tracepoints after it gave up to mount. */
void live_tracepoints_keep(void);

/* Check whether cycles (hardware) or cpu-clock can be sampled here. Return 0, or why not. */
int live_clock_try(bool hardware);

#endif

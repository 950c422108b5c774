/*
 * agent/source/live.h: what the live source can tell beside its events.
 */
#ifndef AGENT_SOURCE_LIVE_H
#define AGENT_SOURCE_LIVE_H

#include "agent/source/source.h"

#include <stdint.h>

/*
 * fired = filtered + captured + ring_full + unreadable, as the kernel counted;
 * at the end of the stream delivered + damaged = captured, and the samples of
 * all EVENT_LOST are ring_full + unreadable + damaged.
 */
struct live_counters {
	uint64_t fired; /* times the clock ticked on a CPU that was not idle */
	uint64_t filtered, filtered_idle, filtered_self, filtered_pid;
	uint64_t captured;
	uint64_t ring_full, unreadable;
	uint64_t damaged;   /* arrived torn */
	uint64_t delivered; /* as EVENT_SAMPLE so far */
	/* Of the captured: */
	uint64_t cut, holes, bytes;
	uint64_t top_cached, top_start, top_tls, top_go, top_signal, top_vma, top_none;
	uint64_t find_vma;
	uint64_t sideband;	/* mapping, fork, … events that came */
	uint64_t sideband_lost; /* … and that did not */
	uint64_t late;		/* events that came after later ones were handed out */
	uint64_t pids_overflow; /* children not followed: too many processes at once */
	uint64_t runs, run_ns;	/* of the program; only while kernel.bpf_stats_enabled is 1 */
};

/* source: from source_live_open. */
int source_live_counters(struct source *source, struct live_counters *counters);

#endif

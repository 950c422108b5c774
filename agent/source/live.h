/*
 * agent/source/live.h: what the live source can tell beside its events.
 */
#ifndef AGENT_SOURCE_LIVE_H
#define AGENT_SOURCE_LIVE_H

#include "agent/source/source.h"

#include <stdint.h>

/*
 * What became of every time an event fired, as the kernel counted and then as the
 * agent did:
 *
 *   fired    = filtered + captured + ring_full + unreadable
 *   captured = delivered + waiting + damaged + short_waits + no_room + unended
 *
 * At the end of the stream nothing is waiting, and the samples of all EVENT_LOST
 * are ring_full + unreadable + damaged + no_room + unended.  Of the threads that began
 * to wait there is then
 *
 *   waits = waits_ended + short_waits + still_waiting + waits_uncaptured + no_room + unended
 *
 * A thread that ends has woken up before.
 */
struct live_counters {
	uint64_t fired; /* times an event came on a CPU */
	/* filtered, of which: the idle thread, ourselves, … */
	uint64_t filtered, filtered_idle, filtered_self;
	uint64_t filtered_process; /* not among the processes and threads asked for */
	uint64_t filtered_other;   /* not of the name, user, cgroup or CPU asked for */
	uint64_t filtered_period;  /* one of so many was asked for */
	uint64_t filtered_failed;  /* allocations that failed */
	uint64_t captured;
	uint64_t ring_full, unreadable;
	uint64_t damaged;     /* arrived torn */
	uint64_t short_waits; /* threads that did not wait for as long as was asked for */
	uint64_t no_room;     /* too many threads waited at once */
	uint64_t unended;     /* threads that waited, nobody knows for how long */
	uint64_t delivered;   /* as EVENT_SAMPLE so far */
	uint64_t waiting;     /* for their turn */
	/* Of the captured: */
	uint64_t cut, holes, bytes;
	uint64_t stack_bytes; /* … of it user stack; of those delivered so far */
	uint64_t top_cached, top_start, top_tls, top_go, top_signal, top_vma, top_none;
	uint64_t find_vma;
	uint64_t pids_overflow; /* children not followed: too many processes at once */
	/* Of threads that began to wait and passed the filters: */
	uint64_t waits;
	uint64_t waits_ended;	   /* delivered, with the time until they ran again */
	uint64_t still_waiting;	   /* … until the end of recording, when they went on waiting */
	uint64_t waits_uncaptured; /* ring_full or unreadable */
	uint64_t wakes_unseen;	   /* ends noticed only when the thread left its CPU again */
	uint64_t wakes_lost;	   /* ends that found the ring full */
	/* Of captured allocations: */
	uint64_t frees;	     /* given back, in whole or in part */
	uint64_t frees_lost; /* … of which nothing was told: the ring was full */
	uint64_t untracked;  /* whose end cannot be told: too many were live at once */
};

struct live_totals {		/* of the whole system */
	uint64_t sideband;	/* mapping, fork, … events that came */
	uint64_t sideband_lost; /* … and that did not */
	uint64_t late;		/* events that came after later ones were handed out */
	uint64_t allocators;	/* files with a malloc that are watched */
	uint64_t runs, run_ns;	/* of the program; only while kernel.bpf_stats_enabled is 1 */
};

/* source: from source_live_open.  cpu: below source_live_n_cpus, or -1 for their sum. */
int source_live_counters(struct source *source, int cpu, struct live_counters *counters);
int source_live_totals(struct source *source, struct live_totals *totals);
int source_live_n_cpus(struct source *source);
/*
 * Read how often the event of that number occurred in the threads asked for, where each occurrence
 * was looked at; -ENOENT: it was not, as is so for clocks, the machine's counters and with a count.
 */
int source_live_counted(struct source *source, size_t event, uint64_t *counted);

/*
 * Measure how much longer a malloc and a free take while allocations are recorded.  everywhere:
 * in all processes, else in those asked for.  -ENOENT: allocations are not recorded, or this
 * process's own allocator, on which it is measured, cannot be watched.
 */
struct live_alloc_cost {
	uint64_t malloc_ns, free_ns;
	bool everywhere;
};
int source_live_alloc_cost(struct source *source, struct live_alloc_cost *cost);

/*
 * From here on these CPUs are recorded, as if the others had gone offline: the
 * source itself does this every second with those that are online.  What happened
 * on new ones before is made up for by a look at all processes.
 */
int source_live_set_cpus(struct source *source, const int *cpus, size_t n);

#endif

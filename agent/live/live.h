/* agent/live/live.h: counters and control of the live source, in addition to its events. */
#ifndef AGENT_LIVE_LIVE_H
#define AGENT_LIVE_LIVE_H

#include "agent/source/source.h"

#include <stdint.h>
#include <sys/types.h>

/*
 * What happened each time an event fired. First the counts of the kernel, then those of the agent:
 *
 *   fired    = filtered + captured + ring_full + unreadable
 *   captured = delivered + waiting + damaged + off_cpu_short + no_room + unended
 *
 * At the end of the stream, waiting is 0, and the n_samples of all EVENT_LOST sum up to
 *
 *   ring_full + unreadable + damaged + no_room + unended
 *
 * For the threads that began to wait, at the end of the stream:
 *
 *   off_cpu = off_cpu_ended + off_cpu_short + still_waiting + off_cpu_skipped +
 *             off_cpu_uncaptured + no_room + unended
 *
 * A thread that exits has woken up before.
 */
struct live_counters {
	uint64_t fired; /* how often an event fired, on all CPUs or on one */
	/* All filtered events; of these, the idle thread and the agent itself: */
	uint64_t filtered, filtered_idle, filtered_self;
	uint64_t filtered_process; /* not one of the selected processes and threads */
	uint64_t filtered_other;   /* not of a selected name, user or CPU */
	uint64_t filtered_cgroup;  /* not in a selected cgroup */
	uint64_t filtered_period;  /* skipped, because only one in so many is sampled */
	uint64_t filtered_failed;  /* allocations that failed */
	uint64_t captured;
	uint64_t ring_full, unreadable;
	uint64_t damaged;	/* records that failed the check of their layout */
	uint64_t off_cpu_short; /* waits that were shorter than off_cpu_min_ns */
	uint64_t no_room;	/* waits dropped, because too many threads waited at once */
	uint64_t unended;	/* waits whose length is unknown */
	uint64_t delivered;	/* as EVENT_SAMPLE, so far */
	uint64_t waiting;	/* captured, but not delivered yet */
	/* Of the captured records: */
	uint64_t cut, holes, bytes;
	/* Time in which records were made, in the threads that were sampled, and in wakers. */
	uint64_t program_ns;
	uint64_t stack_bytes; /* user stack bytes of the records delivered so far */
	uint64_t top_cached, top_start, top_tls, top_go, top_signal, top_vma, top_none;
	uint64_t find_vma;
	uint64_t pids_overflow; /* children not followed: too many processes at once */
	/* Of the threads that began to wait and passed the filters: */
	uint64_t off_cpu;
	uint64_t off_cpu_ended;	     /* delivered, with the time until the thread ran again */
	uint64_t still_waiting;	     /* delivered; still waiting when recording ended */
	uint64_t off_cpu_skipped;    /* not captured, because others stand for them */
	uint64_t off_cpu_uncaptured; /* not captured: ring_full or unreadable */
	uint64_t unwoken;	     /* of off_cpu_ended: it was not seen when they were woken */
	uint64_t wakes_unseen;	     /* ends noticed only when the thread left its CPU again */
	uint64_t wakes_lost;	     /* ends not recorded, because the ring was full */
	/*
	 * Threads that ended a captured wait, if their stacks are to be captured: the sum of the next five
	 * numbers.
	 */
	uint64_t wakers;
	uint64_t wakers_captured;
	uint64_t wakers_short; /* of a wait that was shorter than off_cpu_min_ns until then */
	uint64_t wakers_other; /* not one of the selected processes and threads */
	uint64_t wakers_full, wakers_unreadable;
	/* Of the captured allocations: */
	uint64_t frees;	     /* recorded frees, complete or partial */
	uint64_t frees_lost; /* frees not recorded, because the ring was full */
	uint64_t untracked;  /* frees cannot be recorded: too many were live at once */
};

struct live_totals {		/* for the whole system */
	uint64_t sideband;	/* mapping, fork, … events received */
	uint64_t sideband_lost; /* … and events lost */
	uint64_t late;		/* events received after later ones were delivered */
	uint64_t allocators;	/* files with a malloc that are watched */
	uint64_t in_ring_ns;	/* the longest time that a sample was seen in the ring */
	/* Of the program; counted only while kernel.bpf_stats_enabled is 1. */
	uint64_t runs, run_ns;
};

/*
 * Read the counters. source is from source_live_open. cpu is below source_live_n_cpus; -1 means the
 * sum of all CPUs, and -EINVAL a cpu that does not exist. The counts go on while recording does.
 */
int source_live_counters(struct source *source, int cpu, struct live_counters *counters);
/* Read the totals of the whole system. A negative errno value if the kernel refuses. */
int source_live_totals(struct source *source, struct live_totals *totals);
/* Return the number of CPUs that have counters, online or not. */
int source_live_n_cpus(struct source *source);
/*
 * Read how often event number event occurred in the selected threads, if the BPF program sees every
 * occurrence. -ENOENT if it does not: for clocks, the machine's counters, and recordings with a
 * count.
 */
int source_live_counted(struct source *source, size_t event, uint64_t *counted);

/*
 * Measure how much longer a malloc and a free take while allocations are recorded. everywhere is
 * set if the probes are in all processes, not only in the selected ones. The measurement uses this
 * process's own allocator. -ENOENT: allocations are not recorded, or that allocator cannot be
 * watched.
 */
struct live_alloc_cost {
	uint64_t malloc_ns, free_ns;
	bool everywhere;
};
int source_live_alloc_cost(struct source *source, struct live_alloc_cost *cost);

/*
 * Record these CPUs from now on, as if the others had gone offline. The source itself calls this
 * function every second with the CPUs that are online. What happened on new CPUs before is covered
 * by a new inventory of all processes. -EINVAL if n is 0; on other failures recording may be
 * incomplete.
 */
int source_live_set_cpus(struct source *source, const int *cpus, size_t n);

/*
 * For a process that also does other things between the events (agent/live/capture.c): let
 * source_next return -EAGAIN whenever fd is readable; and read the kernel's rings if that was not done
 * for some time, so that they do not overflow. Return 0 or a negative code.
 */
int source_live_watch(struct source *source, int fd);
int source_live_keep_up(struct source *source);

/*
 * For a process that lets another one read samples where they are, in the kernel's ring: the ring as
 * live_ring_map_data takes it, and where this process has its data. The descriptor stays the source's.
 */
struct live_memory {
	int fd;
	const uint8_t *data;
	size_t size;
};
struct live_memory source_live_memory(struct source *source);
/*
 * taken returns a number that grows with what the other process has read. It is called whenever the rings
 * are read. Before this call, source_live_lend does nothing.
 */
void source_live_lend_to(struct source *source, uint64_t (*taken)(void *ctx), void *ctx);
/*
 * Leave the last event's sample in the ring, beyond the next call of source_next, until taken returns at
 * least this number, which is at least 1. Other events, and samples that are not in the ring, are not affected.
 */
void source_live_lend(struct source *source, uint64_t until);
/*
 * Whether the other process decodes samples, too: then events have them as records (event_sample.record), but not those of
 * allocations. It is less work, and a record's bytes come into the caches of one CPU only. From each call with leave on, that
 * process must see all of them: records may refer to others before them (schema/plan.h).
 */
void source_live_leave_records(struct source *source, bool leave);

/*
 * Record with this rate and these filters from now on: those of struct live_choice
 * (agent/live/choice.h), but the rate alone without source_live_options.changes. Events before the change
 * and after it are divided by EVENT_CHANGED. On failure error, of LIVE_ERROR_SIZE bytes, says why, and
 * nothing has changed. Nothing is lost or counted twice by a change.
 */
int source_live_change(struct source *source, const struct source_live_options *options,
		       char *error);

/* Sample none of these processes, which are offwind's own; n is at most CAPTURE_SELF_MAX. */
void source_live_own(struct source *source, const pid_t *pids, size_t n);
/*
 * For a reader of the events that knows nothing of those before: report again what runs, and the names
 * of cgroups.
 */
int source_live_again(struct source *source);

#endif

/*
 * agent/live/tally.h: counts what became of each CPU's records, and adds up what the kernel counted.
 */
#ifndef AGENT_LIVE_TALLY_H
#define AGENT_LIVE_TALLY_H

#include "agent/live/live.h"

struct live_bpf;

struct live_tally_cpu { /* what the agent counted of one CPU's records */
	uint64_t delivered, damaged, off_cpu_short, no_room, unended;
	uint64_t off_cpu;	       /* records of beginning waits that arrived */
	uint64_t ended, still_waiting; /* of these, delivered: see live.h */
	uint64_t unwoken;	       /* of those: the wake-up was not seen */
	uint64_t stack_bytes;	       /* user stack bytes of the delivered samples */
};

struct live_tally {
	struct live_tally_cpu *cpus; /* one per CPU that has counters */
	int n_cpus;
};

int live_tally_init(struct live_tally *tally, int n_cpus); /* -ENOMEM */
void live_tally_fini(struct live_tally *tally);

/* Return the counters of a CPU. A CPU that is out of range counts as CPU 0. */
struct live_tally_cpu *live_tally_of(const struct live_tally *tally, uint32_t cpu);

/* Return what was counted for one CPU, or for all CPUs if cpu is -1. */
struct live_tally_cpu live_tally_sum(const struct live_tally *tally, int cpu);

/* Read the counters of bpf and add the own ones; see source_live_counters. */
int live_tally_read(const struct live_tally *tally, const struct live_bpf *bpf, int cpu,
		    struct live_counters *counters);

#endif

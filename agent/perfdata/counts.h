/*
 * agent/perfdata/counts.h: the counters that a sample came with (PERF_SAMPLE_READ). Of a group only the leader samples
 * (perf record -e '{a,b}:S'); its samples say how often the other events have occurred.
 */
#ifndef AGENT_PERFDATA_COUNTS_H
#define AGENT_PERFDATA_COUNTS_H

#include "agent/hash.h"

#include <stddef.h>
#include <stdint.h>

/* So many counters are remembered; what further ones count is left out. */
#define PERFDATA_COUNTS_MAX (1u << 20)

struct perfdata_count { /* the last value of a counter */
	uint64_t id, value;
	uint32_t tid; /* 0: the counter is not one of each thread's own */
};

struct perfdata_counts { /* all zero: empty */
	struct perfdata_count *counts;
	size_t n, room;
	struct uw_hash_index by_key;
};

/*
 * Return how much a counter has counted since its last value, or since it began if there is none; 0 if it went back. The
 * value becomes the last one. -ENOMEM.
 */
int perfdata_counts_since(struct perfdata_counts *counts, uint64_t id, uint32_t tid, uint64_t value,
			  uint64_t *since);
void perfdata_counts_fini(struct perfdata_counts *counts);

#endif

/* agent/cli/stats.h: counts what became of each occurrence of the sampled events, for each CPU. */
#ifndef AGENT_CLI_STATS_H
#define AGENT_CLI_STATS_H

#include "agent/pipeline/pipeline.h"
#include "agent/source/source.h"

#include <stddef.h>

struct stats;

/* source: from source_live_open; borrowed. Return 0 or -ENOMEM. */
int stats_new(struct source *source, struct stats **out);
void stats_free(struct stats *stats); /* NULL is fine */

struct stats_event { /* for one of the source's events */
	uint64_t samples;
	uint64_t sum; /* sum of the samples' periods */
};

/* Return an array with one element for each event of the source; borrowed from stats. */
const struct stats_event *stats_events(const struct stats *stats);

/*
 * Count a sample: one whose walk ended so, or one that was written to a capture file without being
 * walked.
 */
void stats_walked(struct stats *stats, const struct event *event, enum uw_stop stop);
void stats_written(struct stats *stats, const struct event *event); /* not walked */
/* Count samples that were passed to stats_written but are not in the file. */
void stats_not_written(struct stats *stats, uint64_t n);

/*
 * Describe the counters in one line: "fired 100 = filtered 2 (self 2) + captured 98". captured is
 * the same as in accounting_text. "" if the counters cannot be read.
 */
void stats_text(struct stats *stats, char *out, size_t size);
/*
 * Describe the waits in one line: "waits 9 = ended 6 + too short 2 + still waiting at the end 1 +
 * lost 0". "" if no waits were recorded.
 */
void stats_off_cpu_text(struct stats *stats, char *out, size_t size);

/*
 * Write the statistics to path as JSON. "total" and each element of "cpus" have "fired", and its
 * parts "filtered", "lost", "waiting" and "unwound" (or "written"), whose sum is "fired". In
 * "waits" the first member, "begun", is the sum of the rest. "events" has the sums of the samples'
 * periods. "not_written" is how many of the samples in "written" are not in the file. "reuse" has
 * the numbers of frames that were walked and that were taken over from the thread's last sample.
 * "in_ring_ns" is the longest time that a sample was in the kernel's ring before it was walked, as far as that was
 * seen, which is each time that the ring is read: the time for which offwind did not keep up.
 * "limits" has how often each limit of agent/limits.h was reached.
 * Return 0, or a negative code after reporting it.
 */
int stats_write(struct stats *stats, const struct pipeline_reuse *reuse, const char *path);

#endif

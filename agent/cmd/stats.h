/*
 * agent/cmd/stats.h: what became of everything that fired while recording, CPU by CPU.
 */
#ifndef AGENT_CMD_STATS_H
#define AGENT_CMD_STATS_H

#include "agent/pipeline/pipeline.h"
#include "agent/source/source.h"

#include <stddef.h>

struct stats;

int stats_new(struct source *source, struct stats **out); /* source: live; borrowed */
void stats_free(struct stats *stats);			  /* NULL is fine */

struct stats_event { /* of one of the source's events */
	uint64_t samples;
	uint64_t sum; /* of what the samples stand for */
};

/* As many as the source has events; borrowed. */
const struct stats_event *stats_events(const struct stats *stats);

void stats_walked(struct stats *stats, const struct event *event, enum uw_stop stop);
void stats_written(struct stats *stats, const struct event *event); /* not walked, kept as it is */
/* So many of them are not in the file after all. */
void stats_not_written(struct stats *stats, uint64_t n);

/* "fired 100 = filtered 2 (self 2) + captured 98"; captured as in accounting_text. */
void stats_text(struct stats *stats, char *out, size_t size);
/* "waits 9 = ended 6 + too short 2 + still waiting at the end 1 + lost 0"; "" where none was recorded. */
void stats_waits_text(struct stats *stats, char *out, size_t size);

/*
 * As JSON: "total" and each of "cpus" have "fired", and as it is used up
 * "filtered", "lost", "waiting" and "unwound" (or "written"), whose numbers add
 * up to it; of "waits" the first, "begun", is the sum of the rest; "events" has what their samples
 * stand for; "not_written" is how many of those "written" are not in the file; "reuse" has the frames that were walked and those taken over.  Reports.
 */
int stats_write(struct stats *stats, const struct pipeline_reuse *reuse, const char *path);

#endif

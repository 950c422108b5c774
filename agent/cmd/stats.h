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

void stats_walked(struct stats *stats, const struct event *event, enum uw_stop stop);
void stats_written(struct stats *stats, const struct event *event); /* not walked, kept as it is */

/* "fired 100 = filtered 2 (self 2) + captured 98"; captured as in accounting_text. */
void stats_text(struct stats *stats, char *out, size_t size);

/*
 * As JSON: "total" and each of "cpus" have "fired", and as it is used up
 * "filtered", "lost", "waiting" and "unwound" (or "written"), whose numbers add
 * up to it; "reuse" has the frames that were walked and those taken over.  Reports.
 */
int stats_write(struct stats *stats, const struct pipeline_reuse *reuse, const char *path);

#endif

/*
 * agent/cmd/outcome.h: what somebody should know about how a recording came out, with what to do.
 */
#ifndef AGENT_CMD_OUTCOME_H
#define AGENT_CMD_OUTCOME_H

#include "agent/cmd/stats.h"
#include "agent/export/formats.h"
#include "agent/pipeline/profile.h"
#include "agent/source/live.h"

enum { OUTCOME_EVENTS = 16 };

struct outcome {
	const struct accounting *total;
	const struct source_info *info;
	const uint64_t *values; /* OUTCOME_EVENTS of them: sums of the samples' periods, by event */
	uint64_t duration_ns;
	bool walked;	  /* else only captured */
	const char *path; /* of the result; NULL: a folder of several */
	enum format format;
};

/*
 * Say in words what was recorded and what to do with it: "1,336 samples, 13.5 s of CPU in 28.9 s,
 * none lost, 99.9 % whole stacks → cc.pb.gz; see: offwind report cc.pb.gz".
 */
void outcome_say(const struct outcome *outcome);

/* Warn of samples and mappings that were lost, and of stacks that were cut, if they matter. */
void outcome_warn(const struct accounting *total);

/* Warn of events but clocks with so few samples, each of many occurrences, that their figures are rough. */
void outcome_warn_rough(const struct source_info *info, const struct stats_event *events);

/* Warn that nothing was captured, and say what became of all that fired. */
void outcome_warn_empty(const struct live_counters *counters);

#endif

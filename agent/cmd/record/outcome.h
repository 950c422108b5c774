/*
 * agent/cmd/record/outcome.h: reports to the user how a recording came out, and what to do about
 * problems.
 */
#ifndef AGENT_CMD_RECORD_OUTCOME_H
#define AGENT_CMD_RECORD_OUTCOME_H

#include "agent/cli/stats.h"
#include "agent/export/formats.h"
#include "agent/live/live.h"
#include "agent/pipeline/profile.h"

enum { OUTCOME_EVENTS = 16 };

struct outcome {
	const struct accounting *total;
	const struct source_info *info;
	const uint64_t *values; /* OUTCOME_EVENTS sums of the samples' periods, by event */
	uint64_t duration_ns;
	bool walked;	  /* the samples were walked; else only captured */
	const char *path; /* of the result; NULL: a directory of several */
	enum format format;
};

/*
 * Print a summary of the recording and what to do with it: "1,336 samples, 13.5 s of CPU in 28.9
 * s, none lost, 99.9 % whole stacks → cc.pb.gz; see: offwind report cc.pb.gz".
 */
void outcome_say(const struct outcome *outcome);

/*
 * Warn of lost samples and mappings and of stacks that were cut, if there are enough of them to
 * matter.
 */
void outcome_warn(const struct accounting *total);

/*
 * Warn of events with so few samples, each for many occurrences, that their sums are rough. Clocks
 * and waits are left out: a clock's samples are its time, and each wait has its own duration.
 */
void outcome_warn_rough(const struct source_info *info, const struct stats_event *events);

/* Warn that nothing was captured, and say what became of all occurrences of the event. */
void outcome_warn_empty(const struct live_counters *counters);

#endif

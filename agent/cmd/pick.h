/*
 * agent/cmd/pick.h: which samples of a recording a command is to unwind: a slice of its time, and
 * processes, threads and names.
 */
#ifndef AGENT_CMD_PICK_H
#define AGENT_CMD_PICK_H

#include "agent/pipeline/pipeline.h"
#include "agent/source/source.h"

#include <stdbool.h>
#include <stdint.h>

enum pick_unit {
	PICK_OPEN,     /* not given: the recording's own begin or end */
	PICK_CLOCK,    /* nanoseconds on the recording's clock, as perf script prints it */
	PICK_OFFSET,   /* nanoseconds since the first sample */
	PICK_FRACTION, /* of the time from the first sample to the last */
};

struct pick { /* all zero: everything */
	struct pick_bound {
		enum pick_unit unit;
		uint64_t ns;
		double fraction;
	} begin, end;
	const char *pids, *tids, *comms; /* comma-separated, any of them; NULL: all; borrowed */
	/* What the bounds are in the recording that pick_begin has looked at. */
	uint64_t begin_ns, end_ns;
};

/*
 * Read "A,B" as perf's --time does: seconds on the recording's clock, either of which may be left
 * out; "+A,+B": seconds since its first sample; "A%-B%" or "A%,B%": parts of its whole time.
 * Return 0, or -EINVAL after reporting what is wrong.
 */
int pick_time(struct pick *pick, const char *text);

/* Return true if some samples are to be left out. */
bool pick_any(const struct pick *pick);

/*
 * Find the times of path, "-" for standard input, if the slice depends on when its samples begin
 * and end: the recording is then read once without being unwound.  Report own errors.
 */
int pick_begin(struct pick *pick, const char *path);

/* Return true if event is no sample, or one that is wanted.  pipeline knows the threads' names. */
bool pick_wants(const struct pick *pick, const struct event *event, struct pipeline *pipeline);

#endif

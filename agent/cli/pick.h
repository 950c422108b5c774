/*
 * agent/cli/pick.h: selects the samples of a recording that a command unwinds, by time, process,
 * thread and name.
 */
#ifndef AGENT_CLI_PICK_H
#define AGENT_CLI_PICK_H

#include "agent/pipeline/pipeline.h"
#include "agent/source/source.h"

#include <stdbool.h>
#include <stdint.h>

enum pick_unit {
	PICK_OPEN,     /* not given: the recording's own beginning or end */
	PICK_CLOCK,    /* nanoseconds on the recording's clock, as perf script prints it */
	PICK_OFFSET,   /* nanoseconds since the first sample */
	PICK_FRACTION, /* a fraction of the time from the first sample to the last */
};

struct pick { /* all zero: every sample */
	struct pick_bound {
		enum pick_unit unit;
		uint64_t ns;
		double fraction;
	} begin, end;
	uint64_t from_ns, to_ns;	 /* of a history, since 1970; 0: not given */
	const char *pids, *tids, *comms; /* comma-separated, one must match; NULL: all; borrowed */
	/*
	 * The bounds in the recording that pick_begin was called for, on its clock; end_ns is
	 * excluded.
	 */
	uint64_t begin_ns, end_ns;
};

/*
 * Parse "A,B" as perf's --time does: seconds on the recording's clock; either may be left out.
 * "+A,+B" are seconds since the first sample; "A%-B%" or "A%,B%" are parts of the whole time.
 * Return 0, or -EINVAL after reporting what is wrong. It takes an option (see option_fn) into the
 * struct pick `to`.
 */
int pick_time(void *to, const char *option, char *text);

/* Return 0, or -EINVAL after reporting that --to is not after --from. */
int pick_check_range(const struct pick *pick);

/* Return true if the conditions may exclude samples. */
bool pick_any(const struct pick *pick);

/*
 * Prepare for the recording at path, "-" for standard input. If the slice depends on when its
 * samples begin and end, read the recording once without unwinding it; standard input cannot be
 * read twice, so that this is -EINVAL. Return 0, or a negative code after reporting it.
 */
int pick_begin(struct pick *pick, const char *path);

/*
 * Return true if event is no sample, or a sample that is wanted. Lost samples are checked by time
 * only. pipeline knows the threads' names.
 */
bool pick_wants(const struct pick *pick, const struct event *event, struct pipeline *pipeline);

#endif

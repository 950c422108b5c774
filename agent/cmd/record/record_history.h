/*
 * agent/cmd/record/record_history.h: adds the windows of a recording to a history, with exact counts of
 * what became of everything, also over workers that died and windows that could not be added.
 */
#ifndef AGENT_CMD_RECORD_RECORD_HISTORY_H
#define AGENT_CMD_RECORD_RECORD_HISTORY_H

#include "agent/pipeline/profile.h"
#include "agent/source/source.h"

#include <stdbool.h>

struct record_counts {
	struct profile_fired fired;
	struct accounting accounting;
};

struct record_history {
	const char *path;		 /* of the database; borrowed */
	struct record_counts *committed; /* in all windows; shared by a recording's processes */
	/* When the last window that was added ended, CLOCK_MONOTONIC; or NULL */
	_Atomic uint64_t *written_ns;
	struct profile_fired seen; /* until the last window ended */
	/* Of the writer's thread: */
	bool again;		      /* the first window of a worker that follows one that died */
	struct record_counts before;  /* committed when it began */
	struct record_counts pending; /* of windows that could not be added */
};

/*
 * Begin, before the recording's processes are made. written_ns: memory that they share, or NULL if nobody
 * waits for windows. -ENOMEM.
 */
int record_history_new(const char *path, _Atomic uint64_t *written_ns, struct record_history *out);
/* In a worker, before its first window. again: it follows one that died. */
void record_history_begin(struct record_history *h, bool again);
/* When a window ends: set the profile's times since 1970, and what fired since the last window. */
void record_history_count(struct record_history *h, struct source *source, struct profile *profile);
/*
 * Let the counts of a worker that follows others be those of the whole recording: what was lost with a
 * worker is only what no window has.
 */
void record_history_total(const struct record_history *h, struct accounting *total);
/* writer_options.take: add a window. ctx is the struct record_history. */
int record_history_take(void *ctx, const struct profile *profile, int fd);

#endif

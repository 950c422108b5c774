/*
 * agent/live/capture_internal.h: what capture.c, the capture process's end, and remote.c, the other
 * end, share.
 */
#ifndef AGENT_LIVE_CAPTURE_INTERNAL_H
#define AGENT_LIVE_CAPTURE_INTERNAL_H

#include "agent/live/capture.h"
#include "agent/live/feed.h"
#include "agent/role/channel.h"

#include <stdatomic.h>

#define CAPTURE_SYMBOLS_MAX 256

struct capture {
	struct feed *feed;
	struct channels *channel; /* one: the capture process answers one request at a time */
	struct channels *control; /* the supervisor's; NULL in a worker */
	/* How many workers there were; NULL in a worker, so that only the supervisor writes this. */
	_Atomic uint64_t *n_workers;
	bool is_late; /* a reply did not come in time; late is its channel's number */
	size_t late;
};

/* Let this process not see any more how many workers there were. */
void capture_leave_count(struct capture *capture);

/*
 * The requests. A request is its kind and two numbers; after them, of CAPTURE_FILE, the rest of the
 * file's description. The reply is an error and what stands beside the request here.
 */
enum capture_request {
	/*
	 * By a worker with an opener, two pids: error, CPUs, source_info, events, and if it is the worker's
	 * first such request, the ring's descriptor and where the capture process has the ring's data.
	 */
	CAPTURE_OPEN,
	CAPTURE_BORROW,	    /* after that, the worker has mapped the ring: nothing */
	CAPTURE_STOP,	    /* nothing */
	CAPTURE_COUNTERS,   /* of a CPU: live_counters */
	CAPTURE_TOTALS,	    /* live_totals */
	CAPTURE_COUNTED,    /* of an event: a number */
	CAPTURE_ALLOC_COST, /* live_alloc_cost */
	CAPTURE_FILE,	    /* of major, minor, inode, path: an open file */
	/*
	 * Of as many addresses as the first number says, at most CAPTURE_SYMBOLS_MAX: how many of
	 * them are answered, and of each an error, address, size, name, module.
	 */
	CAPTURE_SYMBOLS,
	/* Of a process: the first number is its pid, the second 1 if a struct plan follows plan_task: nothing */
	CAPTURE_PLAN,
	CAPTURE_OWN, /* two pids, as of CAPTURE_OPEN, of which one is another now: nothing */
};

#endif

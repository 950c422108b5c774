/*
 * agent/live/online.h: starts the events on the CPUs that are online, and follows CPUs that come
 * and go.
 */
#ifndef AGENT_LIVE_ONLINE_H
#define AGENT_LIVE_ONLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_bpf;
struct live_events;

struct live_online {
	struct live_bpf *bpf; /* borrowed, and so are the events */
	const struct live_events *events;
	/* CPUs that are recorded now, and CPUs that may be recorded (NULL: all). Owned. */
	int *cpus, *only;
	size_t n, n_only;
	uint64_t looked_ns; /* when the list of CPUs was last read */
	int64_t asleep_ns;  /* how long the machine had slept then, since it was started */
	int fd;		    /* the file with that list; -1: not open yet */
};

/*
 * Prepare to record the events on the CPUs only, of which there are n_only (0: on all). only is
 * copied. -ENOMEM. live_online_fini also serves after a failure, or without this call if fd is -1.
 */
int live_online_init(struct live_online *o, struct live_bpf *bpf, const struct live_events *events,
		     const int *only, size_t n_only);
void live_online_fini(struct live_online *o);

/*
 * Start all events on the CPUs that are online and selected. On failure error, of LIVE_ERROR_SIZE
 * bytes, says why, here and below.
 */
int live_online_start(struct live_online *o, char *error);

/*
 * Record these CPUs from now on, and stop recording the others. Takes ownership of cpus, also on
 * failure. *n_new receives how many of them were not recorded before.
 */
int live_online_change(struct live_online *o, int *cpus, size_t n, size_t *n_new, char *error);
/* Begin the sampled events anew: they have other rates now. On failure some CPUs have the old ones. */
int live_online_restart(struct live_online *o, char *error);
bool live_online_has(const struct live_online *o, int cpu); /* it is recorded now */

/*
 * Read which CPUs are online, if the last time was a second ago. Return true if others are
 * online than are recorded: the caller frees *cpus then. So it is if the machine has slept meanwhile, with *slept: the
 * kernel has taken all CPUs but the first offline, and their events are gone.
 */
bool live_online_changed(struct live_online *o, uint64_t now, int **cpus, size_t *n, bool *slept);

#endif

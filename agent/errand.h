/*
 * agent/errand.h: runs work on untrusted input on a thread that can be abandoned.
 *
 * Reading a file can take forever: the file may be huge or crafted, or its file system may not
 * answer. A thread that cannot wait for that runs the work on another thread, and goes on without
 * the result when the time is up.
 */
#ifndef AGENT_ERRAND_H
#define AGENT_ERRAND_H

#include <stdint.h>

struct errand {
	void (*run)(void *ctx);
	/* Free ctx and what run stored in it. Called once, by the last user of ctx. */
	void (*drop)(void *ctx);
	void *ctx;
};

/*
 * Run errand->run on another thread and wait for it, until it has used limit_ns of CPU time or
 * ENDING_STRETCH times as much has passed by the clock and it waits for anything but a CPU, and no
 * longer than the recording's end allows (agent/ending.h).
 *
 * Return 0 if run has returned: the caller takes the result and then calls drop.
 *
 * Return -ETIMEDOUT if run did not return in time. The thread goes on, without the caller's raised
 * priority, and calls drop itself; the caller must not use ctx any more. Unpacking on that thread
 * ends soon with -ECANCELED (uw_unpack_unless).
 *
 * Return -EAGAIN if nothing was started, because the end's time is used up, too many threads are
 * abandoned, or a thread could not be made: the caller calls drop.
 */
int errand_run(const struct errand *errand, uint64_t limit_ns);

/* Return how many abandoned threads are still running. */
unsigned int errands_left(void);

#endif

/*
 * agent/errand.h: work on what a stranger controls, on a thread that can be left behind.
 *
 * Reading a file may take for ever: it is huge, it is crafted, its file system does not answer.
 * Whoever cannot wait for that sends somebody else, and goes on without the result when the time
 * is up.
 */
#ifndef AGENT_ERRAND_H
#define AGENT_ERRAND_H

#include <stdint.h>

struct errand {
	void (*run)(void *ctx);
	/* Frees ctx, with what run made; called once, by whoever needs ctx last. */
	void (*drop)(void *ctx);
	void *ctx;
};

/*
 * Run errand->run on a thread of its own and wait for it, limit_ns at most and not longer than
 * the recording's end allows (agent/ending.h).  Time in which the thread waited for a CPU does
 * not count.
 *
 * Return 0 once it ran: the caller drops ctx when it has taken the result.  Return -ETIMEDOUT if
 * it did not end in time: the thread goes on, without the sender's priority, and ctx is its own;
 * what it unpacks it gives up soon.
 * Return -EAGAIN if nothing was begun, because nothing is left of the end's time or too many
 * threads were left behind: the caller drops ctx.
 */
int errand_run(const struct errand *errand, uint64_t limit_ns);

/* How many threads were left behind and are still at work. */
unsigned int errands_left(void);

#endif

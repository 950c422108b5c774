/* agent/process/contexts.c: when process contexts are read. */
#include "agent/process/contexts.h"

#include "agent/clock.h"
#include "agent/limits.h"
#include "agent/process/otel_context.h"

#include <errno.h>

#define SECOND	  UINT64_C(1000000000)
#define YOUNG_NS  (SECOND / 2) /* a process that is younger is not read */
#define AGAIN_NS  (5 * SECOND)
#define SELDOM_NS (60 * SECOND)

/* Take what was read: the process's labels change. */
static void take(struct contexts *c, uint32_t pid)
{
	struct labels labels = { .n = 0 };

	if (otel_context_decode(c->read.bytes, c->read.n, processes_rules(c->processes), &labels) >=
	    0)
		(void)processes_set_context(c->processes, pid, &labels);
}

bool contexts_look(struct contexts *c, const struct event *sample)
{
	struct process_context *p = processes_context(c->processes, sample->pid);
	uint64_t now = sample->time_ns, began;
	struct opener_wait wait = { .ns = 0 };
	bool taken = false;
	int err;

	if (!p || now < p->born_ns + YOUNG_NS || now < p->look_ns || now < c->rest_ns)
		return false;
	if (c->is_late && opener_is_late(c->late))
		return false;
	began = now_ns();
	err = opener_context(c->opener, sample->pid, p->published_ns, &c->read, &wait);
	c->rest_ns = now + 10 * (now_ns() - began);
	c->is_late = err == -ETIMEDOUT;
	if (c->is_late)
		c->late = wait.late;
	if (err == -E2BIG)
		limits_reach(context_bytes, 1);
	if (!err && c->read.published_ns != p->published_ns) {
		p->published_ns = c->read.published_ns;
		take(c, sample->pid);
		taken = true;
	}
	/* What is being changed is there at the next sample. */
	if (!err || err == -EAGAIN)
		p->wait_ns = err ? 0 : AGAIN_NS;
	else
		p->wait_ns = !p->wait_ns	      ? SECOND
			     : p->wait_ns < SELDOM_NS ? 2 * p->wait_ns
						      : SELDOM_NS;
	p->look_ns = now + p->wait_ns;
	return taken;
}

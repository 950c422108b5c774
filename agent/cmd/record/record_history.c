/* agent/cmd/record/record_history.c: adds the windows of a recording to a history. */
#include "agent/cmd/record/record_history.h"

#include "agent/clock.h"
#include "agent/history/request.h"
#include "agent/io.h"
#include "agent/live/live.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

enum { COUNTERS_MAX = 8 + PROFILE_FILTERED_N + EVENT_LOST_N + UW_STOP_N };

static const char *const filtered_names[PROFILE_FILTERED_N] = {
	[PROFILE_FILTERED_IDLE] = "idle",	[PROFILE_FILTERED_SELF] = "self",
	[PROFILE_FILTERED_PROCESS] = "process", [PROFILE_FILTERED_OTHER] = "other",
	[PROFILE_FILTERED_CGROUP] = "cgroup",	[PROFILE_FILTERED_PERIOD] = "period",
	[PROFILE_FILTERED_FAILED] = "failed",	[PROFILE_FILTERED_SHORT_WAIT] = "short_wait",
};

int record_history_new(const char *path, _Atomic uint64_t *written_ns, struct record_history *out)
{
	*out = (struct record_history){ .path = path,
					.written_ns = written_ns,
					.committed = io_shared(sizeof(*out->committed)) };
	return out->committed ? 0 : -errno;
}

/* ---- what fired -------------------------------------------------------------------------- */

/* Return what was counted since recording began; all 0 if that cannot be read. */
static struct profile_fired all_fired(struct source *source)
{
	struct live_counters c;

	if (source_live_counters(source, -1, &c))
		return (struct profile_fired){ .fired = 0 };
	return (struct profile_fired){
		.fired = c.fired,
		.filtered = { [PROFILE_FILTERED_IDLE] = c.filtered_idle,
			      [PROFILE_FILTERED_SELF] = c.filtered_self,
			      [PROFILE_FILTERED_PROCESS] = c.filtered_process,
			      [PROFILE_FILTERED_OTHER] = c.filtered_other,
			      [PROFILE_FILTERED_CGROUP] = c.filtered_cgroup,
			      [PROFILE_FILTERED_PERIOD] = c.filtered_period,
			      [PROFILE_FILTERED_FAILED] = c.filtered_failed,
			      [PROFILE_FILTERED_SHORT_WAIT] = c.off_cpu_short },
	};
}

void record_history_begin(struct record_history *h, bool again)
{
	h->seen = h->committed->fired;
	h->again = again;
	h->before = *h->committed;
}

void record_history_count(struct record_history *h, struct source *source, struct profile *p)
{
	struct profile_fired now = all_fired(source);

	/* The clock may have been set since the last window, or the machine may have slept. */
	p->wall_offset_ns = clock_ns(CLOCK_REALTIME) - now_ns();
	if (now.fired < h->seen.fired)
		return; /* it could not be read */
	p->fired.fired = now.fired - h->seen.fired;
	for (size_t i = 0; i < PROFILE_FILTERED_N; i++)
		p->fired.filtered[i] = now.filtered[i] - h->seen.filtered[i];
	h->seen = now;
}

/* ---- windows ----------------------------------------------------------------------------- */

static void add_fired(struct profile_fired *to, const struct profile_fired *from)
{
	to->fired += from->fired;
	for (size_t i = 0; i < PROFILE_FILTERED_N; i++)
		to->filtered[i] += from->filtered[i];
}

/*
 * A worker that follows one that died is told all losses again, and as crashed all samples that dead
 * workers were given (agent/live/capture.h). What of these is in windows already is taken off.
 */
static void take_off(struct accounting *a, const struct accounting *before)
{
	for (size_t i = 0; i < EVENT_LOST_N; i++) {
		uint64_t there = i != EVENT_LOST_CRASHED
					 ? before->lost[i]
					 : before->unwound + before->lost[EVENT_LOST_CRASHED] +
						   before->lost[EVENT_LOST_NOT_WRITTEN];

		a->lost[i] -= there < a->lost[i] ? there : a->lost[i];
	}
}

void record_history_total(const struct record_history *h, struct accounting *total)
{
	struct accounting before = h->before.accounting;

	take_off(total, &before);
	before.captured = before.sideband_lost = 0; /* these are told of all workers */
	accounting_add(total, &before);
}

/* Write the counters of a window into out, and return their number. */
static size_t counters_of(const struct record_counts *c, struct history_counter *out)
{
	const struct accounting *a = &c->accounting;
	uint64_t settled = a->unwound;
	size_t n = 0;

	for (size_t i = 0; i < PROFILE_FILTERED_N; i++) {
		out[n++] = (struct history_counter){ "filtered", filtered_names[i],
						     (int64_t)c->fired.filtered[i] };
		settled += c->fired.filtered[i];
	}
	for (size_t i = 0; i < EVENT_LOST_N; i++) {
		out[n++] = (struct history_counter){ "lost",
						     event_lost_name((enum event_lost_reason)i),
						     (int64_t)a->lost[i] };
		settled += a->lost[i];
	}
	for (size_t i = 0; i < UW_STOP_N; i++)
		out[n++] = (struct history_counter){ "stop", uw_stop_name((enum uw_stop)i),
						     (int64_t)a->stop[i] };
	out[n++] = (struct history_counter){ "unwound", "", (int64_t)a->unwound };
	out[n++] = (struct history_counter){ "cut", "", (int64_t)a->cut };
	out[n++] = (struct history_counter){ "fired", "", (int64_t)c->fired.fired };
	out[n++] = (struct history_counter){ "waiting", "", (int64_t)(c->fired.fired - settled) };
	return n;
}

/* The samples of a window that cannot be added are lost; the next window says so. */
static void give_up(struct record_counts *c)
{
	struct accounting *a = &c->accounting;

	a->lost[EVENT_LOST_NOT_WRITTEN] += a->unwound;
	a->unwound = a->cut = 0;
	memset(a->stop, 0, sizeof(a->stop));
}

int record_history_take(void *ctx, const struct profile *p, int fd)
{
	struct record_history *h = ctx;
	struct history_counter counters[COUNTERS_MAX];
	struct record_counts c = { .fired = p->fired, .accounting = p->accounting };
	struct history_window w = { .start_ns = p->start_ns + p->wall_offset_ns,
				    .end_ns = p->end_ns + p->wall_offset_ns,
				    .counters = counters };
	int err;

	if (h->again)
		take_off(&c.accounting, &h->before.accounting);
	h->again = false;
	add_fired(&c.fired, &h->pending.fired);
	accounting_add(&c.accounting, &h->pending.accounting);
	w.n_counters = counters_of(&c, counters);
	err = history_put(h->path, fd, &w);
	if (err) {
		give_up(&c);
		h->pending = c;
		return err;
	}
	add_fired(&h->committed->fired, &c.fired);
	accounting_add(&h->committed->accounting, &c.accounting);
	h->pending = (struct record_counts){ .fired.fired = 0 };
	if (h->written_ns)
		atomic_store(h->written_ns, p->end_ns);
	return 0;
}

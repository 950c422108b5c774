/* agent/cmd/record/record_history.c: adds the windows of a recording to a history. */
#include "agent/cmd/record/recorder.h"

#include "agent/clock.h"
#include "agent/history/request.h"

#include <string.h>

enum { COUNTERS_MAX = 8 + PROFILE_FILTERED_N + EVENT_LOST_N + UW_STOP_N };

static const char *const filtered_names[PROFILE_FILTERED_N] = {
	[PROFILE_FILTERED_IDLE] = "idle",
	[PROFILE_FILTERED_SELF] = "self",
	[PROFILE_FILTERED_PROCESS] = "process",
	[PROFILE_FILTERED_OTHER] = "other",
	[PROFILE_FILTERED_PERIOD] = "period",
	[PROFILE_FILTERED_FAILED] = "failed",
	[PROFILE_FILTERED_SHORT_WAIT] = "short_wait",
};

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
			      [PROFILE_FILTERED_PERIOD] = c.filtered_period,
			      [PROFILE_FILTERED_FAILED] = c.filtered_failed,
			      [PROFILE_FILTERED_SHORT_WAIT] = c.off_cpu_short },
	};
}

void record_history_count(struct recorder *r, struct profile *profile)
{
	struct profile_fired now = all_fired(r->source);

	/* The clock may have been set since the last window, or the machine may have slept. */
	if (profile)
		profile->wall_offset_ns = clock_ns(CLOCK_REALTIME) - now_ns();
	if (profile && now.fired >= r->fired.fired) {
		profile->fired.fired = now.fired - r->fired.fired;
		for (size_t i = 0; i < PROFILE_FILTERED_N; i++)
			profile->fired.filtered[i] = now.filtered[i] - r->fired.filtered[i];
	}
	r->fired = now;
}

int record_history_take(void *ctx, const struct profile *p, int fd)
{
	const struct record_options *o = ctx;
	const struct accounting *a = &p->accounting;
	struct history_counter counters[COUNTERS_MAX];
	struct history_window w = { .start_ns = p->start_ns + p->wall_offset_ns,
				    .end_ns = p->end_ns + p->wall_offset_ns,
				    .counters = counters };
	int64_t settled = (int64_t)a->unwound;
	size_t n = 0;

	for (size_t i = 0; i < PROFILE_FILTERED_N; i++) {
		counters[n++] = (struct history_counter){ "filtered", filtered_names[i],
							  (int64_t)p->fired.filtered[i] };
		settled += (int64_t)p->fired.filtered[i];
	}
	for (size_t i = 0; i < EVENT_LOST_N; i++) {
		counters[n++] = (struct history_counter){
			"lost", event_lost_name((enum event_lost_reason)i), (int64_t)a->lost[i]
		};
		settled += (int64_t)a->lost[i];
	}
	for (size_t i = 0; i < UW_STOP_N; i++)
		counters[n++] = (struct history_counter){ "stop", uw_stop_name((enum uw_stop)i),
							  (int64_t)a->stop[i] };
	counters[n++] = (struct history_counter){ "unwound", "", (int64_t)a->unwound };
	counters[n++] = (struct history_counter){ "cut", "", (int64_t)a->cut };
	counters[n++] = (struct history_counter){ "fired", "", (int64_t)p->fired.fired };
	counters[n++] =
		(struct history_counter){ "waiting", "", (int64_t)p->fired.fired - settled };
	w.n_counters = n;
	return history_put(o->history, fd, &w);
}

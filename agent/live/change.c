/* agent/live/change.c: changes the rate and the filters of a recording while it goes on. */
#include "agent/live/live_internal.h"

#include "agent/clock.h"
#include "agent/live/bpf/bpf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t live_filters_of(const struct source_live_options *options)
{
	return (options->n_pids || options->n_tids ? CAPTURE_FILTER_TASK : 0u) |
	       (options->n_comms ? CAPTURE_FILTER_COMM : 0u) |
	       (options->n_uids ? CAPTURE_FILTER_UID : 0u) |
	       (options->n_cgroups || options->n_containers || options->n_pods || options->n_units
			? CAPTURE_FILTER_CGROUP
			: 0u) |
	       (options->n_cpus ? CAPTURE_FILTER_CPU : 0u);
}

/* Let the cgroups that the options name be recorded. */
static int choose_cgroups(struct live *live, const struct source_live_options *options, char *error)
{
	struct live_cgroups cgroups;
	int err = live_cgroups_init(&cgroups, options, error);

	if (err) {
		live_cgroups_fini(&cgroups);
		return err;
	}
	live_cgroups_fini(&live->cgroups);
	live->cgroups = cgroups;
	if (!cgroups.n)
		return 0;
	live_bpf_watch_cgroups(live->bpf);
	return live_cgroups_tell_all(&live->cgroups, live->bpf, !live->changes, error);
}

int live_choose(struct live *live, const struct source_live_options *options, char *error)
{
	int err = choose_cgroups(live, options, error);

	return err || !live->changes
		       ? err
		       : live_selected_change(&live->selected, options,
					      live_filters_of(options) | live->cpu_filter, error);
}

/* Let the events have another rate. */
static int set_rate(struct live *live, uint32_t frequency_hz, char *error)
{
	if (!live_events_set_rate(&live->events, frequency_hz))
		return 0;
	for (size_t i = 0; i < live->events.n; i++)
		live->base.info.events[i] = live->events.events[i].info;
	live_bpf_pace(live->bpf);
	return live_online_restart(&live->online, error);
}

static int change(struct live *live, const struct live_choice *choice, char *error)
{
	int err = live->changes ? live_choose(live, &choice->options, error) : 0;

	return err ? err : set_rate(live, choice->options.frequency_hz, error);
}

int source_live_change(struct source *source, const struct source_live_options *options,
		       char *error)
{
	struct live *live = (struct live *)source;
	struct live_choice choice;
	char ignored[LIVE_ERROR_SIZE];
	int err = live_choice_copy(options, &choice);

	if (err)
		(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(-err));
	else if (live->stopped)
		err = -EINVAL;
	if (!err) {
		err = change(live, &choice, error);
		if (err)
			(void)change(live, &live->choice, ignored);
	}
	if (err) {
		live_choice_fini(&choice);
		return err;
	}
	live_choice_fini(&live->choice);
	live->choice = choice;
	return live_queue_event(&live->queue,
				&(struct event){ .type = EVENT_CHANGED, .time_ns = now_ns() });
}

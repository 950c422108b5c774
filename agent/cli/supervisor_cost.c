/* agent/cli/supervisor_cost.c: measures what recording costs, and changes its rate and filters. */
#include "agent/cli/supervisor_internal.h"

#include "agent/cli/cpu_budget.h"
#include "agent/clock.h"
#include "agent/live/capture.h"
#include "agent/live/choice.h"
#include "agent/live/system/hint.h"
#include "agent/log.h"
#include "agent/role/reading.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MEASURE_NS UINT64_C(1000000000)

/* What the capture process of this supervisor was told, and how the rate follows the budget. */
static struct {
	struct capture *capture; /* NULL: there is none */
	struct live_choice choice;
	struct cpu_budget budget;
	struct cost *cost;
} recording;

static void say_rate(void)
{
	if (!recording.cost)
		return;
	atomic_store(&recording.cost->rate_hz, recording.budget.hz);
	atomic_store(&recording.cost->configured_hz, recording.budget.most_hz);
}

int supervisor_cost_init(const struct supervisor *s)
{
	int err = live_choice_copy(s->given->live, &recording.choice);

	if (err)
		return err;
	recording.cost = s->given->cost;
	cpu_budget_init(&recording.budget, s->given->cpu_budget, s->given->live->frequency_hz);
	say_rate();
	return 0;
}

void supervisor_cost_of(struct capture *capture)
{
	recording.capture = capture;
}

/* Record at the rate that the budget allows now; before is the rate until now. */
static void follow_budget(uint32_t before)
{
	struct cpu_budget *b = &recording.budget;
	char error[LIVE_ERROR_SIZE] = "";
	int err;

	recording.choice.options.frequency_hz = b->hz;
	err = capture_change(recording.capture, &recording.choice.options, error);
	if (err) {
		log_warning("the rate cannot be changed: %s", error);
		recording.choice.options.frequency_hz = before;
		cpu_budget_keep(b, before);
	} else if (b->hz < before) {
		atomic_fetch_add(&recording.cost->n_lowered, 1);
		log_warning("offwind takes more than %g %% of a CPU: %" PRIu32
			    " samples a second instead of %" PRIu32,
			    b->share / 1e4, b->hz, before);
	} else {
		log_info("offwind takes less CPU time: %" PRIu32
			 " samples a second instead of %" PRIu32,
			 b->hz, before);
	}
	say_rate();
}

/* Measure all processes, about once a second, and keep to the budget. */
void supervisor_look_at_cost(struct supervisor *s)
{
	pid_t pids[COST_ROLES] = {
		[COST_SUPERVISOR] = getpid(),
		[COST_CAPTURE] = s->capture,
		[COST_OPENER] = s->opener,
		[COST_WORKER] = s->worker,
		[COST_STORE] = s->keepers[STORE].pid,
		[COST_HISTORY] = s->keepers[HISTORY].pid,
	};
	struct cpu_budget *b = &recording.budget;
	uint32_t before = b->hz;
	uint64_t now = now_ns();
	bool spent = b->spent;

	if (!s->given->cost || now < s->measured_ns + MEASURE_NS)
		return;
	s->measured_ns = now;
	for (size_t i = 0; i < SUPERVISOR_BESIDE; i++)
		if (s->given->beside[i].run)
			pids[s->given->beside[i].cost] = s->beside[i].pid;
	for (size_t i = 0; i < COST_BPF; i++)
		cost_measure(s->given->cost, (enum cost_role)i, pids[i], &s->seen[i]);
	/* Before it records, the rate cannot be changed. */
	if (!s->reading->beats || supervisor_signals.end || supervisor_signals.reloading)
		return;
	if (cpu_budget_look(b, now, cost_cpu_ns(s->given->cost)))
		follow_budget(before);
	if (b->spent && !spent)
		log_warning("offwind takes more than %g %% of a CPU, also at one sample a second",
			    b->share / 1e4);
}

int supervisor_change(const struct source_live_options *options, uint32_t cpu_budget, char *error)
{
	struct live_choice choice;
	int err = live_choice_copy(options, &choice);

	(void)snprintf(error, LIVE_ERROR_SIZE, "%s", strerror(ENOMEM));
	if (!err)
		err = capture_change(recording.capture, options, error);
	if (err) {
		live_choice_fini(&choice);
		return err;
	}
	live_choice_fini(&recording.choice);
	recording.choice = choice;
	cpu_budget_init(&recording.budget, cpu_budget, options->frequency_hz);
	say_rate();
	return 0;
}

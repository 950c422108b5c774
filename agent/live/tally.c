/* agent/live/tally.c: adds up the counters of the CPUs. */
#include "agent/live/tally.h"

#include "agent/live/bpf/bpf.h"

#include <errno.h>
#include <stdlib.h>

int live_tally_init(struct live_tally *tally, int n_cpus)
{
	tally->cpus = calloc((size_t)n_cpus, sizeof(*tally->cpus));
	tally->n_cpus = tally->cpus ? n_cpus : 0;
	return tally->cpus ? 0 : -ENOMEM;
}

void live_tally_fini(struct live_tally *tally)
{
	free(tally->cpus);
}

struct live_tally_cpu *live_tally_of(const struct live_tally *tally, uint32_t cpu)
{
	return &tally->cpus[cpu < (uint32_t)tally->n_cpus ? cpu : 0];
}

struct live_tally_cpu live_tally_sum(const struct live_tally *tally, int cpu)
{
	struct live_tally_cpu sum = { 0 };

	for (int i = 0; i < tally->n_cpus; i++) {
		if (cpu >= 0 && i != cpu)
			continue;
		sum.delivered += tally->cpus[i].delivered;
		sum.damaged += tally->cpus[i].damaged;
		sum.off_cpu_short += tally->cpus[i].off_cpu_short;
		sum.no_room += tally->cpus[i].no_room;
		sum.unended += tally->cpus[i].unended;
		sum.off_cpu += tally->cpus[i].off_cpu;
		sum.ended += tally->cpus[i].ended;
		sum.unwoken += tally->cpus[i].unwoken;
		sum.still_waiting += tally->cpus[i].still_waiting;
		sum.stack_bytes += tally->cpus[i].stack_bytes;
	}
	return sum;
}

/*
 * What was captured and did not come out of the ring yet is waiting. The kernel's counters and the
 * agent's are not read at the same moment, so a negative difference counts as 0.
 */
int live_tally_read(const struct live_tally *tally, const struct live_bpf *bpf, int cpu,
		    struct live_counters *counters)
{
	const struct capture_counters *per_cpu;
	struct live_tally_cpu seen = live_tally_sum(tally, cpu);
	struct capture_counters c, w;
	uint64_t gone =
		seen.delivered + seen.damaged + seen.off_cpu_short + seen.no_room + seen.unended;
	int err = cpu < tally->n_cpus ? live_bpf_counters(bpf, CAPTURE_COUNTS_EVENTS, &per_cpu, &c)
				      : -EINVAL;

	if (!err && cpu >= 0)
		c = per_cpu[cpu];
	if (!err)
		err = live_bpf_counters(bpf, CAPTURE_COUNTS_WAKERS, &per_cpu, &w);
	if (err)
		return err;
	if (cpu >= 0)
		w = per_cpu[cpu];
	*counters = (struct live_counters){
		.fired = c.fired,
		.filtered = c.filtered_idle + c.filtered_self + c.filtered_process +
			    c.filtered_other + c.filtered_cgroup + c.filtered_period +
			    c.filtered_failed,
		.filtered_idle = c.filtered_idle,
		.filtered_self = c.filtered_self,
		.filtered_process = c.filtered_process,
		.filtered_other = c.filtered_other,
		.filtered_cgroup = c.filtered_cgroup,
		.filtered_period = c.filtered_period,
		.filtered_failed = c.filtered_failed,
		.captured = c.captured,
		.ring_full = c.ring_full,
		.unreadable = c.unreadable,
		.damaged = seen.damaged,
		.off_cpu_short = seen.off_cpu_short,
		.no_room = seen.no_room,
		.unended = seen.unended,
		.off_cpu = c.off_cpu,
		.off_cpu_ended = seen.ended,
		.still_waiting = seen.still_waiting,
		.off_cpu_skipped = c.off_cpu_skipped,
		.off_cpu_uncaptured = c.off_cpu > seen.off_cpu + c.off_cpu_skipped
					      ? c.off_cpu - seen.off_cpu - c.off_cpu_skipped
					      : 0,
		.delivered = seen.delivered,
		.waiting = c.captured > gone ? c.captured - gone : 0,
		.cut = c.cut,
		.holes = c.holes,
		.bytes = c.bytes,
		.program_ns = c.program_ns + w.program_ns,
		.stack_bytes = seen.stack_bytes,
		.top_cached = c.top_cached,
		.top_start = c.top_start,
		.top_tls = c.top_tls,
		.top_go = c.top_go,
		.top_signal = c.top_signal,
		.top_vma = c.top_vma,
		.top_none = c.top_none,
		.find_vma = c.find_vma,
		.pids_overflow = c.pids_overflow,
		.wakes_unseen = c.wakes_unseen,
		.unwoken =
			seen.unwoken > seen.still_waiting ? seen.unwoken - seen.still_waiting : 0,
		.wakes_lost = c.wakes_lost,
		.wakers = w.fired,
		.wakers_captured = w.captured,
		.wakers_short = w.filtered_period,
		.wakers_other = w.filtered_self + w.filtered_process,
		.wakers_full = w.ring_full,
		.wakers_unreadable = w.unreadable,
		.frees = c.frees,
		.frees_lost = c.frees_lost,
		.untracked = c.untracked,
	};
	return 0;
}

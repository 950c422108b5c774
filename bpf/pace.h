/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/pace.h: chooses which occurrences of an event to sample, if the program sees each one (paced
 * events).
 */
#ifndef BPF_PACE_H
#define BPF_PACE_H

#include "bpf/shared.h"

/* For events that are not sampled at each occurrence: how often they occurred. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CAPTURE_EVENTS_MAX);
	__type(key, __u32);
	__type(value, struct capture_pace);
} paces SEC(".maps");

#define SECOND_NS 1000000000ull

/*
 * A new second begins: choose the interval from the number of occurrences in the previous second.
 */
static __always_inline void pace_second(struct capture_pace *pace, __u64 now_ns)
{
	__u64 interval = 1;

	if (now_ns - pace->since_ns < 2 * SECOND_NS)
		interval = pace->second / (pace_samples ? pace_samples : 1);
	if (!interval)
		interval = 1;
	/*
	 * If the interval becomes much shorter, drop the occurrences since the last sample.
	 * Otherwise the next sample, maybe of another program, would have the weight of an earlier
	 * burst.
	 */
	if (interval * 2 <= pace->interval || !pace->interval) {
		pace->interval = interval;
		pace->hits = 0;
		pace->due = 1;
	} else if (interval > pace->interval) {
		pace->interval = interval;
	}
	pace->since_ns = now_ns;
	pace->second = 0;
	pace->samples = 0;
}

/*
 * Decide whether to sample the current occurrence of a paced event. Return how many occurrences the
 * sample stands for, or 0 if there is no sample.
 *
 * The kernel's own method changes the period with the rate; its weights do not add up to the number
 * of occurrences. Here every occurrence is counted, and samples become rarer within a second: the
 * first pace_samples samples are taken at the interval that the previous second suggests, the next
 * pace_samples at twice that interval, and so on. So the occurrences that are not sampled yet at
 * the end are less than 1 / pace_samples of all.
 */
static __always_inline __u64 paced_period(__u32 event)
{
	struct capture_pace *pace = bpf_map_lookup_elem(&paces, &event);
	__u64 now_ns = bpf_ktime_get_ns(), period, interval;

	if (!pace)
		return 0;
	if (now_ns - pace->since_ns >= SECOND_NS)
		pace_second(pace, now_ns);
	pace->counted++;
	pace->second++;
	if (++pace->hits < pace->due)
		return 0;
	period = pace->hits;
	pace->hits = 0;
	if (++pace->samples >= pace_samples) {
		pace->samples = 0;
		pace->interval *= 2;
	}
	interval = pace->interval;
	/*
	 * Choose the distance at random around the interval, so that samples do not stay in step
	 * with events that occur in a fixed order.
	 */
	pace->due = interval > 1 ? interval / 2 + bpf_get_prandom_u32() % interval : 1;
	return period;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/scratch.h: the scratch buffers in which the programs put records together, one for each CPU
 * and each kind of program.
 */
#ifndef BPF_SCRATCH_H
#define BPF_SCRATCH_H

#include "bpf/shared.h"

/* Both stacks, and the address of the second. */
#define STACKS_MAX (stack_max + CAPTURE_INTERRUPTED_MAX + 24)

/*
 * One scratch buffer for each CPU and each kind of program in use (enum capture_scratch). This is
 * not a per-CPU map, because the values of a per-CPU map are limited to 32 KiB. The agent sets
 * value_size and max_entries from stack_max, the number of CPUs and the events.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, CAPTURE_SCRATCH_SIZE(CAPTURE_STACK_DEFAULT));
} scratch SEC(".maps");

/*
 * The number of programs on probes that want the scratch buffer of their CPU. At most one of them
 * uses it; see probe_begins.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} probing SEC(".maps");

/*
 * Reserve this CPU's scratch buffer of the probes. Return the counter for probe_ends, or NULL,
 * counted as unreadable, if the buffer is in use. If two programs begin at the same time, both may
 * fail, but they never both succeed. (An atomic exchange or fetch-and-add needs Linux 5.12.)
 */
static __always_inline __u32 *probe_begins(struct capture_counters *count)
{
	__u32 zero = 0, *busy = bpf_map_lookup_elem(&probing, &zero);

	if (busy) {
		__sync_fetch_and_add(busy, 1);
		if (*(volatile __u32 *)busy == 1)
			return busy;
		__sync_fetch_and_add(busy, -1);
	}
	add(&count->unreadable, 1);
	return NULL;
}

/* Release the scratch buffer that probe_begins reserved. */
static __always_inline void probe_ends(__u32 *busy)
{
	__sync_fetch_and_add(busy, -1);
}

#endif

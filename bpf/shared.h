/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/shared.h: what all capture programs share: the constants that the agent sets, the ring, and
 * the counters.
 */
#ifndef BPF_SHARED_H
#define BPF_SHARED_H

#include "bpf/kernel.h"
#include "schema/capture.h"

/* Set by the agent before loading. The verifier sees these as constants. */
const volatile __u32 stack_max = CAPTURE_STACK_DEFAULT;
/* Wake the reader when the ring holds so many new bytes. */
const volatile __u64 wake_bytes = 1 << 20;
const volatile __u32 filters_possible = 0; /* enum capture_filter: those that may ever be on */
const volatile __u64 wanted_cpus[CAPTURE_CPUS_MAX / 64] = {};
/* Tracepoints and probes: take one in so many. */
const volatile __u32 every[CAPTURE_EVENTS_MAX] = {};
/* Other events: the program sees every occurrence and samples few of them; see paced_period. */
const volatile __u8 paced[CAPTURE_EVENTS_MAX] = {};
/* Event numbers of the fallback programs, which have no attach cookies. */
const volatile __u32 fallback_event = 0, fallback_tracepoint = 0, fallback_probe = 0;
const volatile __u32 n_scratch = 1; /* CPUs that have a scratch buffer */
const volatile __u32 off_cpu_event = 0;
/* The stack of a waker is captured if the wait took so long until then. */
const volatile __u64 waker_min_ns = 0;
/* Free bytes that samples leave in the ring for small records that complete earlier samples. */
const volatile __u64 ring_reserve = 0;
const volatile __u64 ring_size = 0;
const volatile __u32 xstate_size = 0; /* size of the FPU state in a signal frame; 0: unknown */
const volatile __u32 alloc_event = 0;
const volatile __u64 alloc_interval = 1; /* bytes; 1: capture every allocation */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

/* The kernel stores one value per CPU for each of enum capture_counts. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CAPTURE_COUNTS);
	__type(key, __u32);
	__type(value, struct capture_counters);
} counters SEC(".maps");

/* Return the counters of this CPU. */
static __always_inline struct capture_counters *counters_of(__u32 counts)
{
	return bpf_map_lookup_elem(&counters, &counts);
}

static __always_inline struct capture_counters *counters_here(void)
{
	return counters_of(CAPTURE_COUNTS_EVENTS);
}

/*
 * Add n to a counter. The addition is atomic, because one program may interrupt another on the same
 * CPU.
 */
static __always_inline void add(__u64 *counter, __u64 n)
{
	__sync_fetch_and_add(counter, n);
}

/*
 * Set when a wakeup of the reader was requested. The agent clears the flag before it reads the
 * ring. If a wakeup is lost nevertheless, the agent's timer makes it read the ring.
 */
__u32 wake_asked = 0;
/*
 * The producer's position when the agent read the ring last. What lies before it may still be in the ring, lent to the
 * process that unwinds it: there is nothing new in it.
 */
__u64 read_until = 0;

/* Samples a second of a paced event on one CPU; may be a few more. The agent sets this. */
__u32 pace_samples = 0;
/* Waits that are captured in a second on one CPU; may be a few more. The agent sets this. */
__u32 wait_rate = 0;
/* The filters that are on (enum capture_filter). The agent changes this while it records. */
__u32 filters = 0;

/* Return whether a filter is on. The verifier removes the code of those that are not possible. */
static __always_inline bool is_on(__u32 filter)
{
	return filters_possible & filter && filters & filter;
}

/* Offwind's own processes, which the agent writes. Each is there, some more than once. */
__u32 self_pids[CAPTURE_SELF_MAX] = {};

/*
 * Write a record to the ring, but leave reserve bytes of the ring free. Return 0, or a negative
 * value if the ring has no room. A wakeup costs an interrupt, which is more expensive than a
 * sample, so it is requested only once before the reader runs, however long that takes.
 */
static __always_inline long put(void *record, __u64 size, __u64 reserve)
{
	__u64 waiting = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
	bool wake = !wake_asked && waiting >= wake_bytes &&
		    bpf_ringbuf_query(&ring, BPF_RB_PROD_POS) - read_until >= wake_bytes;
	long err = -1;

	if (waiting + size + reserve > ring_size)
		return err;
	/* Older verifiers do not know the bounds of a number any more that was on the stack meanwhile. */
	barrier_var(size);
	if (size <= CAPTURE_HEAD_SIZE + stack_max + CAPTURE_SCRATCH_TAIL)
		err = bpf_ringbuf_output(&ring, record, size,
					 wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);

	/* If the output failed, no wakeup was sent. */
	if (wake && !err)
		wake_asked = 1;
	return err;
}

/*
 * Read a field of a kernel object. If pointer comes from bpf_get_current_task_btf, the verifier
 * knows that a direct load is safe; it costs a tenth of a helper call.
 */
#define GET(fallback, pointer, field) \
	((fallback) ? BPF_CORE_READ(pointer, field) : (pointer)->field)

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/wait_pace.h: chooses which waits are captured, if more threads begin to wait than wait_rate.
 *
 * How long a wait takes is not known when it begins, but it mostly takes as long as the waits before
 * it at the same place of the same thread. Long waits make up most of the waiting time, so they are
 * captured first: the chance of a wait that is expected to take d is min(1, d / D), where D is
 * chosen for each CPU so that wait_rate waits a second are captured. The chance is a power of 1/2,
 * known when the wait begins, and does not depend on how long the wait takes. So a captured wait
 * that stands for 1 / chance waits makes sums that are right on average.
 *
 * A wait that takes far longer than expected would make these sums rough: it would stand for many,
 * and others like it for none. Such waits are counted exactly: one that is captured stands for
 * itself, and the time of one that is not is told with the next one that is captured at its place.
 * That is mostly the thread's next wait there, because long ones are expected from then on.
 */
#ifndef BPF_WAIT_PACE_H
#define BPF_WAIT_PACE_H

#include "bpf/pace.h"
#include "bpf/thread.h"

/* The threads that wait or waited last; see struct capture_wait_slot. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_wait_slot);
} wait_slots SEC(".maps");

/* The places where threads wait. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_wait_site);
} wait_sites SEC(".maps");

/* One element; the kernel stores one value per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_wait_pace);
} wait_paces SEC(".maps");

#define UNKNOWN_BUCKET 13 /* a wait at a new place is expected to take 8 ms */
/*
 * A wait is a surprise if it takes 2^2 times the least of its bucket and 24 us more. A capture takes up to
 * 20 us, and then the thread that this one works with on another CPU may sleep, too. So a captured
 * wait takes longer than the others, and more of the captured ones would be surprises.
 */
#define SURPRISE_SHIFT 2
#define SURPRISE_US    24u
#define LEVEL_MAX      (CAPTURE_WAIT_BUCKETS + CAPTURE_WAIT_SHIFT)

/* Return the slot of a thread, which may hold another one. */
static __always_inline struct capture_wait_slot *wait_slot(__u32 tid)
{
	__u32 place = tid % CAPTURE_WAIT_SLOTS;

	return bpf_map_lookup_elem(&wait_slots, &place);
}

/* Return a number for the place where the current thread waits: the thread and its system call. */
static __always_inline __u64 wait_place(struct task_struct *task, bool fallback)
{
	struct pt_regs *regs = thread_regs(task, fallback);
	__u64 ip = 0;

	(void)bpf_probe_read_kernel(&ip, sizeof(ip), &regs->rip);
	return (ip ^ (__u64)(__u32)bpf_get_current_pid_tgid() << 40) * 0x9e3779b97f4a7c15ull;
}

static __always_inline struct capture_wait_site *wait_site(__u32 site)
{
	return bpf_map_lookup_elem(&wait_sites, &site);
}

/* Return the bucket of a length in microseconds: the number of its highest bit. */
static __always_inline __u64 wait_bucket(__u64 us)
{
	__u64 bucket = 0;

	if (!us)
		return UNKNOWN_BUCKET;
	if (us >> 16)
		bucket += 16, us >>= 16;
	if (us >> 8)
		bucket += 8, us >>= 8;
	if (us >> 4)
		bucket += 4, us >>= 4;
	if (us >> 2)
		bucket += 2, us >>= 2;
	return bucket + (us >> 1);
}

/*
 * A new second begins: choose the lowest level at which the waits of the previous second would have
 * been wait_rate captures or fewer. The loop has no branches, because the verifier would follow
 * each path.
 */
static __always_inline void wait_second(struct capture_wait_pace *pace, __u64 now_ns)
{
	__u64 whole = 0, part = 0, level = 0;

	for (__u32 i = 0; i < CAPTURE_WAIT_BUCKETS; i++)
		whole += pace->begun[i];
	/* Buckets below the level count in part, those from it on as a whole. 32 bits: fractions. */
	for (__u32 i = 0; i < CAPTURE_WAIT_BUCKETS; i++) {
		/* The sign: 1 as long as there would be too many. */
		level += ((__u64)wait_rate - whole - (part >> 32)) >> 63;
		part = (part + (pace->begun[i] << 32)) / 2;
		whole -= pace->begun[i];
		pace->begun[i] = 0;
	}
	for (__u32 i = 0; i < CAPTURE_WAIT_SHIFT; i++) {
		level += ((__u64)wait_rate - (part >> 32)) >> 63;
		part /= 2;
	}
	pace->level = now_ns - pace->since_ns < 2 * SECOND_NS ? level : 0;
	pace->since_ns = now_ns;
	pace->captured = 0;
	pace->raise = wait_rate;
}

/*
 * Return bucket as an index that the verifier of Linux 5.10 accepts: it forgets the bounds of a
 * number that the compiler keeps on the stack.
 */
static __always_inline __u64 bounded(__u64 bucket)
{
	barrier_var(bucket);
	return bucket & (CAPTURE_WAIT_BUCKETS - 1);
}

/*
 * Return the number of waits in this row of the bucket, and whether the next one is captured. One in
 * each row makes better sums than if each was drawn on its own.
 */
static __always_inline __u32 wait_row(struct capture_wait_pace *pace, __u64 bucket, bool *captured)
{
	__u64 shift = 0;
	__u32 n = pace->rows[bounded(bucket)].n, left = pace->rows[bounded(bucket)].left;

	if (!left) {
		if (pace->level > bucket)
			shift = pace->level - bucket;
		if (shift > CAPTURE_WAIT_SHIFT)
			shift = CAPTURE_WAIT_SHIFT;
		n = left = 1u << shift;
		pace->rows[bounded(bucket)].n = n;
		pace->rows[bounded(bucket)].pick = shift ? bpf_get_prandom_u32() & (n - 1) : 0;
	}
	left--;
	pace->rows[bounded(bucket)].left = left;
	*captured = left == pace->rows[bounded(bucket)].pick;
	return n;
}

/*
 * The current thread begins to wait. Return how many waits a capture of it stands for, or 0 if it is
 * not to be captured.
 */
static __always_inline __u64 wait_begins(struct task_struct *task, __u64 now_ns, bool fallback)
{
	__u32 zero = 0, tid = (__u32)bpf_get_current_pid_tgid();
	__u64 place = wait_place(task, fallback), bucket;
	bool captured;
	__u32 n, index = place >> 40 & (CAPTURE_WAIT_SLOTS - 1);
	struct capture_wait_pace *pace = bpf_map_lookup_elem(&wait_paces, &zero);
	struct capture_wait_slot *slot = wait_slot(tid);
	struct capture_wait_site *site = wait_site(index);

	if (!pace || !slot || !site)
		return 0;
	if (site->tag != (__u32)place) {
		site->tag = (__u32)place;
		site->usual_us = 0;
		site->others = site->others_blocked_ns = site->others_runnable_ns = 0;
	}
	if (now_ns - pace->since_ns >= SECOND_NS)
		wait_second(pace, now_ns);
	bucket = wait_bucket(site->usual_us);
	pace->begun[bounded(bucket)]++;
	n = wait_row(pace, bucket, &captured);
	slot->tid = tid;
	slot->site = index;
	slot->since_ns = now_ns;
	slot->woken_ns = 0;
	slot->captured = 0;
	slot->n = n;
	slot->limit_us = n > 1 && bucket < 30 ? (1u << (bucket + SURPRISE_SHIFT)) + SURPRISE_US : 0;
	if (!captured)
		return 0;
	/* The previous second was quieter. */
	if (++pace->captured >= pace->raise && pace->level < LEVEL_MAX) {
		pace->level++;
		pace->raise += wait_rate / 4 + 1;
	}
	return n;
}

/* A wait at this place has taken so long. */
static __always_inline void wait_took(struct capture_wait_site *site, __u64 us)
{
	if (us < site->usual_us)
		us += (site->usual_us - us) / 2;
	site->usual_us = us > 0xffffffff ? 0xffffffff : us ? us : 1;
}

/*
 * A thread runs, or is about to leave its CPU: account for its wait, if it waited and was not
 * captured. Return whether it may be in the table of waiting threads.
 */
static __always_inline bool wait_ends(__u32 tid, __u64 now_ns)
{
	struct capture_wait_slot *slot = wait_slot(tid);
	struct capture_wait_site *site;
	__u64 ns;

	if (!slot || slot->tid != tid)
		return true;
	if (!slot->since_ns)
		return false;
	if (slot->captured) {
		slot->since_ns = slot->captured = 0;
		return true;
	}
	ns = now_ns - slot->since_ns;
	slot->since_ns = 0;
	site = wait_site(slot->site);
	if (!site)
		return false;
	wait_took(site, ns >> 10);
	if (!slot->limit_us || ns >> 10 < slot->limit_us)
		return false;
	site->others++;
	if (slot->woken_ns) {
		site->others_runnable_ns += now_ns - slot->woken_ns;
		ns -= now_ns - slot->woken_ns;
	}
	site->others_blocked_ns += ns;
	return false;
}

#endif

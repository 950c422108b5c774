/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/off_cpu.h: the programs on sched_switch, which capture threads that begin to wait and report
 * when they run again, and on sched_waking, which see who wakes them, and capture that thread, too, if
 * the agent loads the programs that do; a part of capture.bpf.c.
 */
#ifndef BPF_OFF_CPU_H
#define BPF_OFF_CPU_H

/*
 * The waiting threads whose wait was captured, by tid. This is not task storage, for two reasons:
 * the task storage helper may fail temporarily, and at the end the agent reads from this map which
 * threads still wait.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_waiting);
} off_cpu SEC(".maps");

/* Where an entry is put together: it is too large for the stack. One element for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_waiting);
} wait_entry SEC(".maps");

/*
 * Report to the agent that a wait ended at time_ns. If time_ns is 0, the end cannot be observed.
 */
static __always_inline void tell_end(struct capture_waiting *waiting, __u64 time_ns,
				     struct capture_counters *count)
{
	struct capture_wait_site *site = wait_site(waiting->site);
	struct capture_wake *wake = &waiting->wake;
	__u64 us = (time_ns - wake->began_ns) >> 10;

	wake->time_ns = time_ns;
	if (time_ns && site) {
		wait_took(site, us);
		if (waiting->limit_us && us >= waiting->limit_us)
			wake->n = 1;
		wake->others = site->others;
		wake->others_blocked_ns = site->others_blocked_ns;
		wake->others_runnable_ns = site->others_runnable_ns;
	}
	if (put(wake, sizeof(*wake), 0))
		add(&count->wakes_lost, 1);
	else if (time_ns && site)
		site->others = site->others_blocked_ns = site->others_runnable_ns = 0;
}

/*
 * Report the end of a captured wait, however short it was: the agent stores the record of its
 * beginning until then. task gets its CPU now, or is about to leave it (leaves). The second case
 * occurs because the kernel does not report every switch to a thread. Such a thread has run since
 * its wait ended; its own clock (sum_exec_runtime) says for how long.
 */
static __always_inline void wait_over(struct task_struct *task, bool leaves, __u64 now_ns,
				      struct capture_counters *count)
{
	__u32 tid = task->pid;
	struct capture_waiting *waiting;
	__u64 began_ns, time_ns, ran_ns = 0;

	/* The idle thread and those of the kernel are not captured. */
	if (!tid || task->flags & PF_KTHREAD || !wait_ends(tid, now_ns))
		return;
	waiting = bpf_map_lookup_elem(&off_cpu, &tid);
	if (!waiting)
		return;
	began_ns = waiting->wake.began_ns;
	time_ns = now_ns;
	if (leaves) {
		ran_ns = task->se.sum_exec_runtime - waiting->ran_ns;
		add(&count->wakes_unseen, 1);
	}
	tell_end(waiting, ran_ns < time_ns - began_ns ? time_ns - ran_ns : began_ns, count);
	(void)bpf_map_delete_elem(&off_cpu, &tid);
}

/*
 * Return whether the current thread has nothing to do with what runs: an interrupt came while the
 * CPU was idle or ran the thread's own code. (An exception counts as one. An interrupt that comes
 * during a system call is not told apart from it.)
 */
static __always_inline bool in_interrupt(bool fallback)
{
	struct task_struct *task = current_task(fallback);
	struct pt_regs *regs;
	__u64 call = 0;

	if (!bpf_get_current_pid_tgid())
		return true;
	if (BPF_CORE_READ(task, flags) & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		return false;
	regs = thread_regs(task, fallback);
	/* The kernel sets orig_rax to -1 if no system call was its entry. */
	return !bpf_probe_read_kernel(&call, sizeof(call), &regs->orig_rax) && call == ~0ull;
}

/* Return the innermost kernel frames that belong to a program on a scheduler's tracepoint. */
static __always_inline __u32 own_frames(void *ctx, bool fallback)
{
	__u64 ips[2] = {};

	/* Linux 5.10 lists the program's own frame twice. */
	if (fallback && bpf_get_stack(ctx, ips, sizeof(ips), 0) == sizeof(ips) && ips[0] == ips[1])
		return 3;
	return 2; /* of the program and of its caller */
}

/*
 * Capture the current thread, which ends this wait. Return enum capture_waker_stack. Interrupts are off
 * here, as on sched_switch, so one scratch buffer serves both; not if a thread wakes itself, but then it
 * does not wait.
 */
static __always_inline __u32 capture_waker(void *ctx, const struct capture_waiting *waiting,
					   bool fallback)
{
	struct capture_counters *count = counters_of(CAPTURE_COUNTS_WAKERS);
	const struct tick tick = { .event = off_cpu_event,
				   .kind = CAPTURE_SCRATCH_SWITCH,
				   .skip = own_frames(ctx, fallback),
				   .flags = CAPTURE_WAKER,
				   .period = 1,
				   .woken = waiting };
	__u64 others, full;

	if (!count || waiting->wake.tid == (__u32)bpf_get_current_pid_tgid())
		return CAPTURE_WAKER_UNSEEN;
	add(&count->fired, 1);
	if (waiting->wake.woken_ns - waiting->wake.began_ns < waker_min_ns) {
		add(&count->filtered_period, 1);
		return CAPTURE_WAKER_SHORT;
	}
	/* No other program on this CPU counts here meanwhile. */
	others = count->filtered_self + count->filtered_process;
	full = count->ring_full;
	if (capture(ctx, &tick, count, fallback))
		return CAPTURE_WAKER_SENT;
	if (count->filtered_self + count->filtered_process != others)
		return CAPTURE_WAKER_OTHER;
	return count->ring_full != full ? CAPTURE_WAKER_FULL : CAPTURE_WAKER_UNREADABLE;
}

/*
 * Handle that a thread is made ready to run, by the current thread or by an interrupt. stacks: capture the
 * current thread.
 */
static __always_inline int on_waking(void *ctx, struct task_struct *task, bool stacks,
				     bool fallback)
{
	__u32 tid = task->pid;
	struct capture_wait_slot *slot = wait_slot(tid);
	struct capture_waiting *waiting;
	__u64 id;

	if (slot && slot->tid == tid && !slot->captured) {
		if (slot->limit_us && slot->since_ns && !slot->woken_ns)
			slot->woken_ns = bpf_ktime_get_ns();
		return 0;
	}
	waiting = bpf_map_lookup_elem(&off_cpu, &tid);
	if (!waiting || waiting->wake.woken_ns)
		return 0;
	waiting->wake.woken_ns = bpf_ktime_get_ns();
	if (in_interrupt(fallback)) {
		waiting->wake.waker_stack = CAPTURE_WAKER_NONE;
		return 0;
	}
	id = bpf_get_current_pid_tgid();
	waiting->wake.waker_pid = id >> 32;
	waiting->wake.waker_tid = (__u32)id;
	bpf_get_current_comm(waiting->wake.waker, sizeof(waiting->wake.waker));
	if (stacks)
		waiting->wake.waker_stack = capture_waker(ctx, waiting, fallback);
	return 0;
}

/* Return the state of a task. Linux 5.14 renamed the field from state to __state. */
static __always_inline __u64 state_of(struct task_struct *task)
{
	struct task_struct___5_13 *old = (void *)task;

	return bpf_core_field_exists(task->__state) ? task->__state : old->state;
}

/*
 * Handle a context switch. A thread is captured when it begins to wait, while its memory can be
 * read. When it runs again, a struct capture_wake says how long it waited. A thread that is
 * preempted does not wait.
 */
static __always_inline int on_switch(void *ctx, bool preempt, struct task_struct *prev,
				     struct task_struct *next, bool fallback)
{
	struct capture_counters *count = counters_here();
	struct tick tick = { .event = off_cpu_event,
			     .kind = CAPTURE_SCRATCH_SWITCH,
			     .flags = CAPTURE_OFF_CPU,
			     .now_ns = bpf_ktime_get_ns() };
	struct capture_waiting *waiting;
	struct capture_wait_slot *slot;
	__u64 since_ns;
	__u32 tid = prev->pid, zero = 0;

	if (!count)
		return 0;
	wait_over(next, false, tick.now_ns, count);
	if (prev->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER) || !tid)
		return 0;
	wait_over(prev, true, tick.now_ns, count);
	if (preempt || !prev->mm || !(state_of(prev) & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE)))
		return 0;
	add(&count->fired, 1);
	tick.skip = own_frames(ctx, fallback);
	since_ns = capture(ctx, &tick, count, fallback);
	waiting = since_ns ? bpf_map_lookup_elem(&wait_entry, &zero) : NULL;
	if (!waiting)
		return 0;
	__builtin_memset(waiting, 0, sizeof(*waiting));
	waiting->wake.magic = CAPTURE_WAKE_MAGIC;
	waiting->wake.tid = tid;
	waiting->wake.since_ns = since_ns;
	waiting->wake.n = 1;
	waiting->ran_ns = prev->se.sum_exec_runtime;
	slot = wait_slot(tid);
	if (slot && slot->tid == tid) {
		slot->captured = 1;
		waiting->wake.n = slot->n;
		waiting->site = slot->site;
		waiting->limit_us = slot->limit_us;
	}
	/* The capture took time, in which the thread did not wait yet. */
	waiting->wake.began_ns = bpf_ktime_get_ns();
	/* The table is full: nobody will see this thread wake up, so report that now. */
	if (bpf_map_update_elem(&off_cpu, &tid, waiting, BPF_ANY))
		tell_end(waiting, 0, count);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(capture_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(ctx, preempt, prev, next, false);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(fallback_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(ctx, preempt, prev, next, true);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(capture_waking, struct task_struct *task)
{
	return on_waking(ctx, task, false, false);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(fallback_waking, struct task_struct *task)
{
	return on_waking(ctx, task, false, true);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(capture_wakers, struct task_struct *task)
{
	return on_waking(ctx, task, true, false);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(fallback_wakers, struct task_struct *task)
{
	return on_waking(ctx, task, true, true);
}

#endif

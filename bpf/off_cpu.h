/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/off_cpu.h: the programs on sched_switch, which capture threads that begin to wait and report
 * when they run again; a part of capture.bpf.c.
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

/*
 * Report to the agent that the wait of thread tid, which began at since_ns, ended at time_ns. If
 * time_ns is 0, the end cannot be observed.
 */
static __always_inline void tell_end(__u32 tid, __u64 since_ns, __u64 time_ns,
				     struct capture_counters *count)
{
	struct capture_wake wake = {
		.magic = CAPTURE_WAKE_MAGIC, .tid = tid, .since_ns = since_ns, .time_ns = time_ns
	};

	if (put(&wake, sizeof(wake), 0))
		add(&count->wakes_lost, 1);
}

/*
 * Report the end of a captured wait, however short it was: the agent stores the record of its
 * beginning until then. task gets its CPU now, or is about to leave it (leaves). The second case
 * occurs because the kernel does not report every switch to a thread. Such a thread has run since
 * its wait ended; its own clock (sum_exec_runtime) says for how long.
 */
static __always_inline void woken(struct task_struct *task, bool leaves,
				  struct capture_counters *count)
{
	__u32 tid = BPF_CORE_READ(task, pid);
	struct capture_waiting *waiting;
	__u64 since_ns, time_ns, ran_ns = 0;

	if (!tid) /* the idle thread */
		return;
	waiting = bpf_map_lookup_elem(&off_cpu, &tid);
	if (!waiting)
		return;
	since_ns = waiting->since_ns;
	time_ns = bpf_ktime_get_ns();
	if (leaves) {
		ran_ns = BPF_CORE_READ(task, se.sum_exec_runtime) - waiting->ran_ns;
		add(&count->wakes_unseen, 1);
	}
	(void)bpf_map_delete_elem(&off_cpu, &tid);
	tell_end(tid, since_ns, ran_ns < time_ns - since_ns ? time_ns - ran_ns : since_ns, count);
}

/* Return the state of a task. Linux 5.14 renamed the field from state to __state. */
static __always_inline __u64 state_of(struct task_struct *task)
{
	struct task_struct___5_13 *old = (void *)task;

	return bpf_core_field_exists(task->__state) ? BPF_CORE_READ(task, __state)
						    : BPF_CORE_READ(old, state);
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
			     .skip = 2, /* frames of this program and of its caller */
			     .flags = CAPTURE_OFF_CPU };
	struct capture_waiting waiting;
	__u64 ips[2] = {};
	__u32 tid;

	if (!count)
		return 0;
	woken(next, false, count);
	if (BPF_CORE_READ(prev, flags) & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER) ||
	    !BPF_CORE_READ(prev, pid))
		return 0;
	woken(prev, true, count);
	if (preempt || !BPF_CORE_READ(prev, mm) ||
	    !(state_of(prev) & (TASK_INTERRUPTIBLE | TASK_UNINTERRUPTIBLE)))
		return 0;
	add(&count->fired, 1);
	/* Linux 5.10 lists the program's own frame twice. */
	if (fallback && bpf_get_stack(ctx, ips, sizeof(ips), 0) == sizeof(ips) && ips[0] == ips[1])
		tick.skip = 3;
	waiting.since_ns = capture(ctx, &tick, count, fallback);
	if (!waiting.since_ns)
		return 0;
	waiting.ran_ns = BPF_CORE_READ(prev, se.sum_exec_runtime);
	tid = BPF_CORE_READ(prev, pid);
	/* The table is full: nobody will see this thread wake up, so report that now. */
	if (bpf_map_update_elem(&off_cpu, &tid, &waiting, BPF_ANY))
		tell_end(tid, waiting.since_ns, 0, count);
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

#endif

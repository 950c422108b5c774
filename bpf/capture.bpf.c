// SPDX-License-Identifier: GPL-2.0-only
/*
 * bpf/capture.bpf.c: BPF programs that capture a thread's registers and live stack.
 *
 * The programs run on perf events (clocks, counters), tracepoints, uprobes and sched_switch. They
 * copy raw bytes and count what they could not copy. They never unwind: the agent decides what the
 * bytes mean.
 *
 * A BPF program here cannot take a page fault. The kernel runs programs on perf events and
 * tracepoints one at a time on each CPU (bpf_prog_active), so one scratch buffer per CPU serves
 * them. Such a program may interrupt the program on sched_switch, so sched_switch has a scratch
 * buffer of its own. A program on a uprobe may lose the CPU to another thread that hits the probe,
 * so the scratch buffer of the uprobes has a lock.
 *
 * Each capturing program exists twice. The fallback version is for old kernels. It does without
 * bpf_find_vma, bpf_loop, bpf_task_pt_regs, attach cookies and task storage. Without attach cookies
 * a program serves one event of its kind, and is loaded again for each further event. The agent
 * loads the versions that the kernel accepts. A constant flag that the verifier can see would not
 * be enough: before Linux 5.13 the verifier rejects a program if dead code only takes the address
 * of a callback.
 */

#include "bpf/filter.h"
#include "bpf/pace.h"
#include "bpf/plan.h"
#include "bpf/scratch.h"
#include "bpf/stack_copy.h"
#include "bpf/thread.h"
#include "bpf/wait_pace.h"

struct tick { /* why a program runs, and what it captures */
	__u32 event;
	bool paces; /* paced_period decides whether to sample, if the event is paced */
	enum capture_scratch kind;
	bool user; /* the thread was in user mode */
	__u32 flags;
	__u32 skip; /* innermost kernel frames to leave out, because they belong to the capture */
	__u64 period;
	__u64 now_ns; /* for waits: when the program began */
	/*
	 * For allocations: capture the thread as it was when it called the function that has just
	 * returned. called_ip is 0 otherwise.
	 */
	__u64 called_ip, called_sp, return_ip;
	struct capture_alloc *alloc; /* or NULL */
	/* For wakers: the wait that the thread ends; or NULL. */
	const struct capture_waiting *woken;
};

/* Fill the head of the record with what is known before the stack is copied. */
static __always_inline void fill_head(struct capture_head *head, const struct tick *tick, __u64 id,
				      __u32 cpu, __u64 period)
{
	head->magic = CAPTURE_MAGIC;
	head->stack_len = 0;
	head->kernel_len = 0;
	head->cpu = cpu;
	head->event = tick->event;
	head->pid = id >> 32;
	head->tid = (__u32)id;
	head->interrupted_len = 0;
	head->time_ns = bpf_ktime_get_ns();
	head->period = period;
	head->cgroup_id = bpf_get_current_cgroup_id();
	bpf_get_current_comm(head->comm, sizeof(head->comm));
	head->uid = (__u32)bpf_get_current_uid_gid();
	head->slices_len = 0;
	head->slices_end = PLAN_NONE;
	head->slices_refer = 0;
	head->flags = tick->flags;
	if (tick->user)
		head->flags |= CAPTURE_USER_HIT;
}

/*
 * Return how many bytes the record has behind its head so far, at most so many. To the verifier each part begins in the same
 * state, whatever parts are before it: so the number is in the scratch buffer, and not in a register.
 */
static __always_inline __u64 size_so_far(volatile struct plan_run *run, __u64 most)
{
	__u64 size = run->at;

	barrier_var(size);
	return size > most ? most : size;
}

/* Append which wait the thread ended. */
static __always_inline void append_woken(volatile struct plan_run *run, __u8 *bytes,
					 const struct capture_waiting *woken)
{
	__u64 size =
		size_so_far(run, STACKS_MAX + CAPTURE_KERNEL_MAX + sizeof(struct capture_holes));
	struct capture_woken *to = (void *)(bytes + size);

	to->tid = woken->wake.tid;
	to->reserved = 0;
	to->since_ns = woken->wake.since_ns;
	run->at = size + sizeof(*to);
}

/*
 * Append what follows the stacks at bytes: the kernel's return addresses, the holes, the
 * allocation, the wait that was ended, the slices. Return the size of the record.
 */
static __always_inline __u64 append(void *ctx, struct capture_front *front, __u32 place,
				    const struct tick *tick, bool fallback)
{
	const __u64 before_holes = STACKS_MAX + CAPTURE_KERNEL_MAX;
	volatile struct plan_run *run = &front->run;
	struct capture_head *head = &front->head;
	__u8 *bytes = (__u8 *)(front + 1);
	__u64 size;
	long n;

	run->at = (head->stack_len + 7) & ~7u;
	if (head->interrupted_len)
		run->at = run->at + 8 + ((head->interrupted_len + 7) & ~7u);
	if (!tick->user) {
		size = size_so_far(run, STACKS_MAX);
		n = bpf_get_stack(ctx, bytes + size, CAPTURE_KERNEL_MAX, tick->skip);
		if (n > 0) {
			head->kernel_len = n;
			run->at = run->at + n;
		}
	}
	if (head->flags & CAPTURE_HOLES) {
		size = size_so_far(run, before_holes);
		__builtin_memcpy(bytes + size, &front->holes, sizeof(front->holes));
		run->at = size + sizeof(front->holes);
	}
	if (tick->alloc) {
		size = size_so_far(run, before_holes + sizeof(front->holes));
		head->flags |= CAPTURE_ALLOC;
		__builtin_memcpy(bytes + size, tick->alloc, sizeof(*tick->alloc));
		run->at = size + sizeof(*tick->alloc);
	}
	if (tick->flags & CAPTURE_WAKER)
		append_woken(run, bytes, tick->woken);
	if (slice_bytes && plans_in_use) {
		if (fallback)
			append_slices_fallback(place, tick->kind);
		else
			append_slices(place, tick->kind);
	}
	return CAPTURE_HEAD_SIZE + size_so_far(run, stack_max + CAPTURE_SCRATCH_TAIL);
}

/*
 * Write the state of the current thread to the ring. Return the time of the record, or 0 if no
 * record was written. Each call counts exactly one outcome, except fired, which the caller counts.
 */
static __always_inline __u64 capture(void *ctx, const struct tick *tick,
				     struct capture_counters *count, bool fallback)
{
	struct task_struct *task = current_task(fallback);
	/*
	 * Read mm before any branch. At each pointer from one kernel type to another, the verifier
	 * searches the names of all types, which takes 1 ms for each path that leads here.
	 */
	struct mm_struct *mm = GET(fallback, task, mm);
	__u64 id = bpf_get_current_pid_tgid(), size, fsbase;
	__u64 period = tick->period;
	__u32 cpu = bpf_get_smp_processor_id(), place;
	long err;
	struct capture_head *head;
	struct capture_front *front;
	struct pt_regs *regs;
	__u8 *bytes;

	if (!id) {
		add(&count->filtered_idle, 1);
		return 0;
	}
	/* A waker's stack belongs to the wait that it ended, whose thread has passed. */
	if (tick->flags & CAPTURE_WAKER ? !passes_task(id, task, count)
					: !passes(id, task, cpu, count))
		return 0;
	if (tick->flags & CAPTURE_OFF_CPU) {
		add(&count->off_cpu, 1);
		period = wait_begins(task, tick->now_ns, fallback);
		if (!period) {
			add(&count->off_cpu_skipped, 1);
			add(&count->filtered_period, 1);
			return 0;
		}
	}
	if (tick->paces && tick->event < CAPTURE_EVENTS_MAX && paced[tick->event]) {
		period = paced_period(tick->event);
		if (!period) {
			add(&count->filtered_period, 1);
			return 0;
		}
	}
	place = tick->kind * n_scratch + cpu;
	front = cpu < n_scratch ? bpf_map_lookup_elem(&scratch, &place) : NULL;
	if (!front) {
		add(&count->unreadable, 1);
		return 0;
	}
	head = &front->head;
	bytes = (__u8 *)(front + 1);
	fill_head(head, tick, id, cpu, period);
	/*
	 * Some threads have no valid user state. Kernel threads have none. I/O workers have a stale
	 * copy of their creator's. An exiting thread has released its memory. A thread inside
	 * execve has its new memory, but still the old registers until start_code is set.
	 */
	if (fallback) {
		name_process(task, &head->process_start_ns, &head->ns_pid);
	} else {
		top_get(&front->top, task, mm);
		head->process_start_ns = front->top.process_start_ns;
		head->ns_pid = front->top.ns_pid;
	}
	if (!(GET(fallback, task, flags) & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)) && mm &&
	    GET(fallback, mm, start_code)) {
		/* Until the stack is copied there. This program's own stack is small. */
		regs = (struct pt_regs *)bytes;
		if (!user_regs(task, regs, fallback)) {
			add(&count->unreadable, 1);
			return 0;
		}
		head->flags |= CAPTURE_HAS_USER;
		if ((regs->cs & 0xffff) == 0x23) /* __USER32_CS */
			head->flags |= CAPTURE_COMPAT;
		regs_to_dwarf(head, regs);
		if (tick->called_ip) {
			head->regs[16] = tick->called_ip;
			head->regs[7] = tick->called_sp;
		}
		fsbase = GET(fallback, task, thread.fsbase);
		front->run.r[PLAN_THREAD] = fsbase; /* not in a register until the plan runs */
		if (fallback)
			copy_stacks_fallback(place, fsbase);
		else
			copy_stacks(place, fsbase);
		/*
		 * The kernel replaced the return address on the stack to see the function return;
		 * restore it in the copy.
		 */
		if (tick->called_ip && head->stack_len > CAPTURE_RED_ZONE + 8)
			*(__u64 *)(bytes + CAPTURE_RED_ZONE) = tick->return_ip;
	} else {
		__builtin_memset(head->regs, 0, sizeof(head->regs));
	}
	if (!fallback)
		top_put(&front->top, task);

	size = append(ctx, front, place, tick, fallback);
	err = put(head, size, ring_reserve);
	add(&count->program_ns, bpf_ktime_get_ns() - head->time_ns);
	if (err) {
		if (head->slices_refer)
			forget_base(place);
		add(&count->ring_full, 1);
		return 0;
	}
	add(&count->captured, 1);
	add(&count->bytes, size);
	if (head->flags & CAPTURE_CUT)
		add(&count->cut, 1);
	if (head->flags & CAPTURE_HOLES)
		add(&count->holes, 1);
	return head->time_ns;
}

/* ---- what brings a program to run ----------------------------------------------- */

/*
 * Handle a perf event: a clock, a counter or a software event. event is its number, which is the
 * attach cookie.
 */
static __always_inline int on_sample(struct bpf_perf_event_data *ctx, __u32 event, bool fallback)
{
	struct capture_counters *count = counters_here();
	const struct tick tick = { .event = event,
				   .paces = true,
				   .kind = CAPTURE_SCRATCH_EVENT,
				   .user = (ctx->regs.cs & 3) == 3,
				   .period = ctx->sample_period };

	if (!count)
		return 0;
	add(&count->fired, 1);
	(void)capture(ctx, &tick, count, fallback);
	return 0;
}

SEC("perf_event")
int capture_sample(struct bpf_perf_event_data *ctx)
{
	return on_sample(ctx, bpf_get_attach_cookie(ctx), false);
}

SEC("perf_event")
int fallback_sample(struct bpf_perf_event_data *ctx)
{
	return on_sample(ctx, fallback_event, true);
}

/*
 * Return whether to sample this occurrence of a tracepoint or probe, of which one in every[event]
 * is wanted. Set the period. The count is for each CPU.
 */
static __always_inline bool due(struct tick *tick, struct capture_counters *count)
{
	__u32 event = tick->event;
	struct capture_pace *pace = bpf_map_lookup_elem(&paces, &event);

	if (!pace || event >= CAPTURE_EVENTS_MAX)
		return false;
	tick->period = every[event];
	if (tick->period <= 1) {
		tick->period = 1;
		return true;
	}
	if (++pace->hits < tick->period) {
		add(&count->filtered_period, 1);
		return false;
	}
	pace->hits = 0;
	return true;
}

/* Handle an occurrence of a tracepoint. */
static __always_inline int on_tracepoint(void *ctx, __u32 event, bool fallback)
{
	struct capture_counters *count = counters_here();
	struct tick tick = { .event = event, .kind = CAPTURE_SCRATCH_EVENT };

	if (!count)
		return 0;
	add(&count->fired, 1);
	if (due(&tick, count))
		(void)capture(ctx, &tick, count, fallback);
	return 0;
}

SEC("tracepoint")
int capture_tracepoint(void *ctx)
{
	return on_tracepoint(ctx, bpf_get_attach_cookie(ctx), false);
}

SEC("tracepoint")
int fallback_tracepoints(void *ctx)
{
	return on_tracepoint(ctx, fallback_tracepoint, true);
}

/* Handle an occurrence of a uprobe. */
static __always_inline int on_probe(struct pt_regs *ctx, __u32 event, bool fallback)
{
	struct capture_counters *count = counters_here();
	struct tick tick = { .event = event, .kind = CAPTURE_SCRATCH_PROBE, .user = true };
	__u32 *busy;

	if (!count)
		return 0;
	add(&count->fired, 1);
	if (!due(&tick, count))
		return 0;
	busy = probe_begins(count);
	if (!busy)
		return 0;
	(void)capture(ctx, &tick, count, fallback);
	probe_ends(busy);
	return 0;
}

SEC("uprobe")
int capture_probe(struct pt_regs *ctx)
{
	return on_probe(ctx, bpf_get_attach_cookie(ctx), false);
}

SEC("uprobe")
int fallback_probes(struct pt_regs *ctx)
{
	return on_probe(ctx, fallback_probe, true);
}

#include "bpf/alloc_probes.h"
#include "bpf/follow.h"
#include "bpf/off_cpu.h"

char LICENSE[] SEC("license") = "GPL";

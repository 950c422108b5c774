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
 * Each capturing program exists twice. The plain version is for old kernels. It does without
 * bpf_find_vma, bpf_loop, bpf_task_pt_regs, attach cookies and task storage. Without attach cookies
 * a program serves one event of its kind, and is loaded again for each further event. The agent
 * loads the versions that the kernel accepts. A constant flag that the verifier can see would not
 * be enough: before Linux 5.13 the verifier rejects a program if dead code only takes the address
 * of a callback.
 */
#include "schema/capture.h"
#include "bpf/kernel.h"

/* Set by the agent before loading. The verifier sees these as constants. */
const volatile __u32 stack_max = CAPTURE_STACK_DEFAULT;
const volatile __u64 wake_bytes = 1 << 20; /* wake the reader when the ring holds so many bytes */
const volatile __u32 self_pid = 0;
const volatile __u32 filters = 0; /* enum capture_filter */
const volatile struct capture_cgroup wanted_cgroups[CAPTURE_CGROUPS_MAX] = {};
const volatile __u64 wanted_cpus[CAPTURE_CPUS_MAX / 64] = {};
/* Tracepoints and probes: take one in so many. */
const volatile __u32 every[CAPTURE_EVENTS_MAX] = {};
/* Other events: the program sees every occurrence and samples few of them; see paced_period. */
const volatile __u8 paced[CAPTURE_EVENTS_MAX] = {};
/* Samples a second of a paced event on one CPU; may be a few more. */
const volatile __u32 pace_samples = 400;
/* Event numbers of the plain programs, which have no attach cookies. */
const volatile __u32 plain_event = 0, plain_tracepoint = 0, plain_probe = 0;
const volatile __u32 n_scratch = 1; /* CPUs that have a scratch buffer */
const volatile __u32 off_cpu_event = 0;
/* Free bytes that samples leave in the ring for small records that complete earlier samples. */
const volatile __u64 ring_reserve = 0;
const volatile __u64 ring_size = 0;
const volatile __u32 xstate_size = 0; /* size of the FPU state in a signal frame; 0: unknown */
const volatile __u32 alloc_event = 0;
const volatile __u64 alloc_interval = 1; /* bytes; 1: capture every allocation */

/* The usual stack size limit, for the first thread and for other threads. */
#define STACK_LIKELY (8u << 20)

/*
 * The scratch buffer of one CPU: a struct front, then the record. The record has room for stack_max
 * bytes of the stack, the second stack, and the parts after it. The verifier may check the last
 * part of a copy as a whole page, so the tail has one page more.
 */
#define SCRATCH_FRONT 104u
#define SCRATCH_HEAD  (SCRATCH_FRONT + CAPTURE_HEAD_SIZE)
#define SCRATCH_TAIL  (CAPTURE_INTERRUPTED_MAX + CAPTURE_PAGE)
/* Both stacks, and the address of the second. */
#define STACKS_MAX (stack_max + CAPTURE_INTERRUPTED_MAX + 24)
_Static_assert(CAPTURE_PAGE >= 24 + CAPTURE_KERNEL_MAX + sizeof(struct capture_holes) +
				       sizeof(struct capture_alloc),
	       "what follows the stacks lies in the tail, too");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

/*
 * One scratch buffer for each CPU and each kind of program in use. This is not a per-CPU map,
 * because the values of a per-CPU map are limited to 32 KiB. The agent sets value_size and
 * max_entries from stack_max, the number of CPUs and the events.
 */
enum scratch_kind { SCRATCH_EVENT, SCRATCH_SWITCH, SCRATCH_PROBE };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, SCRATCH_HEAD + CAPTURE_STACK_DEFAULT + SCRATCH_TAIL);
} scratch SEC(".maps");

/* One element; the kernel stores one value per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_counters);
} counters SEC(".maps");

/*
 * Facts about a thread that are looked up once and cached in task storage. [lo, hi) contains sp; hi
 * is the end of the live stack. For a stack that is not the thread's own (a coroutine's),
 * [other_lo, other_hi) is the VMA that contains sp. The mappings may change without notice. Then a
 * copy is a little too long or too short, which the holes and the cut flag show.
 */
struct top {
	__u64 lo, hi;
	__u64 other_lo, other_hi;
	__u64 process_start_ns; /* 0: not looked up yet */
	__u64 mm;		/* address of the mm_struct; exec gives the thread another */
	__u64 start_stack;	/* the new mm_struct may have the old one's address */
	__u32 ns_pid;
	__u16 go;      /* the thread ran a goroutine: try the goroutine's bounds first */
	__u16 changed; /* in the scratch buffer only: modified since it was copied there */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct top);
} tops SEC(".maps");

/*
 * The beginning of a scratch buffer. The program works on this copy of the thread's struct top. The
 * pointer into the scratch buffer is the same whether the thread had a struct top or not, so the
 * verifier checks the code that follows once.
 */
struct front {
	struct capture_holes holes;
	struct top top;
};
_Static_assert(sizeof(struct front) == SCRATCH_FRONT, "the record begins behind it");

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
} waits SEC(".maps");

/* For events that are not sampled at each occurrence: how often they occurred. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CAPTURE_EVENTS_MAX);
	__type(key, __u32);
	__type(value, struct capture_pace);
} paces SEC(".maps");

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

/* The selected threads, by tid. The value has no meaning. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8);
} threads SEC(".maps");

struct comm {
	char name[CAPTURE_COMM];
};

/* The selected thread names. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct comm);
	__type(value, __u8);
} comms SEC(".maps");

/* The selected real user IDs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8);
} uids SEC(".maps");

/* The selected processes and their descendants, by pid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_process);
} processes SEC(".maps");

/* Return the counters of this CPU. */
static __always_inline struct capture_counters *counters_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
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
 * Write a record to the ring, but leave reserve bytes of the ring free. Return 0, or a negative
 * value if the ring has no room. A wakeup costs an interrupt, which is more expensive than a
 * sample, so it is requested only once before the reader runs, however long that takes.
 */
static __always_inline long put(void *record, __u64 size, __u64 reserve)
{
	__u64 waiting = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
	bool wake = !wake_asked && waiting >= wake_bytes;
	long err = -1;

	if (waiting + size + reserve <= ring_size)
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
#define GET(plain, pointer, field) ((plain) ? BPF_CORE_READ(pointer, field) : (pointer)->field)

/* ---- how far the live stack reaches ---------------------------------------- */

struct area {
	__u64 lo, hi;
};

/* A goroutine's stack of up to this size is copied as a whole if its live part is unknown. */
#define LEFT_SMALL (4 * CAPTURE_PAGE)

/* Callback of bpf_find_vma: store the bounds of the VMA. */
static long area_found(struct task_struct *task, struct vm_area_struct *vma, struct area *area)
{
	area->lo = BPF_CORE_READ(vma, vm_start);
	area->hi = BPF_CORE_READ(vma, vm_end);
	return 0;
}

/*
 * Return the end of the stack of goroutine g if sp lies in that stack, else 0. struct g begins with
 * the bounds of its stack (runtime2.go: g.stack).
 */
static __always_inline __u64 goroutine_top(__u64 g, __u64 sp)
{
	__u64 bounds[2] = {};

	if (!g || bpf_probe_read_user(bounds, sizeof(bounds), (void *)g))
		return 0;
	/* Go limits one stack to 1 GB. */
	if (sp < bounds[0] || sp >= bounds[1] || bounds[1] - bounds[0] > 1ull << 30)
		return 0;
	return bounds[1];
}

/* Offset of g.m. The first word of the m, which is Go's thread, points to the thread's g0. */
#define GO_G_M 0x30

/* Most bytes above the stack of a g0 that Go did not allocate: C's thread start, or main's. */
#define GO_NEAR 16384

/*
 * Internal flag in the head: sp is on the thread's own stack while g is still the goroutine's. The
 * flag is cleared when the goroutine's stack is copied as well.
 */
#define LEFT_GOROUTINE (1u << 15)
_Static_assert(CAPTURE_ALLOC < LEFT_GOROUTINE, "it is no other flag's");

/*
 * Return the end of the goroutine stack that contains sp, or of the thread's own stack (g0's) if
 * that contains sp; 0 if neither does. On x86-64 Linux, Go stores the running goroutine's g in the
 * thread's TLS word at fs:-8.
 */
static __always_inline __u64 go_top(__u64 sp, __u64 fsbase, __u64 start_stack,
				    struct capture_counters *count, __u16 *flags)
{
	__u64 g = 0, m = 0, end;

	if (!fsbase || bpf_probe_read_user(&g, sizeof(g), (void *)(fsbase - 8)))
		return 0;
	end = goroutine_top(g, sp);
	if (!end && g && !bpf_probe_read_user(&m, sizeof(m), (void *)(g + GO_G_M)) && m &&
	    !bpf_probe_read_user(&g, sizeof(g), (void *)m)) {
		end = goroutine_top(g, sp);
		*flags |= end ? LEFT_GOROUTINE : 0;
	}
	if (!end)
		return 0;
	add(&count->top_go, 1);
	*flags |= CAPTURE_TOP_GO;
	/*
	 * Go did not allocate this stack (the main thread, or a thread that C started). The bounds
	 * in g0 cover only the part that Go uses, so the stack really ends at start_stack or at
	 * fsbase.
	 */
	if (start_stack - end < GO_NEAR)
		return start_stack + 8;
	return fsbase - end < GO_NEAR ? fsbase : end;
}

/*
 * Return the address from which the goroutine's own stack is to be copied, and set *end to the end
 * of that stack; return 0 if the address is unknown. Go calls the vDSO and C on its thread's own
 * stack (g0's), while g is still the goroutine's. The frame pointer still points into the
 * goroutine's stack, and r12 holds the sp with which that stack was left. The called code may
 * overwrite both registers; then a small stack is copied as a whole.
 */
static __always_inline __u64 left_goroutine(const struct capture_head *head, __u64 fsbase,
					    __u64 *end)
{
	__u64 g = 0, bounds[2] = {}, size;

	if (bpf_probe_read_user(&g, sizeof(g), (void *)(fsbase - 8)) ||
	    bpf_probe_read_user(bounds, sizeof(bounds), (void *)g))
		return 0;
	size = bounds[1] - bounds[0];
	if (!bounds[0] || size > 1ull << 30)
		return 0;
	*end = bounds[1];
	if (head->regs[6] - bounds[0] < size)
		return head->regs[6];
	if (head->regs[12] - bounds[0] < size)
		return head->regs[12];
	return size <= LEFT_SMALL ? bounds[0] : 0;
}

/* Return the end of the alternate signal stack if sp lies in it, else 0. */
static __always_inline __u64 signal_top(struct task_struct *task, __u64 sp,
					struct capture_counters *count, __u16 *flags, bool plain)
{
	__u64 base = GET(plain, task, sas_ss_sp), size = GET(plain, task, sas_ss_size);

	if (sp - base >= size)
		return 0;
	add(&count->top_signal, 1);
	*flags |= CAPTURE_TOP_SIGNAL;
	return base + size;
}

/*
 * Guess the end of the stack without the VMAs; return 0 if there is no plausible guess. A
 * goroutine's bounds are compared with sp, so no other program is mistaken for a Go program.
 */
static __always_inline __u64 top_guess(__u64 sp, __u64 fsbase, __u64 start_stack,
				       struct capture_counters *count, __u16 *flags)
{
	__u64 end = go_top(sp, fsbase, start_stack, count, flags);

	if (end)
		return end;
	if (start_stack >= sp && start_stack - sp < STACK_LIKELY) {
		add(&count->top_start, 1);
		*flags |= CAPTURE_TOP_START;
		return start_stack + 8;
	}
	if (fsbase > sp && fsbase - sp < STACK_LIKELY) {
		add(&count->top_tls, 1);
		*flags |= CAPTURE_TOP_TLS;
		return fsbase;
	}
	add(&count->top_none, 1);
	*flags |= CAPTURE_TOP_NONE;
	return 0;
}

/* A tree of 65,530 VMAs, the default limit of a process, is not deeper than 2 * log2 of that. */
#define AREAS_DEPTH 34

/*
 * Return the end of the VMA that contains addr, or 0. Kernels without bpf_find_vma store the VMAs
 * in a red-black tree, which this function searches. It takes no lock: while the tree changes, the
 * result may be 0.
 */
__attribute__((noinline)) __u64 area_end(__u64 mm_addr, __u64 addr)
{
	struct mm_struct *mm = (void *)mm_addr;
	struct vm_area_struct *vma = NULL;
	struct rb_node *node;

	if (!bpf_core_field_exists(mm->mm_rb))
		return 0;
	node = BPF_CORE_READ(mm, mm_rb.rb_node);
#pragma clang loop unroll(disable)
	for (int i = 0; i < AREAS_DEPTH && node; i++) {
		__u64 end;

		vma = (void *)node - bpf_core_field_offset(vma->vm_rb);
		end = BPF_CORE_READ(vma, vm_end);
		if (end <= addr)
			node = BPF_CORE_READ(node, rb_right);
		else if (BPF_CORE_READ(vma, vm_start) <= addr)
			return end;
		else
			node = BPF_CORE_READ(node, rb_left);
	}
	return 0;
}

/*
 * Return the end of the live stack that contains sp, or 0. This version serves the plain programs.
 * The flag says how the end was found.
 */
static __always_inline __u64 top_plain(struct task_struct *task, __u64 sp, __u64 fsbase,
				       struct capture_counters *count, __u16 *flags)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	__u64 start_stack = BPF_CORE_READ(mm, start_stack), hi, end;

	end = signal_top(task, sp, count, flags, true);
	if (end)
		return end;
	hi = area_end((__u64)mm, sp);
	if (!hi)
		return top_guess(sp, fsbase, start_stack, count, flags);
	/* As in top_find, except that nothing is cached. */
	if (start_stack >= sp && start_stack < hi) {
		add(&count->top_start, 1);
		*flags |= CAPTURE_TOP_START;
		return start_stack + 8;
	}
	end = go_top(sp, fsbase, start_stack, count, flags);
	if (end)
		return end;
	if (fsbase > sp && fsbase < hi) {
		add(&count->top_tls, 1);
		*flags |= CAPTURE_TOP_TLS;
		return fsbase;
	}
	add(&count->top_vma, 1);
	*flags |= CAPTURE_TOP_VMA;
	return hi;
}

/*
 * Return the end of the live stack that contains sp, or 0. The flag says how the end was found.
 * Results are cached in top where that is safe.
 */
static __always_inline __u64 top_find(struct task_struct *task, struct mm_struct *mm,
				      struct top *top, __u64 sp, __u64 fsbase,
				      struct capture_counters *count, __u16 *flags)
{
	__u64 start_stack = mm->start_stack, end;
	struct area area = {};

	if (sp >= top->lo && sp < top->hi) {
		add(&count->top_cached, 1);
		*flags |= CAPTURE_TOP_CACHED;
		return top->hi;
	}
	if (top->go) {
		end = go_top(sp, fsbase, start_stack, count, flags);
		if (end)
			return end;
	}
	if (sp >= top->other_lo && sp < top->other_hi) {
		add(&count->top_cached, 1);
		*flags |= CAPTURE_TOP_CACHED | CAPTURE_TOP_VMA;
		return top->other_hi;
	}
	end = signal_top(task, sp, count, flags, false);
	if (end)
		return end;
	/*
	 * bpf_find_vma costs 9 us of deferred work to unlock the mm, so its result is cached where
	 * possible.
	 */
	add(&count->find_vma, 1);
	if (bpf_find_vma(task, sp, area_found, &area, 0)) {
		/*
		 * Usually the thread itself holds the lock, inside mmap or execve. Use a guess
		 * without the VMA, and do not cache it.
		 */
		return top_guess(sp, fsbase, start_stack, count, flags);
	}
	/*
	 * All Go stacks may lie in one VMA, so do not cache its bounds; only note that this is a Go
	 * thread.
	 */
	end = go_top(sp, fsbase, start_stack, count, flags);
	if (end) {
		top->go = top->changed = 1;
		return end;
	}
	if (start_stack >= sp && start_stack < area.hi) {
		/* start_stack points to argc; the arguments and the environment lie above it. */
		end = start_stack + 8;
		add(&count->top_start, 1);
		*flags |= CAPTURE_TOP_START;
	} else if (fsbase > sp && fsbase < area.hi) {
		end = fsbase;
		add(&count->top_tls, 1);
		*flags |= CAPTURE_TOP_TLS;
	} else {
		top->other_lo = area.lo;
		top->other_hi = area.hi;
		top->changed = 1;
		add(&count->top_vma, 1);
		*flags |= CAPTURE_TOP_VMA;
		return area.hi;
	}
	top->lo = area.lo;
	top->hi = end;
	top->changed = 1;
	return end;
}

/* ---- copying ------------------------------------------------------------------ */

/*
 * Copy the i-th page of the stack that the head describes. If the page cannot be read, mark it as a
 * hole. Return 1 if the stack has no i-th page, else 0.
 */
static __always_inline long copy_page(volatile struct front *front, __u32 i)
{
	volatile struct capture_head *head = (void *)(front + 1);
	__u64 from = head->regs[7] - CAPTURE_RED_ZONE, end = from + head->stack_len;
	__u64 addr = (from & ~(__u64)(CAPTURE_PAGE - 1)) + (__u64)i * CAPTURE_PAGE;
	__u64 offset, n;

	if (addr >= end)
		return 1;
	if (addr < from)
		addr = from;
	offset = addr - from;
	n = CAPTURE_PAGE - (addr & (CAPTURE_PAGE - 1));
	if (n > end - addr)
		n = end - addr;
	barrier_var(offset);
	barrier_var(n);
	if (offset > stack_max || n > CAPTURE_PAGE)
		return 1;
	if (bpf_probe_read_user((__u8 *)front + SCRATCH_HEAD + offset, n, (void *)addr))
		front->holes.pages[i >> 6] |= 1ull << (i & 63);
	return 0;
}

/*
 * Copy the stack that the head in this CPU's scratch buffer describes, page by page. Pages that are
 * not present (never touched, or swapped out) become holes.
 *
 * The verifier must be able to prove that the loop ends. A global function is verified once, not
 * once for each path that leads to it. A loop that reads its bounds from memory in every iteration
 * has the same state in each iteration, except for i.
 */
__attribute__((noinline)) int copy_pages_plain(__u32 place)
{
	volatile struct front *front = bpf_map_lookup_elem(&scratch, &place);

	if (!front)
		return 0;
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < CAPTURE_PAGES_MAX; i++)
		if (copy_page(front, i))
			break;
	return 0;
}

/* Callback of bpf_loop: copy page i; return 1 to stop. */
static long copy_next_page(__u32 i, __u32 *place)
{
	volatile struct front *front = bpf_map_lookup_elem(&scratch, place);

	return front && i < CAPTURE_PAGES_MAX ? copy_page(front, i) : 1;
}

/*
 * Copy the stack page by page, as copy_pages_plain does. With bpf_loop the kernel guarantees that
 * the loop ends; the plain loop above is most of the work of the verifier.
 */
static __always_inline void copy_pages(struct front *front, __u32 place, bool plain)
{
	__builtin_memset(&front->holes, 0, sizeof(front->holes));
	if (plain)
		copy_pages_plain(place);
	else
		bpf_loop(CAPTURE_PAGES_MAX, copy_next_page, &place, 0);
}

/*
 * Copy the live stack and set stack_len and the flags of the head. The flags are in the head, not
 * in a register: each value in a register would be a separate state for the verifier.
 */
static __always_inline void copy_stack(struct front *front, __u32 place, struct task_struct *task,
				       struct mm_struct *mm, __u64 fsbase,
				       struct capture_counters *count, bool plain)
{
	struct capture_head *head = (void *)(front + 1);
	__u8 *bytes = (__u8 *)front + SCRATCH_HEAD;
	__u64 sp = head->regs[7], from = sp - CAPTURE_RED_ZONE, size;
	__u64 hi = plain ? top_plain(task, sp, fsbase, count, &head->flags)
			 : top_find(task, mm, &front->top, sp, fsbase, count, &head->flags);

	if (!hi) {
		size = CAPTURE_RED_ZONE + 4 * CAPTURE_PAGE;
		head->flags |= CAPTURE_CUT;
	} else {
		size = hi - from;
	}
	if (size > stack_max) {
		size = stack_max;
		head->flags |= CAPTURE_CUT;
	}
	/* The range must not wrap around the end of the address space, whatever sp is. */
	if (from + size < from)
		size = 0;
	barrier_var(size);
	if (size > stack_max)
		size = stack_max;
	head->stack_len = size;
	/* bpf_probe_read_user copies all or nothing: one missing page fails the whole copy. */
	if (bpf_probe_read_user(bytes, size, (void *)from)) {
		copy_pages(front, place, plain);
		head->flags |= CAPTURE_HOLES;
	}
}

/* Copy a second stack, from address from to end. If end is 0, the end is unknown. */
static __always_inline void copy_second(struct front *front, __u64 from, __u64 end)
{
	struct capture_head *head = (void *)(front + 1);
	__u8 *bytes = (__u8 *)front + SCRATCH_HEAD;
	__u64 n = end - from, at = (head->stack_len + 7) & ~7u;

	if (!end || n > CAPTURE_INTERRUPTED_MAX) {
		n = CAPTURE_INTERRUPTED_MAX;
		head->flags |= CAPTURE_CUT;
	}
	barrier_var(at);
	barrier_var(n);
	if (at > stack_max + 8 || n > CAPTURE_INTERRUPTED_MAX)
		return;
	if (bpf_probe_read_user(bytes + at + 8, n, (void *)from)) {
		head->flags |= CAPTURE_CUT;
		return;
	}
	*(__u64 *)(bytes + at) = from;
	head->interrupted_len = n;
}

/*
 * Size of struct rt_sigframe: return address, ucontext, siginfo. A signal handler on an alternate
 * stack has its signal frame at the top of that stack (arch/x86/kernel/signal.c, get_sigframe). The
 * frame has the registers of the interrupted code.
 */
#define SIGFRAME_SIZE 440

/*
 * Copy the stack that a signal handler on the alternate stack interrupted. Nothing is copied if the
 * signal frame is not where it is expected.
 */
static __always_inline void copy_interrupted(struct front *front, struct task_struct *task,
					     __u64 fsbase, bool plain)
{
	const struct top *top = &front->top;
	__u64 base = GET(plain, task, sas_ss_sp), size = GET(plain, task, sas_ss_size);
	__u64 ucontext, sp = 0, g = 0, end = 0, start_stack;
	struct {
		__u64 base;
		__u64 flags;
		__u64 size;
	} stack = {};

	ucontext = ((base + size - xstate_size) & ~63ull) - SIGFRAME_SIZE;
	ucontext &= ~15ull;
	/*
	 * uc_stack repeats the bounds of the alternate stack; if it does, this is the signal frame.
	 * gregs[REG_RSP] is at offset 160.
	 */
	if (!xstate_size || ucontext < base ||
	    bpf_probe_read_user(&stack, sizeof(stack), (void *)(ucontext + 16)) ||
	    stack.base != base || stack.size != size ||
	    bpf_probe_read_user(&sp, sizeof(sp), (void *)(ucontext + 160)))
		return;
	start_stack = BPF_CORE_READ(task, mm, start_stack);
	if (!plain && sp >= top->lo && sp < top->hi)
		end = top->hi;
	else if (start_stack >= sp && start_stack - sp < STACK_LIKELY)
		end = start_stack + 8;
	else if (fsbase > sp && fsbase - sp < STACK_LIKELY)
		end = fsbase;
	else if (!bpf_probe_read_user(&g, sizeof(g), (void *)(ucontext + 88)))
		end = goroutine_top(g, sp); /* Go's code also has g in r14: gregs[REG_R14], at 88 */
	copy_second(front, sp - CAPTURE_RED_ZONE, end);
}

/* Copy the goroutine's stack as the second stack, while sp is on the thread's own stack. */
static __always_inline void copy_left(struct front *front, __u64 fsbase)
{
	struct capture_head *head = (void *)(front + 1);
	__u64 end = 0, from = left_goroutine(head, fsbase, &end);

	head->flags &= ~LEFT_GOROUTINE;
	if (from)
		copy_second(front, from, end);
}

/* Store the registers by DWARF number (psABI figure 3.36). */
static __always_inline void regs_to_dwarf(struct capture_head *head, const struct pt_regs *regs)
{
	head->regs[0] = regs->rax;
	head->regs[1] = regs->rdx;
	head->regs[2] = regs->rcx;
	head->regs[3] = regs->rbx;
	head->regs[4] = regs->rsi;
	head->regs[5] = regs->rdi;
	head->regs[6] = regs->rbp;
	head->regs[7] = regs->rsp;
	head->regs[8] = regs->r8;
	head->regs[9] = regs->r9;
	head->regs[10] = regs->r10;
	head->regs[11] = regs->r11;
	head->regs[12] = regs->r12;
	head->regs[13] = regs->r13;
	head->regs[14] = regs->r14;
	head->regs[15] = regs->r15;
	head->regs[16] = regs->rip;
}

static __always_inline struct task_struct *current_task(bool plain)
{
	return plain ? (void *)bpf_get_current_task() : bpf_get_current_task_btf();
}

#define KERNEL_STACK (16u << 10) /* THREAD_SIZE, except for kernels that check each memory access */
#define FRED_PADDING 16		 /* above the registers, in kernels built with FRED (6.9) */
#define USER_DS	     0x2b

/*
 * Read the user registers of a thread; return false on failure. The kernel stores the registers
 * with which the thread entered it at the beginning (the highest addresses) of the thread's kernel
 * stack.
 */
static __always_inline bool user_regs(struct task_struct *task, struct pt_regs *regs, bool plain)
{
	void *end;

	if (!plain)
		return !bpf_probe_read_kernel(regs, sizeof(*regs), (void *)bpf_task_pt_regs(task));
	end = BPF_CORE_READ(task, stack) + KERNEL_STACK;
	if (bpf_probe_read_kernel(regs, sizeof(*regs), end - sizeof(*regs)))
		return false;
	return (regs->ss & 0xfff) == USER_DS ||
	       !bpf_probe_read_kernel(regs, sizeof(*regs), end - FRED_PADDING - sizeof(*regs));
}

/* Return the pid of a process in its own pid namespace, that is, the pid that it sees itself. */
static __always_inline __u32 ns_pid(struct task_struct *leader)
{
	struct pid *pid = BPF_CORE_READ(leader, thread_pid);
	__u64 level = BPF_CORE_READ(pid, level);
	int nr = 0;

	bpf_core_read(&nr, sizeof(nr),
		      (void *)pid + bpf_core_field_offset(pid->numbers) +
			      level * bpf_core_type_size(struct upid));
	return (__u32)nr;
}

/* Read the start time of a thread's process, and its pid in its own pid namespace. */
static __always_inline void name_process(struct task_struct *task, __u64 *start_ns, __u32 *nr)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	*start_ns = BPF_CORE_READ(leader, start_boottime);
	*nr = ns_pid(leader);
}

/*
 * Copy the cached struct top of a thread into the scratch buffer. Start with an empty one if none
 * is cached, or if the thread has executed another program since.
 */
static __always_inline void top_get(struct top *top, struct task_struct *task, struct mm_struct *mm)
{
	struct top *kept = bpf_task_storage_get(&tops, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 start_stack = mm ? mm->start_stack : 0;

	if (kept && kept->process_start_ns && kept->mm == (__u64)mm &&
	    kept->start_stack == start_stack) {
		*top = *kept;
		return;
	}
	__builtin_memset(top, 0, sizeof(*top));
	top->mm = (__u64)mm;
	top->start_stack = start_stack;
	name_process(task, &top->process_start_ns, &top->ns_pid);
	top->changed = 1;
}

/* Write the struct top back to the cache if it was modified. */
static __always_inline void top_put(struct top *top, struct task_struct *task)
{
	struct top *kept;

	if (!top->changed)
		return;
	kept = bpf_task_storage_get(&tops, task, 0, 0);
	top->changed = 0;
	if (kept)
		*kept = *top;
}

/*
 * Return whether the process of task is selected. If its entry has no start time yet, the entry
 * gets the start time of this process. Later the start time distinguishes this process from another
 * one with the same pid.
 */
static __always_inline bool wanted(__u32 pid, struct task_struct *task)
{
	struct capture_process *process = bpf_map_lookup_elem(&processes, &pid);
	__u64 start_ns;

	if (!process)
		return false;
	start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
	if (!process->start_ns)
		process->start_ns = start_ns;
	return process->start_ns == start_ns;
}

/*
 * Return the id of the cgroup at that level that contains the current thread, or 0. Tracing
 * programs have the helper bpf_get_current_ancestor_cgroup_id since Linux 5.15; older kernels have
 * the array ancestor_ids.
 */
static __always_inline __u64 ancestor_cgroup(int level)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct cgroup *cgroup = NULL;
	__u64 id = 0;

	if (!bpf_core_field_exists(cgroup->ancestor_ids))
		return bpf_get_current_ancestor_cgroup_id(level);
	cgroup = BPF_CORE_READ(task, cgroups, dfl_cgrp);
	if (level >= 0 && level <= BPF_CORE_READ(cgroup, level))
		bpf_core_read(&id, sizeof(id),
			      (void *)cgroup + bpf_core_field_offset(cgroup->ancestor_ids) +
				      (__u64)level * sizeof(id));
	return id;
}

/* Return whether the current thread passes the filters. If not, count the reason. */
static __always_inline bool passes(__u64 id, struct task_struct *task, __u32 cpu,
				   struct capture_counters *count)
{
	__u32 tid = (__u32)id, uid, word;
	struct comm comm = {};

	if (id >> 32 == self_pid) {
		add(&count->filtered_self, 1);
		return false;
	}
	if (filters & CAPTURE_FILTER_TASK && !bpf_map_lookup_elem(&threads, &tid) &&
	    !wanted(id >> 32, task)) {
		add(&count->filtered_process, 1);
		return false;
	}
	/*
	 * The word index gets a bounds check of its own: the verifier of Linux 5.10 forgets the
	 * bounds of cpu.
	 */
	word = cpu / 64;
	barrier_var(word);
	if (filters & CAPTURE_FILTER_CPU &&
	    (word >= CAPTURE_CPUS_MAX / 64 || !(wanted_cpus[word] >> (cpu & 63) & 1)))
		goto other;
	if (filters & CAPTURE_FILTER_COMM) {
		bpf_get_current_comm(comm.name, sizeof(comm.name));
		if (!bpf_map_lookup_elem(&comms, &comm))
			goto other;
	}
	uid = (__u32)bpf_get_current_uid_gid();
	if (filters & CAPTURE_FILTER_UID && !bpf_map_lookup_elem(&uids, &uid))
		goto other;
	if (filters & CAPTURE_FILTER_CGROUP) {
		bool within = false;

#pragma clang loop unroll(disable)
		for (__u32 i = 0; i < CAPTURE_CGROUPS_MAX; i++) {
			__u64 cgroup = wanted_cgroups[i].id;

			if (!cgroup)
				break;
			if (ancestor_cgroup((int)wanted_cgroups[i].level) == cgroup) {
				within = true;
				break;
			}
		}
		if (!within)
			goto other;
	}
	return true;
other:
	add(&count->filtered_other, 1);
	return false;
}

struct tick { /* why a program runs, and what it captures */
	__u32 event;
	bool paced; /* paced_period decides whether to sample */
	enum scratch_kind kind;
	bool user; /* the thread was in user mode */
	__u32 flags;
	__u32 skip; /* innermost kernel frames to leave out, because they belong to the capture */
	__u64 period;
	/*
	 * For allocations: capture the thread as it was when it called the function that has just
	 * returned. called_ip is 0 otherwise.
	 */
	__u64 called_ip, called_sp, return_ip;
	struct capture_alloc *alloc; /* or NULL */
};

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

/*
 * Write the state of the current thread to the ring. Return the time of the record, or 0 if no
 * record was written. Each call counts exactly one outcome, except fired, which the caller counts.
 */
static __always_inline __u64 capture(void *ctx, const struct tick *tick,
				     struct capture_counters *count, bool plain)
{
	struct task_struct *task = current_task(plain);
	/*
	 * Read mm before any branch. At each pointer from one kernel type to another, the verifier
	 * searches the names of all types, which takes 0.3 ms for each path that leads here.
	 */
	struct mm_struct *mm = GET(plain, task, mm);
	__u64 id = bpf_get_current_pid_tgid(), size, fsbase;
	__u64 period = tick->period;
	__u32 cpu = bpf_get_smp_processor_id(), place;
	struct capture_head *head;
	struct front *front;
	struct pt_regs regs;
	__u8 *bytes;
	long n;

	if (!id) {
		add(&count->filtered_idle, 1);
		return 0;
	}
	if (!passes(id, task, cpu, count))
		return 0;
	if (tick->flags & CAPTURE_WAITS)
		add(&count->waits, 1);
	if (tick->paced) {
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
	head = (void *)(front + 1);
	bytes = (__u8 *)front + SCRATCH_HEAD;
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
	head->flags = tick->flags;
	if (tick->user)
		head->flags |= CAPTURE_USER_HIT;

	/*
	 * Some threads have no valid user state. Kernel threads have none. I/O workers have a stale
	 * copy of their creator's. An exiting thread has released its memory. A thread inside
	 * execve has its new memory, but still the old registers until start_code is set.
	 */
	if (plain) {
		name_process(task, &head->process_start_ns, &head->ns_pid);
	} else {
		top_get(&front->top, task, mm);
		head->process_start_ns = front->top.process_start_ns;
		head->ns_pid = front->top.ns_pid;
	}
	if (!(GET(plain, task, flags) & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER)) && mm &&
	    GET(plain, mm, start_code)) {
		if (!user_regs(task, &regs, plain)) {
			add(&count->unreadable, 1);
			return 0;
		}
		head->flags |= CAPTURE_HAS_USER;
		if ((regs.cs & 0xffff) == 0x23) /* __USER32_CS */
			head->flags |= CAPTURE_COMPAT;
		regs_to_dwarf(head, &regs);
		if (tick->called_ip) {
			head->regs[16] = tick->called_ip;
			head->regs[7] = tick->called_sp;
		}
		fsbase = GET(plain, task, thread.fsbase);
		copy_stack(front, place, task, mm, fsbase, count, plain);
		/*
		 * The kernel replaced the return address on the stack to see the function return;
		 * restore it in the copy.
		 */
		if (tick->called_ip && head->stack_len > CAPTURE_RED_ZONE + 8)
			*(__u64 *)(bytes + CAPTURE_RED_ZONE) = tick->return_ip;
		if (head->flags & CAPTURE_TOP_SIGNAL)
			copy_interrupted(front, task, fsbase, plain);
		else if (head->flags & LEFT_GOROUTINE)
			copy_left(front, fsbase);
	} else {
		__builtin_memset(head->regs, 0, sizeof(head->regs));
	}
	if (!plain)
		top_put(&front->top, task);

	size = (head->stack_len + 7) & ~7u;
	if (head->interrupted_len)
		size += 8 + ((head->interrupted_len + 7) & ~7u);
	if (!tick->user) {
		barrier_var(size);
		if (size > STACKS_MAX)
			size = STACKS_MAX;
		n = bpf_get_stack(ctx, bytes + size, CAPTURE_KERNEL_MAX, tick->skip);
		if (n > 0) {
			head->kernel_len = n;
			size += n;
		}
	}
	if (head->flags & CAPTURE_HOLES) {
		barrier_var(size);
		if (size > STACKS_MAX + CAPTURE_KERNEL_MAX)
			size = STACKS_MAX + CAPTURE_KERNEL_MAX;
		__builtin_memcpy(bytes + size, &front->holes, sizeof(front->holes));
		size += sizeof(front->holes);
	}
	if (tick->alloc) {
		barrier_var(size);
		if (size > STACKS_MAX + CAPTURE_KERNEL_MAX + sizeof(front->holes))
			size = STACKS_MAX + CAPTURE_KERNEL_MAX + sizeof(front->holes);
		head->flags |= CAPTURE_ALLOC;
		__builtin_memcpy(bytes + size, tick->alloc, sizeof(*tick->alloc));
		size += sizeof(*tick->alloc);
	}
	size += CAPTURE_HEAD_SIZE;
	barrier_var(size);
	if (size > CAPTURE_HEAD_SIZE + stack_max + SCRATCH_TAIL)
		size = CAPTURE_HEAD_SIZE + stack_max + SCRATCH_TAIL;
	if (put(head, size, ring_reserve)) {
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

/* ---- what brings a program to run ----------------------------------------------- */

/*
 * Handle a perf event: a clock, a counter or a software event. event is its number, which is the
 * attach cookie.
 */
static __always_inline int on_sample(struct bpf_perf_event_data *ctx, __u32 event, bool plain)
{
	struct capture_counters *count = counters_here();
	const struct tick tick = { .event = event,
				   .paced = event < CAPTURE_EVENTS_MAX && paced[event],
				   .kind = SCRATCH_EVENT,
				   .user = (ctx->regs.cs & 3) == 3,
				   .period = ctx->sample_period };

	if (!count)
		return 0;
	add(&count->fired, 1);
	(void)capture(ctx, &tick, count, plain);
	return 0;
}

SEC("perf_event")
int capture_sample(struct bpf_perf_event_data *ctx)
{
	return on_sample(ctx, bpf_get_attach_cookie(ctx), false);
}

SEC("perf_event")
int plain_sample(struct bpf_perf_event_data *ctx)
{
	return on_sample(ctx, plain_event, true);
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
static __always_inline int on_tracepoint(void *ctx, __u32 event, bool plain)
{
	struct capture_counters *count = counters_here();
	struct tick tick = { .event = event, .kind = SCRATCH_EVENT };

	if (!count)
		return 0;
	add(&count->fired, 1);
	if (due(&tick, count))
		(void)capture(ctx, &tick, count, plain);
	return 0;
}

SEC("tracepoint")
int capture_tracepoint(void *ctx)
{
	return on_tracepoint(ctx, bpf_get_attach_cookie(ctx), false);
}

SEC("tracepoint")
int plain_tracepoints(void *ctx)
{
	return on_tracepoint(ctx, plain_tracepoint, true);
}

/* Handle an occurrence of a uprobe. */
static __always_inline int on_probe(struct pt_regs *ctx, __u32 event, bool plain)
{
	struct capture_counters *count = counters_here();
	struct tick tick = { .event = event, .kind = SCRATCH_PROBE, .user = true };
	__u32 *busy;

	if (!count)
		return 0;
	add(&count->fired, 1);
	if (!due(&tick, count))
		return 0;
	busy = probe_begins(count);
	if (!busy)
		return 0;
	(void)capture(ctx, &tick, count, plain);
	probe_ends(busy);
	return 0;
}

SEC("uprobe")
int capture_probe(struct pt_regs *ctx)
{
	return on_probe(ctx, bpf_get_attach_cookie(ctx), false);
}

SEC("uprobe")
int plain_probes(struct pt_regs *ctx)
{
	return on_probe(ctx, plain_probe, true);
}

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
	waiting = bpf_map_lookup_elem(&waits, &tid);
	if (!waiting)
		return;
	since_ns = waiting->since_ns;
	time_ns = bpf_ktime_get_ns();
	if (leaves) {
		ran_ns = BPF_CORE_READ(task, se.sum_exec_runtime) - waiting->ran_ns;
		add(&count->wakes_unseen, 1);
	}
	(void)bpf_map_delete_elem(&waits, &tid);
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
				     struct task_struct *next, bool plain)
{
	struct capture_counters *count = counters_here();
	struct tick tick = { .event = off_cpu_event,
			     .kind = SCRATCH_SWITCH,
			     .skip = 2, /* frames of this program and of its caller */
			     .flags = CAPTURE_WAITS };
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
	if (plain && bpf_get_stack(ctx, ips, sizeof(ips), 0) == sizeof(ips) && ips[0] == ips[1])
		tick.skip = 3;
	waiting.since_ns = capture(ctx, &tick, count, plain);
	if (!waiting.since_ns)
		return 0;
	waiting.ran_ns = BPF_CORE_READ(prev, se.sum_exec_runtime);
	tid = BPF_CORE_READ(prev, pid);
	/* The table is full: nobody will see this thread wake up, so report that now. */
	if (bpf_map_update_elem(&waits, &tid, &waiting, BPF_ANY))
		tell_end(tid, waiting.since_ns, 0, count);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(capture_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(ctx, preempt, prev, next, false);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(plain_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(ctx, preempt, prev, next, true);
}

#include "bpf/alloc.h"

/*
 * ---- selected processes: their children are selected, too ----------------------
 *
 * These are raw tracepoints. For programs that know the types of their arguments (tp_btf), libbpf
 * reads the types of the whole kernel.
 */

/*
 * Add a child of a selected process. This runs before the child does, so its first sample passes.
 */
SEC("raw_tp/sched_process_fork")
int BPF_PROG(follow_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_pid = BPF_CORE_READ(parent, tgid), child_pid = BPF_CORE_READ(child, tgid);
	struct capture_process process = { .start_ns = BPF_CORE_READ(child, start_boottime) };
	struct capture_counters *count;

	if (parent_pid == child_pid || !wanted(parent_pid, parent))
		return 0;
	if (bpf_map_update_elem(&processes, &child_pid, &process, BPF_ANY)) {
		count = counters_here();
		if (count)
			add(&count->pids_overflow, 1);
	}
	return 0;
}

/* When the last thread of a selected process exits, mark the process as dead. */
SEC("raw_tp/sched_process_exit")
int BPF_PROG(follow_exit, struct task_struct *task)
{
	__u32 pid = BPF_CORE_READ(task, tgid);
	struct capture_process *process;

	if (BPF_CORE_READ(task, signal, live.counter))
		return 0;
	process = bpf_map_lookup_elem(&processes, &pid);
	if (process)
		process->dead = 1;
	return 0;
}

/*
 * Remove a process from the table. The kernel frees the task long after the exit, when nothing runs
 * in the process any more.
 */
SEC("raw_tp/sched_process_free")
int BPF_PROG(follow_free, struct task_struct *task)
{
	__u32 pid = BPF_CORE_READ(task, tgid);
	struct capture_process *process;

	if (pid != (__u32)BPF_CORE_READ(task, pid))
		return 0;
	process = bpf_map_lookup_elem(&processes, &pid);
	/* The pid may already belong to another process. */
	if (process && (process->start_ns == BPF_CORE_READ(task, start_boottime)))
		bpf_map_delete_elem(&processes, &pid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

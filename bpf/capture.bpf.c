// SPDX-License-Identifier: GPL-2.0-only
/*
 * bpf/capture.bpf.c: copies a thread's registers and live stack at every tick
 * of a per-CPU clock, and counts what it could not copy.  It never walks: what
 * the bytes mean is decided in the agent.
 *
 * No page fault can be taken here.  The kernel runs programs on perf events and
 * tracepoints one at a time on each CPU (bpf_prog_active), so one scratch buffer
 * serves them; one of them may come in the middle of the program on
 * sched_switch, which has a scratch of its own; and a program on a uprobe may lose
 * the CPU to another thread that meets the probe, so that its scratch is locked.
 *
 * Each program that captures is there twice.  The plain one of an old kernel lacks
 * bpf_find_vma, bpf_loop, bpf_task_pt_regs, attach cookies (so that of each kind it
 * serves one event, and is loaded again for others) and what is kept with a task; the
 * agent loads those that the kernel takes.  A flag for the verifier to see would not do:
 * before 5.13 the mere address of a callback in code that never runs makes it refuse a
 * program.
 */
#include "schema/capture.h"
#include "bpf/kernel.h"

/* Set by the agent before loading; constants to the verifier. */
const volatile __u32 stack_max = CAPTURE_STACK_DEFAULT;
const volatile __u64 wake_bytes = 1 << 20; /* the reader is woken once so much is waiting */
const volatile __u32 self_pid = 0;
const volatile __u32 filters = 0; /* enum capture_filter */
const volatile struct capture_cgroup wanted_cgroups[CAPTURE_CGROUPS_MAX] = {};
const volatile __u64 wanted_cpus[CAPTURE_CPUS_MAX / 64] = {};
const volatile __u32 every[CAPTURE_EVENTS_MAX] = {}; /* of tracepoints and probes: one of so many */
const volatile __u8
	paced[CAPTURE_EVENTS_MAX] = {};	 /* of others: each is looked at, few are sampled */
const volatile __u32 pace_samples = 400; /* of a paced event, in a second on one CPU, or few more */
const volatile __u32 plain_event = 0, plain_tracepoint = 0, plain_probe = 0; /* without cookies */
const volatile __u32 n_scratch = 1; /* CPUs that have a scratch */
const volatile __u32 off_cpu_event = 0;
/* Bytes of the ring that samples leave free for the small records that belong to earlier ones. */
const volatile __u64 ring_reserve = 0;
const volatile __u64 ring_size = 0;
const volatile __u32 xstate_size = 0; /* of the FPU state in a signal frame; 0: not known */
const volatile __u32 alloc_event = 0;
const volatile __u64 alloc_interval = 1; /* bytes; 1: every allocation */

/* The usual limit of a stack, of the first thread as of others. */
#define STACK_LIKELY (8u << 20)

/*
 * The scratch of a CPU: a struct front, then the record with room for stack_max bytes of a
 * stack, an interrupted one and what follows; the last piece of a copy may be checked as a whole
 * page.
 */
#define SCRATCH_FRONT 104u
#define SCRATCH_HEAD  (SCRATCH_FRONT + CAPTURE_HEAD_SIZE)
#define SCRATCH_TAIL  (CAPTURE_INTERRUPTED_MAX + CAPTURE_PAGE)
#define STACKS_MAX    (stack_max + CAPTURE_INTERRUPTED_MAX + 24) /* both, and the address */
_Static_assert(CAPTURE_PAGE >= 24 + CAPTURE_KERNEL_MAX + sizeof(struct capture_holes) +
				       sizeof(struct capture_alloc),
	       "what follows the stacks lies in the tail, too");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

/*
 * One entry a CPU for each kind of program in use; not a per-CPU map, whose
 * values may not pass 32 KiB.  The agent sets both sizes to fit the machine, the
 * events and stack_max.
 */
enum scratch_kind { SCRATCH_EVENT, SCRATCH_SWITCH, SCRATCH_PROBE };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, SCRATCH_HEAD + CAPTURE_STACK_DEFAULT + SCRATCH_TAIL);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_counters);
} counters SEC(".maps");

/*
 * What is found once for a thread.  The ends of its stacks: [lo, hi) holds sp, hi is the live top.
 * Where a stack is not the thread's own (coroutine, alternate signal stack), hi is
 * the end of its memory area.  That may change behind our back; then a copy is a
 * little too long or too short, which holes and the cut flag tell.
 */
struct top {
	__u64 lo, hi;
	__u64 other_lo, other_hi;
	__u64 process_start_ns; /* 0: not looked for yet */
	__u64 mm;		/* an exec gives the thread another */
	__u64 start_stack;	/* … that may lie where the old one was */
	__u32 ns_pid;
	__u16 go;      /* the thread ran a goroutine: ask for its bounds first */
	__u16 changed; /* in the scratch: since it was copied there */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct top);
} tops SEC(".maps");

/*
 * Where a thread's struct top is worked on: a pointer into the scratch is the same whether there was
 * one or not, so that what follows is verified once.
 */
struct front {
	struct capture_holes holes;
	struct top top;
};
_Static_assert(sizeof(struct front) == SCRATCH_FRONT, "the record begins behind it");

/*
 * The threads that wait, by tid, where the beginning was captured.  No task storage: its helper
 * may fail for a moment, and the agent reads at the end which threads still wait.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_waiting);
} waits SEC(".maps");

/* Of events that are wanted once in a while: how often they came. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CAPTURE_EVENTS_MAX);
	__type(key, __u32);
	__type(value, struct capture_pace);
} paces SEC(".maps");

/* How many programs on probes want the scratch of their CPU: one has it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} probing SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8);
} threads SEC(".maps");

struct comm {
	char name[CAPTURE_COMM];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct comm);
	__type(value, __u8);
} comms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8);
} uids SEC(".maps");

/* The processes asked for and their descendants. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct capture_process);
} processes SEC(".maps");

static __always_inline struct capture_counters *counters_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

/* One program may come in the middle of another on its CPU. */
static __always_inline void add(__u64 *counter, __u64 n)
{
	__sync_fetch_and_add(counter, n);
}

/* The agent clears it before it reads; that it was not seen in time is what its own clock is for. */
__u32 wake_asked = 0;

/* Waking costs an interrupt, more than a sample: it is asked for once, however long that takes. */
static __always_inline long put(void *record, __u64 size, __u64 reserve)
{
	__u64 waiting = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
	bool wake = !wake_asked && waiting >= wake_bytes;
	long err = -1;

	if (waiting + size + reserve <= ring_size)
		err = bpf_ringbuf_output(&ring, record, size,
					 wake ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);

	/* A record that found no room woke nobody. */
	if (wake && !err)
		wake_asked = 1;
	return err;
}

/*
 * A field of the kernel's: a load that the verifier knows to be safe, where the pointer comes from
 * bpf_get_current_task_btf; it costs a tenth of a call.
 */
#define GET(plain, pointer, field) ((plain) ? BPF_CORE_READ(pointer, field) : (pointer)->field)

/* ---- how far the live stack reaches ---------------------------------------- */

struct area {
	__u64 lo, hi;
};

/* A goroutine's stack of which all is copied where nobody knows from where on it is live. */
#define LEFT_SMALL (4 * CAPTURE_PAGE)

static long area_found(struct task_struct *task, struct vm_area_struct *vma, struct area *area)
{
	area->lo = BPF_CORE_READ(vma, vm_start);
	area->hi = BPF_CORE_READ(vma, vm_end);
	return 0;
}

/* The end of the stack of goroutine g, which begins with its bounds (runtime2.go: g.stack), if sp lies in it. */
static __always_inline __u64 goroutine_top(__u64 g, __u64 sp)
{
	__u64 bounds[2] = {};

	if (!g || bpf_probe_read_user(bounds, sizeof(bounds), (void *)g))
		return 0;
	/* Go's own limit for one stack is 1 GB. */
	if (sp < bounds[0] || sp >= bounds[1] || bounds[1] - bounds[0] > 1ull << 30)
		return 0;
	return bounds[1];
}

/* Go's g begins with its stack's bounds; there it names its thread, whose first word is its g0. */
#define GO_G_M 0x30

/* What lies above the stack of a g0 that is not Go's own: C's start of a thread, or main's. */
#define GO_NEAR 16384

/* In a head's flags until the goroutine's stack was copied as well: sp is on its thread's own. */
#define LEFT_GOROUTINE (1u << 15)
_Static_assert(CAPTURE_ALLOC < LEFT_GOROUTINE, "it is no other flag's");

/*
 * Where the goroutine's stack ends that sp lies in, or that of the thread's own, g0: Go on x86-64
 * Linux keeps the running goroutine's g in the thread's TLS word at fs:-8.
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
	/* The bounds of a stack that Go did not make are those of what Go runs on it. */
	if (start_stack - end < GO_NEAR)
		return start_stack + 8;
	return fsbase - end < GO_NEAR ? fsbase : end;
}

/*
 * Go calls the vDSO and C on its thread's own stack, while g is still the goroutine's: from
 * where on, and to where, that one's stack is to be copied, too; 0: that is not known.  The
 * frame pointer stays in it, and the sp it was left with in r12; what is called may put either
 * away, so that of a small stack all is taken.
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

/* The alternate signal stack's, if sp lies in that. */
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
 * What is likely without knowing the memory areas.  A goroutine's bounds are checked
 * against sp, so that no other program is mistaken for one of Go's.
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

/* A tree of the 65,530 memory areas that a process may have is no deeper than twice their logarithm. */
#define AREAS_DEPTH 34

/*
 * Where the memory area ends that addr lies in, or 0: by the tree that kernels without
 * bpf_find_vma keep them in.  No lock is held: while the tree changes the answer may be 0.
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
	/* As in top_find, but that nothing is kept. */
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

/* The end of the live stack that sp lies in, or 0; the flag says where from. */
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
	/* Costs 9 us of deferred work to unlock the mm, so its answer is kept where it can be. */
	add(&count->find_vma, 1);
	if (bpf_find_vma(task, sp, area_found, &area, 0)) {
		/*
		 * Mostly a thread that holds the lock itself, inside mmap or execve.
		 * What is likely without it serves, but is not kept.
		 */
		return top_guess(sp, fsbase, start_stack, count, flags);
	}
	/* All of Go's stacks may lie in one area: nothing of it is kept but whose it is. */
	end = go_top(sp, fsbase, start_stack, count, flags);
	if (end) {
		top->go = top->changed = 1;
		return end;
	}
	if (start_stack >= sp && start_stack < area.hi) {
		/* start_stack holds argc; above it are arguments and environment. */
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

/* Copies the i-th page of the stack that the head describes, or notes a hole; 1: there is none. */
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
 * Copies the stack that the head in this CPU's scratch describes page by page,
 * past pages that are not there (never touched, or swapped out).
 *
 * For the verifier's sake, which must see the end of it: a global function is
 * walked once, not once for every path that leads to it; and a loop that reads
 * its bounds from memory in every turn has the same state in each, but for i.
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

static long copy_next_page(__u32 i, __u32 *place)
{
	volatile struct front *front = bpf_map_lookup_elem(&scratch, place);

	return front && i < CAPTURE_PAGES_MAX ? copy_page(front, i) : 1;
}

/* The same, and the kernel sees to the end: the loop above is most of what there is to verify. */
static __always_inline void copy_pages(struct front *front, __u32 place, bool plain)
{
	__builtin_memset(&front->holes, 0, sizeof(front->holes));
	if (plain)
		copy_pages_plain(place);
	else
		bpf_loop(CAPTURE_PAGES_MAX, copy_next_page, &place, 0);
}

/* Flags are kept in the head: in a register each of their values would be another state to verify. */
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
	/* Nothing may wrap around the end of the address space, whatever sp is. */
	if (from + size < from)
		size = 0;
	barrier_var(size);
	if (size > stack_max)
		size = stack_max;
	head->stack_len = size;
	/* All or nothing: one missing page fails the whole copy. */
	if (bpf_probe_read_user(bytes, size, (void *)from)) {
		copy_pages(front, place, plain);
		head->flags |= CAPTURE_HOLES;
	}
}

/* One more stack, from there to its end; 0: that is not known. */
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
 * A handler on an alternate stack: its outermost frame lies at the top of that
 * stack (arch/x86/kernel/signal.c, get_sigframe) and tells where the thread was.
 */
#define SIGFRAME_SIZE 440 /* struct rt_sigframe: return address, ucontext, siginfo */

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
	/* uc_stack repeats the bounds: then this is it.  gregs[REG_RSP] stands at 160. */
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
		end = goroutine_top(g, sp); /* Go's own code has it in r14, too: gregs[REG_R14] */
	copy_second(front, sp - CAPTURE_RED_ZONE, end);
}

static __always_inline void copy_left(struct front *front, __u64 fsbase)
{
	struct capture_head *head = (void *)(front + 1);
	__u64 end = 0, from = left_goroutine(head, fsbase, &end);

	head->flags &= ~LEFT_GOROUTINE;
	if (from)
		copy_second(front, from, end);
}

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

#define KERNEL_STACK (16u << 10) /* THREAD_SIZE, but for kernels that check each access */
#define FRED_PADDING 16 /* above the registers, where the kernel was built with FRED (6.9) */
#define USER_DS	     0x2b

/* The registers that the thread entered the kernel with stand where its kernel stack begins. */
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

/* The pid by which a process in a container knows itself. */
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

/* What names the process of a thread for good. */
static __always_inline void name_process(struct task_struct *task, __u64 *start_ns, __u32 *nr)
{
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	*start_ns = BPF_CORE_READ(leader, start_boottime);
	*nr = ns_pid(leader);
}

/* Gets what is known of a thread; the scratch has it from here on. */
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

/* Is the process, which task is of, one of those asked for? */
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

/* The cgroup at that level that the thread is in, or 0.  Tracing has the helper from 5.15 on. */
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

/* Whether the thread is one of those asked for; if not, that is counted. */
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
	/* The word's number is bounded by itself: 5.10 forgets what was said of cpu. */
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

struct tick { /* what brought a program to run */
	__u32 event;
	bool paced; /* the period is to be found out */
	enum scratch_kind kind;
	bool user; /* the thread was in user mode */
	__u32 flags;
	__u32 skip; /* innermost kernel frames that are not the thread's own doing */
	__u64 period;
	/* The thread is to be seen as it was when it called a function that has just returned. */
	__u64 called_ip, called_sp, return_ip; /* 0: as it is */
	struct capture_alloc *alloc;	       /* or NULL */
};

#define SECOND_NS 1000000000ull

/* A new second begins: choose the interval by how often the event came in the one before. */
static __always_inline void pace_second(struct capture_pace *pace, __u64 now_ns)
{
	__u64 interval = 1;

	if (now_ns - pace->since_ns < 2 * SECOND_NS)
		interval = pace->second / (pace_samples ? pace_samples : 1);
	if (!interval)
		interval = 1;
	/*
	 * What came since the last sample is left out where the interval becomes much shorter:
	 * the next sample, maybe another program's, must not bear the weight of a burst before.
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
 * Return how many occurrences of an event the current one is a sample of, or 0: it is none.
 * The kernel's own way, to change the period by the rate, gives weights that do not add up to
 * the number of occurrences.  Here each counts, and samples become rarer as they come: the first
 * pace_samples of a second are taken at the interval that the last second suggests, as many at
 * twice that, and so on.  So what was not yet sampled at the end is below 1 / pace_samples.
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
	/* At random around the interval: what comes in a fixed order is not to be sampled in step. */
	pace->due = interval > 1 ? interval / 2 + bpf_get_prandom_u32() % interval : 1;
	return period;
}

/* Puts the current thread's state into the ring; the time it bears, or 0. */
static __always_inline __u64 capture(void *ctx, const struct tick *tick,
				     struct capture_counters *count, bool plain)
{
	struct task_struct *task = current_task(plain);
	/*
	 * Before anything branches: at each pointer that is followed from one to another kernel
	 * type the verifier looks through the names of all, 0.3 ms, once for each way here.
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
	 * Kernel threads have no user state, io workers a stale copy of their
	 * creator's; a thread that is exiting has given its memory back; and one
	 * inside execve has new memory but still the old registers until
	 * start_code is set.
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
		/* The kernel put another return address there, to see the function return. */
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
 * Takes the scratch of this CPU's probes, or counts that it could not.  Of two that
 * begin at once both may be turned away, but never is none.  (To exchange or to add
 * and see what was there needs Linux 5.12.)
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

static __always_inline void probe_ends(__u32 *busy)
{
	__sync_fetch_and_add(busy, -1);
}

/* ---- what brings a program to run ----------------------------------------------- */

/* Clocks, counters and software events; the cookie is the number of the event. */
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

/* Of an event that is wanted once in n times: is it now? */
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

/* Tell the agent that the wait of thread tid, which began at since_ns, has ended; 0: nobody knows when. */
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
 * Tell the end of a captured wait, however short it was: the agent keeps its beginning until
 * then.  task gets its CPU now, or it is about to leave it: the kernel does not report every
 * switch to a thread.  Such a thread ran since its wait ended, for as long as its own clock says.
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

static __always_inline __u64 state_of(struct task_struct *task)
{
	struct task_struct___5_13 *old = (void *)task;

	return bpf_core_field_exists(task->__state) ? BPF_CORE_READ(task, __state)
						    : BPF_CORE_READ(old, state);
}

/*
 * A thread that waits is captured as it begins to, while its memory can be read;
 * for how long is told when it runs again.  One that merely loses the CPU does not
 * wait.
 */
static __always_inline int on_switch(void *ctx, bool preempt, struct task_struct *prev,
				     struct task_struct *next, bool plain)
{
	struct capture_counters *count = counters_here();
	struct tick tick = { .event = off_cpu_event,
			     .kind = SCRATCH_SWITCH,
			     .skip = 2, /* this program and what calls it */
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
	/* 5.10 has the program's own frame twice. */
	if (plain && bpf_get_stack(ctx, ips, sizeof(ips), 0) == sizeof(ips) && ips[0] == ips[1])
		tick.skip = 3;
	waiting.since_ns = capture(ctx, &tick, count, plain);
	if (!waiting.since_ns)
		return 0;
	waiting.ran_ns = BPF_CORE_READ(prev, se.sum_exec_runtime);
	tid = BPF_CORE_READ(prev, pid);
	/* Too many threads wait at once: nobody will see this one wake up. */
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
 * ---- the processes asked for: their children are wanted too -------------------
 *
 * Raw tracepoints: for programs that know their arguments' types (tp_btf) libbpf reads the types
 * of the whole kernel.
 */

/* Runs before the child can: its first sample already finds it. */
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

/* Long after the exit, when nothing runs in the process any more. */
SEC("raw_tp/sched_process_free")
int BPF_PROG(follow_free, struct task_struct *task)
{
	__u32 pid = BPF_CORE_READ(task, tgid);
	struct capture_process *process;

	if (pid != (__u32)BPF_CORE_READ(task, pid))
		return 0;
	process = bpf_map_lookup_elem(&processes, &pid);
	/* The pid may already be another's. */
	if (process && (process->start_ns == BPF_CORE_READ(task, start_boottime)))
		bpf_map_delete_elem(&processes, &pid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";

/* SPDX-License-Identifier: GPL-2.0-only */
/* bpf/stack_end.h: finds how far up the live stack reaches. */
#ifndef BPF_STACK_END_H
#define BPF_STACK_END_H

#include "bpf/thread.h"

/* The usual stack size limit, for the first thread and for other threads. */
#define STACK_LIKELY (8u << 20)

struct vma_range {
	__u64 lo, hi;
};

/* A goroutine's stack of up to this size is copied as a whole if its live part is unknown. */
#define LEFT_SMALL (4 * CAPTURE_PAGE)

/* Callback of bpf_find_vma: store the bounds of the VMA. */
static long vma_found(struct task_struct *task, struct vm_area_struct *vma, struct vma_range *range)
{
	range->lo = BPF_CORE_READ(vma, vm_start);
	range->hi = BPF_CORE_READ(vma, vm_end);
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
_Static_assert(CAPTURE_WAKER < LEFT_GOROUTINE, "it is no other flag's");

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
					struct capture_counters *count, __u16 *flags, bool fallback)
{
	__u64 base = GET(fallback, task, sas_ss_sp), size = GET(fallback, task, sas_ss_size);

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
#define VMAS_DEPTH 34

/*
 * Return the end of the VMA that contains addr, or 0. Kernels without bpf_find_vma store the VMAs
 * in a red-black tree, which this function searches. It takes no lock: while the tree changes, the
 * result may be 0.
 */
__attribute__((noinline)) __u64 vma_end(__u64 mm_addr, __u64 addr)
{
	struct mm_struct *mm = (void *)mm_addr;
	struct vm_area_struct *vma = NULL;
	struct rb_node *node;

	if (!bpf_core_field_exists(mm->mm_rb))
		return 0;
	node = BPF_CORE_READ(mm, mm_rb.rb_node);
#pragma clang loop unroll(disable)
	for (int i = 0; i < VMAS_DEPTH && node; i++) {
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
 * Return the end of the live stack that contains sp, or 0. This version serves the fallback
 * programs.
 * The flag says how the end was found.
 */
static __always_inline __u64 top_fallback(struct task_struct *task, __u64 sp, __u64 fsbase,
					  struct capture_counters *count, __u16 *flags)
{
	struct mm_struct *mm = BPF_CORE_READ(task, mm);
	__u64 start_stack = BPF_CORE_READ(mm, start_stack), hi, end;

	end = signal_top(task, sp, count, flags, true);
	if (end)
		return end;
	hi = vma_end((__u64)mm, sp);
	if (!hi)
		return top_guess(sp, fsbase, start_stack, count, flags);
	/* As in top_find, except that nothing is cached. */
	end = go_top(sp, fsbase, start_stack, count, flags);
	if (end)
		return end;
	if (start_stack >= sp && start_stack < hi) {
		add(&count->top_start, 1);
		*flags |= CAPTURE_TOP_START;
		return start_stack + 8;
	}
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
static __always_inline __u64 top_find(struct task_struct *task, struct capture_top *top, __u64 sp,
				      __u64 fsbase, struct capture_counters *count, __u16 *flags)
{
	__u64 start_stack = top->start_stack, end;
	struct vma_range range = {};

	/*
	 * First, because the bounds of a thread's own stack may have been cached before Go ran: a
	 * sample there has the goroutine's stack, too.
	 */
	if (top->go) {
		end = go_top(sp, fsbase, start_stack, count, flags);
		if (end)
			return end;
	}
	if (sp >= top->lo && sp < top->hi) {
		add(&count->top_cached, 1);
		*flags |= CAPTURE_TOP_CACHED;
		return top->hi;
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
	if (bpf_find_vma(task, sp, vma_found, &range, 0)) {
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
	if (start_stack >= sp && start_stack < range.hi) {
		/* start_stack points to argc; the arguments and the environment lie above it. */
		end = start_stack + 8;
		add(&count->top_start, 1);
		*flags |= CAPTURE_TOP_START;
	} else if (fsbase > sp && fsbase < range.hi) {
		end = fsbase;
		add(&count->top_tls, 1);
		*flags |= CAPTURE_TOP_TLS;
	} else {
		top->other_lo = range.lo;
		top->other_hi = range.hi;
		top->changed = 1;
		add(&count->top_vma, 1);
		*flags |= CAPTURE_TOP_VMA;
		return range.hi;
	}
	top->lo = range.lo;
	top->hi = end;
	top->changed = 1;
	return end;
}

#endif

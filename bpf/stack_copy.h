/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/stack_copy.h: copies the live stack, and the stack that was left for a signal handler's or
 * for Go's own.
 */
#ifndef BPF_STACK_COPY_H
#define BPF_STACK_COPY_H

#include "bpf/stack_end.h"

/*
 * Copy the i-th page of the stack that the head describes. If the page cannot be read, mark it as a
 * hole. Return 1 if the stack has no i-th page, else 0.
 */
static __always_inline long copy_page(volatile struct capture_front *front, __u32 i)
{
	volatile struct capture_head *head = &front->head;
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
	if (bpf_probe_read_user((__u8 *)(front + 1) + offset, n, (void *)addr))
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
__attribute__((noinline)) int copy_pages_fallback(__u32 place)
{
	volatile struct capture_front *front = bpf_map_lookup_elem(&scratch, &place);

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
	volatile struct capture_front *front = bpf_map_lookup_elem(&scratch, place);

	return front && i < CAPTURE_PAGES_MAX ? copy_page(front, i) : 1;
}

/*
 * Copy the stack page by page, as copy_pages_fallback does. With bpf_loop the kernel guarantees
 * that the loop ends; the fallback's loop above is most of the work of the verifier.
 */
static __always_inline void copy_pages(struct capture_front *front, __u32 place, bool fallback)
{
	__builtin_memset(&front->holes, 0, sizeof(front->holes));
	if (fallback)
		copy_pages_fallback(place);
	else
		bpf_loop(CAPTURE_PAGES_MAX, copy_next_page, &place, 0);
}

/*
 * Copy the live stack and set stack_len and the flags of the head. The flags are in the head, not
 * in a register: each value in a register would be a separate state for the verifier.
 */
static __always_inline void copy_stack(struct capture_front *front, __u32 place,
				       struct task_struct *task, __u64 fsbase,
				       struct capture_counters *count, bool fallback)
{
	struct capture_head *head = &front->head;
	__u8 *bytes = (__u8 *)(front + 1);
	__u64 sp = head->regs[7], from = sp - CAPTURE_RED_ZONE, size;
	__u64 hi = fallback ? top_fallback(task, sp, fsbase, count, &head->flags)
			    : top_find(task, &front->top, sp, fsbase, count, &head->flags);

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
		copy_pages(front, place, fallback);
		head->flags |= CAPTURE_HOLES;
	}
}

/* Copy a second stack, from address from to end. If end is 0, the end is unknown. */
static __always_inline void copy_second(struct capture_front *front, __u64 from, __u64 end)
{
	struct capture_head *head = &front->head;
	__u8 *bytes = (__u8 *)(front + 1);
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
static __always_inline void copy_interrupted(struct capture_front *front, struct task_struct *task,
					     __u64 fsbase, bool fallback)
{
	const struct capture_top *top = &front->top;
	__u64 base = GET(fallback, task, sas_ss_sp), size = GET(fallback, task, sas_ss_size);
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
	if (!fallback && sp >= top->lo && sp < top->hi)
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
static __always_inline void copy_left(struct capture_front *front, __u64 fsbase)
{
	struct capture_head *head = &front->head;
	__u64 end = 0, from = left_goroutine(head, fsbase, &end);

	head->flags &= ~LEFT_GOROUTINE;
	if (from)
		copy_second(front, from, end);
}

/* Copy the stack, and the one that was left for it, of the current thread, whose registers are in the scratch buffer. */
static __always_inline int copy_both(__u32 place, __u64 fsbase, bool fallback)
{
	struct task_struct *task = current_task(fallback);
	struct capture_front *front = bpf_map_lookup_elem(&scratch, &place);
	struct capture_counters *count = counters_here();

	if (!front || !count)
		return 0;
	copy_stack(front, place, task, fsbase, count, fallback);
	if (front->head.flags & CAPTURE_TOP_SIGNAL)
		copy_interrupted(front, task, fsbase, fallback);
	else if (front->head.flags & LEFT_GOROUTINE)
		copy_left(front, fsbase);
	return 0;
}

/* As copy_both. It is verified once, too. */
__attribute__((noinline)) int copy_stacks(__u32 place, __u64 fsbase)
{
	return copy_both(place, fsbase, false);
}

__attribute__((noinline)) int copy_stacks_fallback(__u32 place, __u64 fsbase)
{
	return copy_both(place, fsbase, true);
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/thread.h: what a program reads about a thread: its registers, its process, and the facts that
 * are looked up once and cached in task storage.
 */
#ifndef BPF_THREAD_H
#define BPF_THREAD_H

#include "bpf/scratch.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct capture_top);
} tops SEC(".maps");

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

static __always_inline struct task_struct *current_task(bool fallback)
{
	return fallback ? (void *)bpf_get_current_task() : bpf_get_current_task_btf();
}

#define KERNEL_STACK (16u << 10) /* THREAD_SIZE, except for kernels that check each memory access */
#define FRED_PADDING 16		 /* above the registers, in kernels built with FRED (6.9) */
#define USER_DS	     0x2b

/*
 * Read the user registers of a thread; return false on failure. The kernel stores the registers
 * with which the thread entered it at the beginning (the highest addresses) of the thread's kernel
 * stack.
 */
static __always_inline bool user_regs(struct task_struct *task, struct pt_regs *regs, bool fallback)
{
	void *end;

	if (!fallback)
		return !bpf_probe_read_kernel(regs, sizeof(*regs), (void *)bpf_task_pt_regs(task));
	end = BPF_CORE_READ(task, stack) + KERNEL_STACK;
	if (bpf_probe_read_kernel(regs, sizeof(*regs), end - sizeof(*regs)))
		return false;
	return (regs->ss & 0xfff) == USER_DS ||
	       !bpf_probe_read_kernel(regs, sizeof(*regs), end - FRED_PADDING - sizeof(*regs));
}

/* Return where the user registers of the current thread are, to read single ones. */
static __always_inline struct pt_regs *thread_regs(struct task_struct *task, bool fallback)
{
	return fallback ? (struct pt_regs *)(BPF_CORE_READ(task, stack) + KERNEL_STACK) - 1
			: (void *)bpf_task_pt_regs(task);
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
 * Copy what is cached for a thread into the scratch buffer. Start with an empty struct if nothing is
 * cached, or if the thread has executed another program since.
 */
static __always_inline void top_get(struct capture_top *top, struct task_struct *task,
				    struct mm_struct *mm)
{
	struct capture_top *cached =
		bpf_task_storage_get(&tops, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 start_stack = mm ? mm->start_stack : 0;

	if (cached && cached->process_start_ns && cached->mm == (__u64)mm &&
	    cached->start_stack == start_stack) {
		*top = *cached;
		return;
	}
	__builtin_memset(top, 0, sizeof(*top));
	top->mm = (__u64)mm;
	top->start_stack = start_stack;
	name_process(task, &top->process_start_ns, &top->ns_pid);
	top->changed = 1;
}

/* Write the struct back to the cache if it was modified. */
static __always_inline void top_put(struct capture_top *top, struct task_struct *task)
{
	struct capture_top *cached;

	if (!top->changed)
		return;
	cached = bpf_task_storage_get(&tops, task, 0, 0);
	top->changed = 0;
	if (cached)
		*cached = *top;
}

#endif

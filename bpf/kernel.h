/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/kernel.h: the few kernel types that the capture programs read.
 *
 * libbpf adjusts every access to the running kernel by the kernel's BTF (CO-RE), so only the names
 * and the nesting of the fields must agree with the kernel, not their offsets. This file replaces a
 * generated vmlinux.h, which would tie the build to the kernel on which it runs.
 */
#ifndef BPF_KERNEL_H
#define BPF_KERNEL_H

#include <linux/types.h>

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

typedef _Bool bool;
#define true 1
#define false 0

/* Add a base to an offset in one instruction: the compiler would copy the base first. */
#define add_address(off, base) asm volatile("%0 += %1" : "+r"(off) : "r"(base))

/* include/linux/sched.h */
#define PF_IO_WORKER   0x00000010
#define PF_USER_WORKER 0x00004000 /* 6.4 and newer */
#define PF_KTHREAD     0x00200000

#define TASK_INTERRUPTIBLE   0x0001
#define TASK_UNINTERRUPTIBLE 0x0002

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct rb_node {
	struct rb_node *rb_right, *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct mm_struct {
	unsigned long start_stack, start_code;
	struct rb_root mm_rb; /* before 6.1 */
};

struct vm_area_struct {
	unsigned long vm_start, vm_end;
	struct rb_node vm_rb; /* before 6.1 */
};

struct thread_struct {
	unsigned long fsbase;
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live; /* threads that have not begun to exit */
};

struct kernfs_node {
	__u64 id; /* 5.5 and newer */
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup_root {
	int hierarchy_id; /* 0: the cgroup2 hierarchy */
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn; /* its directory */
	struct cgroup_root *root;
};

struct sched_entity {
	__u64 sum_exec_runtime; /* ns */
};

struct task_struct {
	unsigned int flags, __state;
	struct sched_entity se;
	int pid, tgid;
	struct mm_struct *mm;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	unsigned long sas_ss_sp, sas_ss_size; /* sigaltstack(2) */
	__u64 start_boottime;		      /* 5.5 and newer */
	struct thread_struct thread;
	void *stack;
};

/* Before 5.14. */
struct task_struct___5_13 {
	long state;
};

#pragma clang attribute pop

#endif

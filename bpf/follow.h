/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/follow.h: the programs that select the children of selected processes and the cgroups below
 * selected ones, too.
 *
 * These are raw tracepoints. For programs that know the types of their arguments (tp_btf), libbpf
 * reads the types of the whole kernel.
 */
#ifndef BPF_FOLLOW_H
#define BPF_FOLLOW_H

#include "bpf/filter.h"

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
	if (!process)
		return 0;
	/* One that ran before, and was not sampled: follow_free is to know it. */
	if (!process->start_ns)
		process->start_ns = BPF_CORE_READ(task, group_leader, start_boottime);
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

/* A new cgroup is selected if its parent is; else ask, before anything runs in it. */
SEC("raw_tp/cgroup_mkdir")
int BPF_PROG(cgroup_begins, struct cgroup *cgroup)
{
	__u64 id = BPF_CORE_READ(cgroup, kn, id);
	__u64 parent = BPF_CORE_READ(cgroup, self.parent, cgroup, kn, id);
	__u32 *known, wanted = CAPTURE_CGROUP_WANTED;

	if (BPF_CORE_READ(cgroup, root, hierarchy_id))
		return 0;
	known = bpf_map_lookup_elem(&cgroups, &parent);
	if (known && *known == CAPTURE_CGROUP_WANTED)
		(void)bpf_map_update_elem(&cgroups, &id, &wanted, BPF_ANY);
	else
		ask_about(id);
	return 0;
}

SEC("raw_tp/cgroup_rmdir")
int BPF_PROG(cgroup_ends, struct cgroup *cgroup)
{
	__u64 id = BPF_CORE_READ(cgroup, kn, id);

	if (!BPF_CORE_READ(cgroup, root, hierarchy_id))
		(void)bpf_map_delete_elem(&cgroups, &id);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* bpf/filter.h: decides whether a thread is among those that are recorded. */
#ifndef BPF_FILTER_H
#define BPF_FILTER_H

#include "bpf/shared.h"

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

/* What is known of each cgroup, by id: enum capture_cgroup. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} cgroups SEC(".maps");

/*
 * Ask the agent whether a cgroup is selected, and wake it. If the ring has no room, or the table has
 * none, the next event in the cgroup asks.
 */
static __always_inline void ask_about(__u64 id)
{
	struct capture_question question = { .magic = CAPTURE_QUESTION_MAGIC, .cgroup_id = id };
	__u32 asked = CAPTURE_CGROUP_ASKED;

	if (bpf_map_update_elem(&cgroups, &id, &asked, BPF_NOEXIST))
		return;
	if (bpf_ringbuf_output(&ring, &question, sizeof(question), BPF_RB_FORCE_WAKEUP))
		(void)bpf_map_delete_elem(&cgroups, &id);
}

/* Return whether the current thread is in a selected cgroup. */
static __always_inline bool in_wanted_cgroup(void)
{
	__u64 id = bpf_get_current_cgroup_id();
	__u32 *known = bpf_map_lookup_elem(&cgroups, &id);

	if (!known)
		ask_about(id);
	return known && *known == CAPTURE_CGROUP_WANTED;
}

/*
 * Return whether the current thread is one of the selected processes and threads, and none of offwind's
 * own. If not, count the reason.
 */
static __always_inline bool passes_task(__u64 id, struct task_struct *task,
					struct capture_counters *count)
{
	__u32 tid = (__u32)id;

	for (int i = 0; i < CAPTURE_SELF_MAX; i++)
		if (id >> 32 == self_pids[i]) {
			add(&count->filtered_self, 1);
			return false;
		}
	if (is_on(CAPTURE_FILTER_TASK) && !bpf_map_lookup_elem(&threads, &tid) &&
	    !wanted(id >> 32, task)) {
		add(&count->filtered_process, 1);
		return false;
	}
	return true;
}

/* Return whether the current thread passes the filters. If not, count the reason. */
static __always_inline bool passes(__u64 id, struct task_struct *task, __u32 cpu,
				   struct capture_counters *count)
{
	struct comm comm = {};
	__u32 uid, word;

	if (!passes_task(id, task, count))
		return false;
	/*
	 * The word index gets a bounds check of its own: the verifier of Linux 5.10 forgets the
	 * bounds of cpu.
	 */
	word = cpu / 64;
	barrier_var(word);
	if (is_on(CAPTURE_FILTER_CPU) &&
	    (word >= CAPTURE_CPUS_MAX / 64 || !(wanted_cpus[word] >> (cpu & 63) & 1)))
		goto other;
	if (is_on(CAPTURE_FILTER_COMM)) {
		bpf_get_current_comm(comm.name, sizeof(comm.name));
		if (!bpf_map_lookup_elem(&comms, &comm))
			goto other;
	}
	uid = (__u32)bpf_get_current_uid_gid();
	if (is_on(CAPTURE_FILTER_UID) && !bpf_map_lookup_elem(&uids, &uid))
		goto other;
	if (is_on(CAPTURE_FILTER_CGROUP) && !in_wanted_cgroup()) {
		add(&count->filtered_cgroup, 1);
		return false;
	}
	return true;
other:
	add(&count->filtered_other, 1);
	return false;
}

#endif

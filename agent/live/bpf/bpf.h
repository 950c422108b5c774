/*
 * agent/live/bpf/bpf.h: the BPF programs of bpf/capture.bpf.c: loading and attaching them, their
 * counters, their filters and the table of selected processes.
 */
#ifndef AGENT_LIVE_BPF_BPF_H
#define AGENT_LIVE_BPF_BPF_H

#include "agent/live/system/feature.h"
#include "agent/live/system/hint.h"
#include "schema/capture.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct live_events;

struct live_bpf_options {   /* all borrowed until the program is open */
	uint32_t stack_max; /* 0: CAPTURE_STACK_DEFAULT; at most CAPTURE_STACK_LIMIT */
	/*
	 * 0: between 4 and 32 MiB, according to what the sampled clocks can produce.
	 * Rounded up to a power of two.
	 */
	uint32_t ring_bytes;
	const struct live_events *events;
	uint64_t alloc_interval; /* bytes; 1: every allocation */
	uint32_t wait_rate;	 /* waits a second on each CPU; see source_live_options.wait_rate */
	bool wakers;		 /* capture the stacks of those who end waits, too ... */
	uint64_t waker_min_ns;	 /* ... if these took so long until then */
	/*
	 * enum capture_filter: the filters that are on, and those that may be on later
	 * (live_bpf_filter). Only what is added with live_bpf_want… passes such a filter.
	 */
	uint32_t filters, possible;
	/* With CAPTURE_FILTER_TASK: single threads are selected, too. */
	bool threads;
	const int *cpus; /* for CAPTURE_FILTER_CPU */
	size_t n_cpus;
};

struct live_bpf;

/*
 * Load the programs; attach none yet. On failure error says which step failed, why, and what helps.
 */
int live_bpf_open(const struct live_bpf_options *options, struct live_bpf **out, char *error);
void live_bpf_free(struct live_bpf *bpf); /* detaches; NULL is fine */
/*
 * Sample none of these processes; n is at most CAPTURE_SELF_MAX. Before the first call it is this
 * process.
 */
void live_bpf_own(struct live_bpf *bpf, const pid_t *pids, size_t n);
/*
 * Attach the programs of event number i of the options. A sampled event has a perf event fd on one
 * cpu; a tracepoint has a perf event fd and cpu -1; other events have fd -1 and cpu -1. bpf takes
 * ownership of fd, also on failure.
 */
int live_bpf_attach(struct live_bpf *bpf, size_t i, int cpu, int fd, char *error);

#define LIVE_PLACES_MAX 64u

struct live_alloc_place {
	enum capture_alloc_function function;
	uint64_t off; /* in the file */
};

/*
 * Attach probes to these functions of a file, at most LIVE_PLACES_MAX, in process pid alone (0: in
 * each process that maps the file). Children of the process get no probes.
 */
int live_bpf_attach_allocator(struct live_bpf *bpf, const char *path, uint32_t pid,
			      const struct live_alloc_place *places, size_t n, char *error);
/*
 * Remove all probes on allocators from this process (0: from all processes). A thread removes the
 * probes in the background, because the kernel takes a tenth of a second for each.
 */
void live_bpf_detach_allocators(struct live_bpf *bpf, uint32_t pid);
/* Remove live memory of processes that ended from the kernel's table, to make room. */
void live_bpf_sweep(struct live_bpf *bpf);

/*
 * Return how many programs are attached, and detach those of the first n that run on one CPU: all when
 * it has gone offline, and those before others took their place.
 */
size_t live_bpf_n_attached(const struct live_bpf *bpf);
void live_bpf_detach_cpu(struct live_bpf *bpf, int cpu, size_t n);
/* The events have other rates now. */
void live_bpf_pace(struct live_bpf *bpf);
/* Stop capturing. When this returns, no capturing program runs any more, on any CPU. */
void live_bpf_stop(struct live_bpf *bpf);

/* Let these filters be on from now on (enum capture_filter), of those that are possible. */
void live_bpf_filter(struct live_bpf *bpf, uint32_t filters);
/*
 * Follow the children of selected processes, or no more. Needs the filter for tasks to be possible; call
 * it before live_bpf_want.
 */
int live_bpf_follow(struct live_bpf *bpf, char *error);
void live_bpf_unfollow(struct live_bpf *bpf);
/*
 * Let a process, a thread, a thread name or a user pass its filter. The functions return 0 or a
 * negative errno value. -ENAMETOOLONG: comm has more than 15 bytes.
 */
int live_bpf_want(struct live_bpf *bpf, uint32_t pid);
int live_bpf_want_thread(struct live_bpf *bpf, uint32_t tid);
int live_bpf_want_comm(struct live_bpf *bpf, const char *comm);
int live_bpf_want_uid(struct live_bpf *bpf, uint32_t uid);
/* Let no other processes, names and users pass than those for which keep returns true. */
typedef bool (*live_keep_fn)(const void *ctx, const void *key);
void live_bpf_only_processes(struct live_bpf *bpf, live_keep_fn keep, const void *ctx);
void live_bpf_only_comms(struct live_bpf *bpf, live_keep_fn keep, const void *ctx);
void live_bpf_only_uids(struct live_bpf *bpf, live_keep_fn keep, const void *ctx);
/*
 * Answer whether a cgroup passes its filter, or forget the answer. live_bpf_watch_cgroups lets the
 * kernel report new cgroups; before, only their events ask. -E2BIG: there are too many cgroups.
 */
int live_bpf_tell_cgroup(struct live_bpf *bpf, uint64_t id, enum capture_cgroup answer);
void live_bpf_forget_cgroup(struct live_bpf *bpf, uint64_t id);
void live_bpf_watch_cgroups(struct live_bpf *bpf);
/*
 * Return whether the process passes the filter for tasks. True for every process if single threads
 * are selected, because a selected thread may belong to any process.
 */
bool live_bpf_wants(struct live_bpf *bpf, uint32_t pid);
bool live_bpf_any_alive(struct live_bpf *bpf); /* a selected process */
/*
 * Return whether a thread is still in the wait whose beginning was captured at since_ns. Then *wake is
 * as if it ended at now_ns.
 */
bool live_bpf_is_off_cpu(const struct live_bpf *bpf, uint32_t tid, uint64_t since_ns,
			 uint64_t now_ns, struct capture_wake *wake);

/*
 * Let a process's samples have the slices that this plan copies; task names it and its base. An older plan
 * of the process is replaced. plan NULL: it has no plan any more. -EINVAL: the plan has operations that do
 * not exist. -ENOSPC: running processes have too many different plans.
 */
int live_bpf_plan(struct live_bpf *bpf, uint32_t pid, const struct plan_task *task,
		  const struct plan *plan);

/*
 * Whether records may refer to earlier ones for their slices (schema/plan.h). Each call with true begins anew: records from
 * then on refer to none from before.
 */
void live_bpf_refer(struct live_bpf *bpf, bool refer);

/* Return whether a process has a plan. */
bool live_bpf_has_plan(const struct live_bpf *bpf, uint32_t pid);

/*
 * Announce that the ring will be read now, up to at least this position of the producer, so that it wakes its reader again
 * when enough is written behind it.
 */
void live_bpf_reading(struct live_bpf *bpf, uint64_t until);
/* Return whether this kernel can only run the plain programs, which are for old kernels. */
bool live_bpf_is_fallback(const struct live_bpf *bpf);
/* Return whether all records are samples without slices, as long as no process gets a plan and no filter changes. */
bool live_bpf_all_alike(const struct live_bpf *bpf);
int live_bpf_ring_fd(const struct live_bpf *bpf);
size_t live_bpf_ring_size(const struct live_bpf *bpf);
int live_bpf_program_fd(const struct live_bpf *bpf); /* for the kernel's statistics */
int live_bpf_n_cpus(const struct live_bpf *bpf);     /* CPUs that have counters */
/*
 * Read how often a paced event occurred in the selected threads, on all CPUs. -ENOENT: not paced.
 */
int live_bpf_counted(const struct live_bpf *bpf, size_t i, uint64_t *counted);
/*
 * Read the counters of each CPU and their sum. *per_cpu is borrowed until the next call; per_cpu
 * may be NULL.
 */
int live_bpf_counters(const struct live_bpf *bpf, enum capture_counts counts,
		      const struct capture_counters **per_cpu, struct capture_counters *sum);

#endif

/*
 * agent/source/live_bpf.h: the capture program of bpf/capture.bpf.c: loading,
 * attaching, its counters, and the table of wanted processes.
 */
#ifndef AGENT_SOURCE_LIVE_BPF_H
#define AGENT_SOURCE_LIVE_BPF_H

#include "schema/capture.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LIVE_ERROR_SIZE 512 /* as source.error */

struct live_events;

struct live_bpf_options {   /* all borrowed until the program is open */
	uint32_t stack_max; /* 0: CAPTURE_STACK_DEFAULT; at most CAPTURE_STACK_LIMIT */
	/* 0: 4 to 16 MiB, by what a clock that is sampled may bring; rounded up to a power of two */
	uint32_t ring_bytes;
	const struct live_events *events;
	uint64_t alloc_interval; /* bytes; 1: every allocation */
	/* enum capture_filter: what is then added with live_bpf_want… alone passes. */
	uint32_t filters;
	bool threads;			      /* of CAPTURE_FILTER_TASK: single ones, too */
	const struct capture_cgroup *cgroups; /* for CAPTURE_FILTER_CGROUP */
	size_t n_cgroups;
	const int *cpus; /* for CAPTURE_FILTER_CPU */
	size_t n_cpus;
};

struct live_bpf;

/* Loads, attaches nothing yet.  On failure error says which step failed, why and what helps. */
int live_bpf_open(const struct live_bpf_options *options, struct live_bpf **out, char *error);
void live_bpf_free(struct live_bpf *bpf); /* detaches; NULL is fine */

/*
 * From here on event i of the options brings the program to run: on cpu, whose
 * perf event fd is, of a tracepoint on all (-1), and of the others without any fd
 * (-1).  bpf owns fd, also on failure.
 */
int live_bpf_attach(struct live_bpf *bpf, size_t i, int cpu, int fd, char *error);

#define LIVE_PLACES_MAX 64u

struct live_alloc_place {
	enum capture_alloc_function function;
	uint64_t off; /* in the file */
};

/*
 * Watch these functions of a file, LIVE_PLACES_MAX at most, in process pid alone (0: in whatever
 * process has it mapped).  A child of the process is not watched.
 */
int live_bpf_attach_allocator(struct live_bpf *bpf, const char *path, uint32_t pid,
			      const struct live_alloc_place *places, size_t n, char *error);
/*
 * Watch no allocator of this process any more (0: of any).  The probes go in the background, since
 * the kernel takes a tenth of a second for each.
 */
void live_bpf_detach_allocators(struct live_bpf *bpf, uint32_t pid);
/* Forgets live memory of processes that ended, to make room in their table. */
void live_bpf_sweep(struct live_bpf *bpf);

void live_bpf_detach_cpu(struct live_bpf *bpf, int cpu); /* it has gone offline */
/* The program runs no more, anywhere, when this returns. */
void live_bpf_stop(struct live_bpf *bpf);

/* With the filter for tasks, before the first live_bpf_want: their children are followed. */
int live_bpf_follow(struct live_bpf *bpf, char *error);
int live_bpf_want(struct live_bpf *bpf, uint32_t pid);
int live_bpf_want_thread(struct live_bpf *bpf, uint32_t tid);
int live_bpf_want_comm(struct live_bpf *bpf, const char *comm);
int live_bpf_want_uid(struct live_bpf *bpf, uint32_t uid);
/* Whether the process passes the filter for tasks, as far as it concerns whole processes. */
bool live_bpf_wants(struct live_bpf *bpf, uint32_t pid);
bool live_bpf_any_alive(struct live_bpf *bpf); /* of the wanted processes */
/* Return whether a thread is in the wait whose beginning was captured at since_ns. */
bool live_bpf_waits(const struct live_bpf *bpf, uint32_t tid, uint64_t since_ns);

/* The ring will now be read: the next time there is much in it, it is to wake its reader again. */
void live_bpf_reading(struct live_bpf *bpf);
/* Whether the kernel takes only the programs for old ones. */
bool live_bpf_plain(const struct live_bpf *bpf);
/* Whether this kernel keeps memory areas in a tree that those can look through (before 6.1). */
bool live_bpf_area_tree(void);
int live_bpf_ring_fd(const struct live_bpf *bpf);
size_t live_bpf_ring_size(const struct live_bpf *bpf);
int live_bpf_program_fd(const struct live_bpf *bpf); /* for the kernel's statistics */
int live_bpf_n_cpus(const struct live_bpf *bpf);     /* that have counters */
/* Read how often a paced event occurred, on all CPUs, in what was asked for; -ENOENT: it is not paced. */
int live_bpf_counted(const struct live_bpf *bpf, size_t i, uint64_t *counted);
/* Of each CPU; borrowed until the next call, as is their sum. */
int live_bpf_counters(const struct live_bpf *bpf, const struct capture_counters **per_cpu,
		      struct capture_counters *sum);

/*
 * Whether to do as if the kernel lacked something: what elder kernels do instead is
 * tested on newer ones so.  OFFWIND_WITHOUT is a list with commas of find_vma,
 * loop, task_storage, task_pt_regs, attach_cookie (each alone gives the plain programs),
 * mmap_build_id, procmap_query, uprobe_multi, snprintf, and ringbuf, without
 * which nothing can be recorded; reduced_btf is what libbpf is spared on any kernel.
 */
bool live_bpf_without(const char *feature);

/* What errno value a step gave means for a user; "" where nothing can be said.  Static. */
const char *live_hint(int err);

#endif

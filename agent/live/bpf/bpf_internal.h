/*
 * agent/live/bpf/bpf_internal.h: the loaded BPF programs and what they are attached to. For bpf.c,
 * bpf_load.c and bpf_attach.c alone.
 */
#ifndef AGENT_LIVE_BPF_BPF_INTERNAL_H
#define AGENT_LIVE_BPF_BPF_INTERNAL_H

#include "agent/live/bpf/bpf.h"
#include "agent/live/system/decode.h"

#include <pthread.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include "bpf/capture.skel.h"
#pragma GCC diagnostic pop

#define LIVE_PROCESSES_MAX   65536 /* entries of the table of processes */
#define LIVE_WANTED_MAX	     4096  /* entries of each filter: threads, names, users */
#define LIVE_FOLLOW_PROGRAMS 3
#define LIVE_CGROUP_PROGRAMS 2

#define LIVE_PIDS (4u << 20) /* PID_MAX_LIMIT of the kernel */

/* A program that is attached: to a perf event, a probe or a tracepoint. */
struct live_attached {
	struct bpf_link *link;
	/* Descriptor of a uprobe-multi link, which libbpf does not know; -1: link is used. */
	int multi;
	int cpu; /* -1: all */
	/* The fd of a perf event that can be disabled, which stops the program; -1: detach. */
	int clock;
	bool allocator;
	uint32_t pid; /* of an allocator's probes: their process; 0: all */
};

struct live_bpf {
	struct capture *skeleton;
	/* Plain programs of events that are not the first of their kind. */
	struct capture *others[CAPTURE_EVENTS_MAX];
	const struct live_events *events;
	struct live_attached *attached;
	size_t n_attached, room;
	struct bpf_link *follow[LIVE_FOLLOW_PROGRAMS], *cgroups[LIVE_CGROUP_PROGRAMS];
	/*
	 * Probes of processes that ended. A thread removes them; going_lock protects these fields.
	 */
	pthread_mutex_t going_lock;
	struct live_attached *going;
	size_t n_going, going_room;
	pthread_t goer;
	bool goer_runs, goer_started; /* started: the thread must be joined */
	size_t ring_size;
	uint32_t wait_rate; /* as in the options */
	bool wakers;	    /* as in the options */
	uint64_t first_hz;  /* the rate of the first clock when the programs were loaded; 0: none */
	bool fallback;	    /* use the fallback programs, which are for old kernels */
	bool multi;	    /* probes of allocators are attached as one link per file */
	bool any_thread;    /* single threads are selected */
	uint32_t alive;	    /* a selected process that was alive at the last check */
	/* A file with the kernel's types that the programs use; -1: libbpf looks for all types. */
	int types;
	int n_cpus;	    /* possible CPUs: they have counters */
	uint32_t n_scratch; /* up to the last present CPU: they have a scratch buffer */
	struct capture_counters *per_cpu;
	struct plan plans[PLAN_PLANS_MAX]; /* those in the kernel's table */
	uint32_t n_plans;
	uint32_t n_rounds;		/* see live_bpf_refer */
	uint64_t plans_counted_ns;	/* CLOCK_MONOTONIC: those in use are not counted before */
	uint8_t planned[LIVE_PIDS / 8]; /* one bit for each process that has a plan */
};

/*
 * Return the program of a skeleton for events of this kind; NULL for allocations, which have
 * several.
 */
struct bpf_program *live_bpf_program_of(const struct capture *s, enum live_event_kind kind,
					bool fallback);

/* Detach all programs, also the probes that a thread is still removing. */
void live_bpf_detach_all(struct live_bpf *bpf);

#endif

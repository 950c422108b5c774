/*
 * schema/capture.h: what the capture program in the kernel hands to the agent.
 *
 * A record in the ring buffer is, without gaps but to round up to 8:
 *
 *   size                   what
 *   CAPTURE_HEAD_SIZE      struct capture_head
 *   stack_len              user stack, the bytes of [sp - CAPTURE_RED_ZONE, … + stack_len)
 *   8 + interrupted_len    if that is not 0, the stack that a signal handler on another stack
 *                          interrupted, or Go left for its thread's: its address, u64, and the
 *                          bytes from there on
 *   kernel_len             return addresses of the kernel stack, u64, innermost first
 *   40                     struct capture_holes, with CAPTURE_HOLES
 *   32                     struct capture_alloc, with CAPTURE_ALLOC
 *
 * or it is a struct capture_wake or a struct capture_free alone.
 *
 * All numbers are in the byte order of the machine, which writes and reads
 * them itself; records never leave it in this form.  The agent carries the
 * program that writes them, so a version other than CAPTURE_VERSION, which the
 * magic numbers bear, is a fault.
 *
 * Includes <linux/types.h> only, because the BPF side has no libc.
 */
#ifndef SCHEMA_CAPTURE_H
#define SCHEMA_CAPTURE_H

#include <linux/types.h>

#define CAPTURE_VERSION	   3u
#define CAPTURE_MAGIC	   (0x53574fu | CAPTURE_VERSION << 24) /* "OWS" in memory, and the version */
#define CAPTURE_WAKE_MAGIC (0x57574fu | CAPTURE_VERSION << 24) /* "OWW" … */
#define CAPTURE_FREE_MAGIC (0x46574fu | CAPTURE_VERSION << 24) /* "OWF" … */

#define CAPTURE_PAGE		4096u
#define CAPTURE_RED_ZONE	128u /* bytes below sp that belong to the function (psABI §3.2.2) */
#define CAPTURE_STACK_DEFAULT	262144u	 /* most stack bytes, unless the agent sets another */
#define CAPTURE_STACK_LIMIT	1048576u /* … and the most that can be set */
#define CAPTURE_INTERRUPTED_MAX 65536u	 /* most bytes of an interrupted stack, beside the above */
#define CAPTURE_KERNEL_FRAMES	127u	 /* the kernel's own limit (perf_event_max_stack) */
#define CAPTURE_KERNEL_MAX	1016u	 /* … in bytes */
#define CAPTURE_PAGES_MAX	257u /* pages that CAPTURE_STACK_LIMIT bytes at any address can touch */
#define CAPTURE_HOLE_WORDS	5u  /* 64-bit words with a bit for each of them */
#define CAPTURE_REGS		17u /* x86_64: DWARF 0–16, psABI figure 3.36 */
#define CAPTURE_COMM		16u /* TASK_COMM_LEN: NUL-terminated */
#define CAPTURE_HEAD_SIZE	216u
#define CAPTURE_EVENTS_MAX	64u	     /* kinds of samples in one recording */
#define CAPTURE_CGROUPS_MAX	16u	     /* that one recording can be limited to */
#define CAPTURE_CPUS_MAX	4096u	     /* that it can be limited to */
#define CAPTURE_LIVE_MAX	262144u	     /* captured allocations that are live at once */
#define CAPTURE_INTERVAL_MAX	(1ull << 36) /* bytes between two captured allocations */

enum capture_flag {
	CAPTURE_USER_HIT = 1 << 0, /* the thread ran in user mode; else in the kernel */
	CAPTURE_HAS_USER = 1 << 1, /* regs and stack are valid */
	CAPTURE_COMPAT = 1 << 2,   /* 32-bit code segment */
	CAPTURE_CUT = 1 << 3, /* the live stack is longer than its copy, or of unknown length */
	CAPTURE_HOLES =
		1 << 4, /* some page could not be read: a struct capture_holes tells which */
	/* Where the end of the stack came from: */
	CAPTURE_TOP_CACHED = 1 << 5, /* this thread's earlier sample */
	CAPTURE_TOP_START = 1 << 6,  /* mm->start_stack (first thread) */
	CAPTURE_TOP_TLS = 1 << 7,    /* fsbase (the stack ends where struct pthread begins) */
	CAPTURE_TOP_GO = 1 << 8,     /* the running goroutine's bounds, or its thread's */
	CAPTURE_TOP_SIGNAL = 1 << 9, /* the alternate signal stack's bounds */
	CAPTURE_TOP_VMA = 1 << 10,   /* the end of the memory area (coroutines) */
	CAPTURE_TOP_NONE = 1 << 11,  /* nowhere: it is not known */
	/* The thread began to wait: a struct capture_wake tells for how long. */
	CAPTURE_WAITS = 1 << 12,
	/* The thread allocated memory: a struct capture_alloc tells what. */
	CAPTURE_ALLOC = 1 << 13,
};

struct capture_head {
	__u32 magic;
	__u32 stack_len;  /* bytes */
	__u16 flags;	  /* enum capture_flag */
	__u16 kernel_len; /* bytes, a multiple of 8 */
	__u16 cpu;
	__u16 event; /* which of the agent's events */
	__u32 pid;   /* thread group, in the initial pid namespace, as tid */
	__u32 tid;
	__u32 ns_pid;		  /* thread group as its own pid namespace numbers it */
	__u32 interrupted_len;	  /* bytes; 0: none */
	__u64 time_ns;		  /* CLOCK_MONOTONIC */
	__u64 period;		  /* of the event, in its unit: ns for cpu-clock */
	__u64 cgroup_id;	  /* of the cgroup2 hierarchy */
	__u64 process_start_ns;	  /* CLOCK_BOOTTIME; with pid it names a process for good */
	__u64 regs[CAPTURE_REGS]; /* x86_64 by DWARF number; 7: rsp, 16: rip */
	char comm[CAPTURE_COMM];
};

struct capture_holes {
	/* Bit i: the i-th page that the stack bytes touch could not be read; its bytes are 0. */
	__u64 pages[CAPTURE_HOLE_WORDS];
};

/* A record of its own in the ring: a thread whose wait was captured runs again.  Each such wait has one. */
struct capture_wake {
	__u32 magic; /* CAPTURE_WAKE_MAGIC */
	__u32 tid;
	__u64 since_ns; /* time_ns of the record that told of the wait */
	__u64 time_ns;	/* 0: the end of this wait will not be seen */
};

/* What the table of waiting threads says of one, by tid. */
struct capture_waiting {
	__u64 since_ns; /* time_ns of the record that told of the wait */
	__u64 ran_ns;	/* how long the thread had run until then, by its own clock */
};

struct capture_alloc {
	__u64 id; /* of this recording, from 1 */
	__u64 size;
	/* Where it is told of when it is freed; 0: nowhere, the table was full. */
	__u64 space, addr;
};

/* A record of its own in the ring: memory whose allocation was captured is given back. */
struct capture_free {
	__u32 magic; /* CAPTURE_FREE_MAGIC */
	__u32 pid;
	__u64 id;    /* as in capture_alloc */
	__u64 bytes; /* less than its size: the rest stays */
	__u64 time_ns;
};

/*
 * Memory that a process has and whose allocation was captured.  space is one
 * address space, not a process: children that share it give back the same memory,
 * those that copied it do not.
 */
struct capture_live_key {
	__u64 space, addr;
};

struct capture_live {
	__u64 id, size;
	__u32 pid, reserved;
};

/* Functions of an allocator, by what their parameters mean: cookies of the probes on them. */
enum capture_alloc_function {
	CAPTURE_ALLOC_MALLOC,
	CAPTURE_ALLOC_CALLOC,
	CAPTURE_ALLOC_REALLOC,
	CAPTURE_ALLOC_MEMALIGN,
	CAPTURE_ALLOC_POSIX_MEMALIGN,
	CAPTURE_ALLOC_MMAP,
	CAPTURE_ALLOC_MREMAP,
	CAPTURE_ALLOC_FREE, /* and what follows: they give back */
	CAPTURE_ALLOC_MUNMAP,
};

/*
 * Kept per CPU.  Every run of a program ends in exactly one of filtered_*,
 * captured, ring_full, unreadable: together they are fired.
 */
struct capture_counters {
	__u64 fired;
	__u64 filtered_idle;	/* the idle thread */
	__u64 filtered_self;	/* the agent's own threads */
	__u64 filtered_process; /* not among the processes and threads asked for */
	__u64 filtered_other;	/* not of the name, user, cgroup or CPU asked for */
	__u64 filtered_period;	/* not the one of so many that is wanted */
	__u64 filtered_failed;	/* an allocation that was to be captured, but failed */
	__u64 captured;		/* in the ring */
	__u64 ring_full;	/* the ring had no room */
	__u64 unreadable;	/* registers could not be read, or a scratch was not free */
	/* Of the captured: */
	__u64 cut;   /* CAPTURE_CUT */
	__u64 holes; /* CAPTURE_HOLES */
	__u64 bytes; /* in the ring */
	/* How the ends of stacks were found: */
	__u64 top_cached, top_start, top_tls, top_go, top_signal, top_vma, top_none;
	__u64 find_vma;	     /* calls of bpf_find_vma */
	__u64 pids_overflow; /* children not followed: the table of processes was full */
	__u64 waits;	     /* threads that began to wait and passed the filters */
	__u64 wakes_unseen;  /* … whose end was noticed only when they left their CPU again */
	__u64 wakes_lost;    /* struct capture_wake for which the ring had no room */
	__u64 frees;	     /* struct capture_free in the ring */
	__u64 frees_lost;    /* … and for which it had no room */
	__u64 untracked;     /* captured allocations for which the table of live ones had none */
};

/* What a recording may be limited to; each that is set must be met. */
enum capture_filter {
	CAPTURE_FILTER_TASK = 1 << 0, /* the tables of processes and threads: in either */
	CAPTURE_FILTER_COMM = 1 << 1, /* the thread's name */
	CAPTURE_FILTER_UID = 1 << 2,  /* real user, in the initial user namespace */
	CAPTURE_FILTER_CGROUP = 1 << 3,
	CAPTURE_FILTER_CPU = 1 << 4,
};

/*
 * How often an event came on one CPU, and when it is to be sampled again.  A sample stands for
 * the occurrences since the one before it: of the processes that were asked for where each is
 * looked at (capture_paced), else of all.
 */
struct capture_pace {
	__u64 hits;	/* since the last sample */
	__u64 due;	/* how many of them the next sample is to stand for */
	__u64 interval; /* the mean of that */
	__u64 since_ns; /* when the current second began */
	__u64 second;	/* hits in it */
	__u64 samples;	/* at this interval, in it */
	__u64 counted;	/* hits since the recording began */
};

struct capture_cgroup { /* and all below it */
	__u64 id;
	__u32 level; /* 0: the root of the hierarchy */
	__u32 reserved;
};

/* What the table of wanted processes says of one, by pid. */
struct capture_process {
	__u64 start_ns; /* CLOCK_BOOTTIME; 0: whichever has this pid now */
	__u32 dead;	/* its last thread ended */
	__u32 reserved;
};

_Static_assert(sizeof(struct capture_head) == CAPTURE_HEAD_SIZE, "the head has no padding");
_Static_assert(__builtin_offsetof(struct capture_head, time_ns) == 32, "u64 fields from 32");
_Static_assert(__builtin_offsetof(struct capture_head, regs) == 64, "regs");
_Static_assert(__builtin_offsetof(struct capture_head, comm) == 200, "comm");
_Static_assert(CAPTURE_CPUS_MAX <= 1 << 16 && CAPTURE_EVENTS_MAX <= 1 << 16, "they fit the head");
_Static_assert(CAPTURE_ALLOC < 1 << 16, "flags fit the head");
_Static_assert(sizeof(struct capture_holes) == 40, "no padding");
_Static_assert(CAPTURE_HEAD_SIZE % 8 == 0, "stack bytes begin aligned");
_Static_assert((CAPTURE_STACK_LIMIT + CAPTURE_PAGE - 1) / CAPTURE_PAGE + 1 <= CAPTURE_PAGES_MAX,
	       "every page has a bit");
_Static_assert(CAPTURE_PAGES_MAX <= CAPTURE_HOLE_WORDS * 64, "every page has a bit");
_Static_assert(CAPTURE_KERNEL_MAX == CAPTURE_KERNEL_FRAMES * 8, "whole addresses");
_Static_assert(sizeof(struct capture_wake) == 24, "no padding");
_Static_assert(sizeof(struct capture_waiting) == 16, "the same on both sides");
_Static_assert(sizeof(struct capture_alloc) == 32, "no padding");
_Static_assert(sizeof(struct capture_free) == 32, "no padding");
_Static_assert(sizeof(struct capture_live) == 24, "the same on both sides");
_Static_assert(sizeof(struct capture_process) == 16, "the same on both sides");

#endif

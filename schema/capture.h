/*
 * schema/capture.h: layout of the records that the BPF capture programs write and the agent reads.
 *
 * A record in the ring buffer has these parts, in this order. Each part is padded to a multiple of
 * 8 bytes; there are no other gaps.
 *
 *   size                   content
 *   CAPTURE_HEAD_SIZE      struct capture_head
 *   stack_len              user stack: the bytes from sp - CAPTURE_RED_ZONE upwards
 *   8 + interrupted_len    only if interrupted_len is not 0: a second stack.  It is the stack
 *                          that a signal handler interrupted, if the handler runs on a stack
 *                          of its own, or the goroutine stack that Go left for its thread's
 *                          stack.  First its address (u64), then the bytes from there on
 *   kernel_len             return addresses of the kernel stack, u64, innermost first
 *   40                     struct capture_holes, if CAPTURE_HOLES is set
 *   32                     struct capture_alloc, if CAPTURE_ALLOC is set
 *   16                     struct capture_woken, if CAPTURE_WAKER is set
 *   slices_len             slices of other memory (schema/plan.h)
 *
 * A record may instead be a single struct capture_wake, struct capture_free or struct
 * capture_question.
 *
 * All numbers are in the byte order of the machine: the same machine writes and reads them, and
 * records are never stored in this form. The magic numbers contain CAPTURE_VERSION. The agent
 * carries the program that writes the records, so any other version is an error.
 *
 * This file includes <linux/types.h> only, because the BPF side has no libc.
 */
#ifndef SCHEMA_CAPTURE_H
#define SCHEMA_CAPTURE_H

#include <linux/types.h>

#include "schema/plan.h"

#define CAPTURE_VERSION	       8u
#define CAPTURE_MAGIC	       (0x53574fu | CAPTURE_VERSION << 24) /* "OWS" in memory; version */
#define CAPTURE_WAKE_MAGIC     (0x57574fu | CAPTURE_VERSION << 24) /* "OWW"; version */
#define CAPTURE_FREE_MAGIC     (0x46574fu | CAPTURE_VERSION << 24) /* "OWF"; version */
#define CAPTURE_QUESTION_MAGIC (0x51574fu | CAPTURE_VERSION << 24) /* "OWQ"; version */

#define CAPTURE_PAGE		4096u
#define CAPTURE_RED_ZONE	128u /* bytes below sp that belong to the function (psABI §3.2.2) */
#define CAPTURE_STACK_DEFAULT	262144u	 /* most stack bytes by default */
#define CAPTURE_STACK_LIMIT	1048576u /* most stack bytes that the agent can set */
#define CAPTURE_INTERRUPTED_MAX 65536u	 /* most bytes of the second stack, in addition */
#define CAPTURE_KERNEL_FRAMES	127u	 /* the kernel's own limit (perf_event_max_stack) */
#define CAPTURE_KERNEL_MAX	1016u	 /* the same in bytes */
#define CAPTURE_PAGES_MAX	257u	 /* pages that CAPTURE_STACK_LIMIT bytes can touch */
#define CAPTURE_HOLE_WORDS	5u	 /* 64-bit words with one bit for each of these pages */
#define CAPTURE_REGS		17u	 /* x86_64: DWARF registers 0–16, psABI figure 3.36 */
#define CAPTURE_COMM		16u	 /* TASK_COMM_LEN: NUL-terminated */
#define CAPTURE_HEAD_SIZE	224u
#define CAPTURE_EVENTS_MAX	64u	/* kinds of samples in one recording */
#define CAPTURE_CGROUPS_MAX	16384u	/* cgroups of which it is known whether they are selected */
#define CAPTURE_SYMBOL_TEXT	640u	/* bytes for the text of a kernel symbol */
#define CAPTURE_SELF_MAX	4	/* processes of offwind, which are not sampled */
#define CAPTURE_CPUS_MAX	4096u	/* CPUs in the filter of one recording */
#define CAPTURE_LIVE_MAX	262144u /* captured allocations live at once */
#define CAPTURE_INTERVAL_MAX	(1ull << 36) /* bytes, mean between two captured ones */
#define CAPTURE_WAIT_SLOTS	16384u	     /* a power of two; see struct capture_wait_slot */
#define CAPTURE_WAIT_BUCKETS	32u	     /* of lengths of waits: powers of two */
#define CAPTURE_WAIT_SHIFT	14u	     /* a captured wait stands for at most 2^14 */

enum capture_flag {
	CAPTURE_USER_HIT = 1 << 0, /* the thread ran in user mode, else in the kernel */
	CAPTURE_HAS_USER = 1 << 1, /* regs and stack are valid */
	CAPTURE_COMPAT = 1 << 2,   /* 32-bit code segment */
	CAPTURE_CUT = 1 << 3,	   /* the copy is incomplete, or the stack's length is unknown */
	/* A page could not be read; a struct capture_holes says which. */
	CAPTURE_HOLES = 1 << 4,
	/* How the end of the stack was found: */
	CAPTURE_TOP_CACHED = 1 << 5, /* cached from an earlier sample of this thread */
	CAPTURE_TOP_START = 1 << 6,  /* mm->start_stack (first thread) */
	CAPTURE_TOP_TLS = 1 << 7,    /* fsbase; the stack ends where struct pthread begins */
	CAPTURE_TOP_GO = 1 << 8,     /* bounds of the goroutine or of its thread's g0 */
	CAPTURE_TOP_SIGNAL = 1 << 9, /* the alternate signal stack's bounds */
	CAPTURE_TOP_VMA = 1 << 10,   /* the end of the VMA (coroutines) */
	CAPTURE_TOP_NONE = 1 << 11,  /* not found */
	/* The thread began to wait; a later struct capture_wake says for how long. */
	CAPTURE_OFF_CPU = 1 << 12,
	/* The thread allocated memory; a struct capture_alloc follows. */
	CAPTURE_ALLOC = 1 << 13,
	/* The thread woke another one, whose wait was captured; a struct capture_woken follows. */
	CAPTURE_WAKER = 1 << 14,
};

struct capture_head {
	__u32 magic;
	__u32 stack_len;  /* bytes */
	__u16 flags;	  /* enum capture_flag */
	__u16 kernel_len; /* bytes, a multiple of 8 */
	__u16 cpu;
	__u16 event; /* index in the agent's list of events */
	__u32 pid;   /* thread group; pid and tid are those of the initial pid namespace */
	__u32 tid;
	__u32 ns_pid;	       /* thread group, numbered in its own pid namespace */
	__u32 interrupted_len; /* bytes; 0: there is no second stack */
	__u64 time_ns;	       /* CLOCK_MONOTONIC */
	/* In the event's unit, for example ns for cpu-clock; of a wait: struct capture_wake has it. */
	__u64 period;
	__u64 cgroup_id;	  /* in the cgroup2 hierarchy */
	__u64 process_start_ns;	  /* CLOCK_BOOTTIME; pid and start time identify a process */
	__u64 regs[CAPTURE_REGS]; /* x86_64, by DWARF number; 7 is rsp, 16 is rip */
	char comm[CAPTURE_COMM];
	__u32 uid;	   /* real user ID, in the initial user namespace */
	__u16 slices_len;  /* bytes, a multiple of 8 */
	__u8 slices_end;   /* enum plan_end */
	__u8 slices_refer; /* 1: the last word of the slices is a struct plan_reference */
};

struct capture_holes {
	/*
	 * If bit i is set, the i-th page that the stack bytes touch could not be read; its bytes
	 * are 0.
	 */
	__u64 pages[CAPTURE_HOLE_WORDS];
};

/*
 * A separate record in the ring: a thread whose wait was captured runs again. There is exactly one
 * for each captured wait, unless the ring is full.
 */
struct capture_wake {
	__u32 magic; /* CAPTURE_WAKE_MAGIC */
	__u32 tid;
	__u64 since_ns; /* time_ns of the record in which the wait began */
	/* When the wait began and ended; time_ns 0: the end of this wait cannot be observed. */
	__u64 began_ns, time_ns;
	__u64 woken_ns; /* when the thread was made ready to run; 0: not seen */
	/*
	 * How many waits like this one it stands for; and others of the same place that were not
	 * captured, and were so long that nothing stands for them: their number and times.
	 */
	__u64 n, others, others_blocked_ns, others_runnable_ns;
	/* Who woke it; both 0 if woken_ns is not: an interrupt. */
	__u32 waker_pid, waker_tid;
	char waker[CAPTURE_COMM]; /* the thread's name, NUL-terminated */
	__u32 waker_stack;	  /* enum capture_waker_stack */
	__u32 reserved;
};

/* What became of the stack of the thread that ended a wait. */
enum capture_waker_stack {
	CAPTURE_WAKER_UNSEEN, /* nobody was seen, or stacks of wakers are not captured */
	CAPTURE_WAKER_SENT,   /* a record with CAPTURE_WAKER came before */
	CAPTURE_WAKER_NONE,   /* an interrupt ended the wait */
	CAPTURE_WAKER_OTHER,  /* the waker is not one of the selected processes and threads */
	CAPTURE_WAKER_SHORT,  /* the wait was shorter than waker_min_ns until then */
	CAPTURE_WAKER_FULL,   /* the ring had no room */
	CAPTURE_WAKER_UNREADABLE,
};

/* The wait that a captured thread ended. */
struct capture_woken {
	__u32 tid; /* these two as in struct capture_wake */
	__u32 reserved;
	__u64 since_ns;
};

/* An entry of the table of waiting threads. The key is the tid. */
struct capture_waiting {
	struct capture_wake wake; /* as far as it is known */
	__u64 ran_ns;		  /* CPU time of the thread until then (sum_exec_runtime) */
	__u32 site;		  /* as in struct capture_wait_slot */
	/* If the wait takes so many microseconds (of 1,024 ns), it stands only for itself; 0: always. */
	__u32 limit_us;
};

/*
 * What is known of a thread that began to wait, captured or not. Threads share CAPTURE_WAIT_SLOTS
 * slots by their tids; the newest has the slot. So a slot of another thread says nothing.
 */
struct capture_wait_slot {
	__u32 tid;
	__u32 site;	/* index of the place where it waits, among struct capture_wait_site */
	__u64 since_ns; /* when the wait began; 0: the thread does not wait */
	__u64 woken_ns; /* when it was woken, if it is not captured and limit_us is set; 0: not yet */
	__u32 n;	/* as in struct capture_wake: 1 / the chance to be captured */
	__u32 limit_us; /* as in struct capture_waiting */
	__u64 captured; /* 1: it is in the table of waiting threads */
};

/* What is known of the waits at one place (system call instruction) of one thread. */
struct capture_wait_site {
	__u32 tag;	/* of the place; another one may have had the entry before */
	__u32 usual_us; /* how long waits take; 0: not known */
	/* Waits that are counted with the next one that is captured; see struct capture_wake. */
	__u64 others, others_blocked_ns, others_runnable_ns;
};

/*
 * Which waits are captured on one CPU. Waits are told apart by how long those at the same place
 * took before: 2^i microseconds (of 1,024 ns) for bucket i. Of a bucket below level, one wait in
 * 2^(level - i) is captured, and stands for so many.
 */
struct capture_wait_pace {
	__u64 since_ns; /* when the current second began; CLOCK_MONOTONIC */
	__u64 captured; /* in the current second */
	__u64 raise;	/* raise level when captured reaches this */
	__u64 level;
	__u64 begun[CAPTURE_WAIT_BUCKETS]; /* in the current second, by bucket */
	/* Of n waits in a row of a bucket, one is captured, at random: pick. left are still to come. */
	struct {
		__u32 n, left, pick, reserved;
	} rows[CAPTURE_WAIT_BUCKETS];
};

/* The allocation that a sample captured. */
struct capture_alloc {
	__u64 id; /* unique in this recording; never 0 */
	__u64 size;
	/* The key in the table of live memory; both are 0 if that table was full. */
	__u64 space, addr;
};

/* A separate record in the ring: memory is freed whose allocation was captured. */
struct capture_free {
	__u32 magic; /* CAPTURE_FREE_MAGIC */
	__u32 pid;
	__u64 id;    /* as in capture_alloc */
	__u64 bytes; /* less than the allocation's size if only its beginning was freed */
	__u64 time_ns;
};

/*
 * A separate record in the ring: a cgroup is new. The agent answers with CAPTURE_CGROUP_WANTED or
 * CAPTURE_CGROUP_OTHER in the table of cgroups, or removes the entry: then it is asked again.
 */
struct capture_question {
	__u32 magic; /* CAPTURE_QUESTION_MAGIC */
	__u32 reserved;
	__u64 cgroup_id;
};

/*
 * What is known of a cgroup: the value in the table of cgroups, whose key is the id. The cgroups
 * below one that is wanted are wanted, too.
 */
enum capture_cgroup { CAPTURE_CGROUP_ASKED, CAPTURE_CGROUP_WANTED, CAPTURE_CGROUP_OTHER };

/*
 * Key of the table of live memory: captured allocations that were not freed yet. space stands for
 * one address space, not for one process. Children that share the address space (CLONE_VM) free the
 * same memory; children with a copy of it do not.
 */
struct capture_live_key {
	__u64 space, addr;
};

/* An entry of the table of live memory. */
struct capture_live {
	__u64 id, size;
	__u32 pid, reserved;
};

/*
 * The functions of an allocator, by the meaning of their parameters. Used as cookies of the probes.
 */
enum capture_alloc_function {
	CAPTURE_ALLOC_MALLOC,
	CAPTURE_ALLOC_CALLOC,
	CAPTURE_ALLOC_REALLOC,
	CAPTURE_ALLOC_MEMALIGN,
	CAPTURE_ALLOC_POSIX_MEMALIGN,
	CAPTURE_ALLOC_MMAP,
	CAPTURE_ALLOC_MREMAP,
	CAPTURE_ALLOC_FREE, /* this one and the following free memory */
	CAPTURE_ALLOC_MUNMAP,
};

/*
 * Counters of one CPU: first those of events, then those of wakers whose stacks are to be captured,
 * each of which counts as one that fires. Each event that fires is counted in fired and in exactly one of filtered_*,
 * captured, ring_full and unreadable, so fired is their sum.
 */
struct capture_counters {
	__u64 fired;
	__u64 filtered_idle;	/* the idle thread */
	__u64 filtered_self;	/* the agent's own threads */
	__u64 filtered_process; /* not one of the selected processes and threads */
	__u64 filtered_other;	/* not of a selected name, user or CPU */
	__u64 filtered_cgroup;	/* not in a selected cgroup */
	__u64 filtered_period;	/* skipped, because only one in so many is sampled */
	__u64 filtered_failed;	/* an allocation that was due for capture, but failed */
	__u64 captured;		/* written to the ring */
	__u64 ring_full;	/* the ring had no room */
	__u64 unreadable;	/* registers could not be read, or no scratch buffer was free */
	/* Of the captured records: */
	__u64 cut;	  /* CAPTURE_CUT */
	__u64 holes;	  /* CAPTURE_HOLES */
	__u64 bytes;	  /* written to the ring */
	__u64 program_ns; /* time in which records were made, also those for which there was no room */
	/* How the end of the stack was found; see enum capture_flag: */
	__u64 top_cached, top_start, top_tls, top_go, top_signal, top_vma, top_none;
	__u64 find_vma;	       /* calls of bpf_find_vma */
	__u64 pids_overflow;   /* children not followed, because the table of processes was full */
	__u64 off_cpu;	       /* threads that began to wait and passed the filters */
	__u64 off_cpu_skipped; /* of these, not captured, because others stand for them */
	__u64 wakes_unseen;    /* wait ends noticed only when the thread left its CPU again */
	__u64 wakes_lost;      /* struct capture_wake not written, because the ring was full */
	__u64 frees;	       /* struct capture_free written to the ring */
	__u64 frees_lost;      /* struct capture_free not written, because the ring was full */
	__u64 untracked; /* captured allocations not in the table of live memory: it was full */
};

/* The two counters of a CPU. */
enum capture_counts { CAPTURE_COUNTS_EVENTS, CAPTURE_COUNTS_WAKERS, CAPTURE_COUNTS };

/* The filters of a recording. A sample must pass every filter that is set. */
enum capture_filter {
	CAPTURE_FILTER_TASK = 1 << 0, /* its process or thread is in the tables of those */
	CAPTURE_FILTER_COMM = 1 << 1, /* the thread's name */
	CAPTURE_FILTER_UID = 1 << 2,  /* real user ID, in the initial user namespace */
	CAPTURE_FILTER_CGROUP = 1 << 3,
	CAPTURE_FILTER_CPU = 1 << 4,
};

/*
 * How often an event occurred on one CPU, and when to sample it next. A sample stands for all
 * occurrences since the previous sample. If the BPF program sees every occurrence (paced events),
 * these are the occurrences in the selected processes; otherwise they are the occurrences in all
 * processes.
 */
struct capture_pace {
	__u64 hits;	/* occurrences since the last sample */
	__u64 due;	/* take the next sample when hits reaches this */
	__u64 interval; /* mean of due */
	__u64 since_ns; /* when the current second began; CLOCK_MONOTONIC */
	__u64 second;	/* occurrences in the current second */
	__u64 samples;	/* samples at this interval in the current second */
	__u64 counted;	/* occurrences since the recording began */
};

/* An entry of the table of selected processes. The key is the pid. */
struct capture_process {
	__u64 start_ns; /* CLOCK_BOOTTIME; 0: any process that has this pid now */
	__u32 dead;	/* the last thread has ended */
	__u32 reserved;
};

/*
 * The buffers in which the programs put records together. The kinds of programs have buffers of
 * their own, because one kind may interrupt another on the same CPU. Buffer number kind * n + cpu
 * serves a CPU, where n CPUs have buffers.
 */
enum capture_scratch { CAPTURE_SCRATCH_EVENT, CAPTURE_SCRATCH_SWITCH, CAPTURE_SCRATCH_PROBE };

/*
 * Facts about a thread that are looked up once and cached in task storage. [lo, hi) contains sp; hi
 * is the end of the live stack. For a stack that is not the thread's own (a coroutine's),
 * [other_lo, other_hi) is the VMA that contains sp. The mappings may change without notice. Then a
 * copy is a little too long or too short, which the holes and the cut flag show.
 */
struct capture_top {
	__u64 lo, hi;
	__u64 other_lo, other_hi;
	__u64 process_start_ns; /* 0: not looked up yet */
	__u64 mm;		/* address of the mm_struct; exec gives the thread another */
	__u64 start_stack;	/* the new mm_struct may have the old one's address */
	__u32 ns_pid;
	__u16 go;      /* the thread ran a goroutine: try the goroutine's bounds first */
	__u16 changed; /* in the scratch buffer only: modified since it was copied there */
};

/*
 * The beginning of a scratch buffer. The rest of the record follows: at most stack_max bytes of the
 * stack, and CAPTURE_SCRATCH_TAIL bytes for the second stack, the parts after it and the slices. The
 * verifier may check the last part of a copy as a whole page, so the tail has one page more for each.
 *
 * The program works on top, a copy of what is cached for the thread. The pointer into the scratch
 * buffer is the same whether something was cached or not, so the verifier checks the code that
 * follows once.
 */
struct capture_front {
	struct plan_run run; /* first, so that programs need one pointer for both */
	struct capture_holes holes;
	struct capture_top top;
	struct capture_head head; /* the record begins here */
};

#define CAPTURE_FRONT_SIZE 17872u
#define CAPTURE_SCRATCH_TAIL \
	(CAPTURE_INTERRUPTED_MAX + CAPTURE_PAGE + PLAN_BYTES_MAX + CAPTURE_PAGE)
#define CAPTURE_SCRATCH_SIZE(stack_max) (CAPTURE_FRONT_SIZE + (stack_max) + CAPTURE_SCRATCH_TAIL)

_Static_assert(sizeof(struct capture_head) == CAPTURE_HEAD_SIZE, "the head has no padding");
_Static_assert(__builtin_offsetof(struct capture_head, time_ns) == 32, "u64 fields from 32");
_Static_assert(__builtin_offsetof(struct capture_head, regs) == 64, "regs");
_Static_assert(__builtin_offsetof(struct capture_head, comm) == 200, "comm");
_Static_assert(CAPTURE_CPUS_MAX <= 1 << 16 && CAPTURE_EVENTS_MAX <= 1 << 16, "they fit the head");
_Static_assert(CAPTURE_WAKER < 1 << 16, "flags fit the head");
_Static_assert(sizeof(struct capture_holes) == 40, "no padding");
_Static_assert(CAPTURE_HEAD_SIZE % 8 == 0, "stack bytes begin aligned");
_Static_assert((CAPTURE_STACK_LIMIT + CAPTURE_PAGE - 1) / CAPTURE_PAGE + 1 <= CAPTURE_PAGES_MAX,
	       "every page has a bit");
_Static_assert(CAPTURE_PAGES_MAX <= CAPTURE_HOLE_WORDS * 64, "every page has a bit");
_Static_assert(CAPTURE_KERNEL_MAX == CAPTURE_KERNEL_FRAMES * 8, "whole addresses");
_Static_assert(sizeof(struct capture_wake) == 104, "no padding; no other record has this size");
_Static_assert(sizeof(struct capture_waiting) == 120, "the same on both sides");
_Static_assert(sizeof(struct capture_wait_slot) == 40, "the same on both sides");
_Static_assert(sizeof(struct capture_wait_site) == 32, "the same on both sides");
_Static_assert(sizeof(struct capture_alloc) == 32, "no padding");
_Static_assert(sizeof(struct capture_woken) == 16, "no padding");
_Static_assert(sizeof(struct capture_free) == 32, "no padding");
_Static_assert(sizeof(struct capture_question) == 16, "no padding; no other record has this size");
_Static_assert(sizeof(struct capture_live) == 24, "the same on both sides");
_Static_assert(sizeof(struct capture_process) == 16, "the same on both sides");
_Static_assert(sizeof(struct capture_front) == CAPTURE_FRONT_SIZE, "the stack begins behind it");
_Static_assert(__builtin_offsetof(struct capture_front, head) % 8 == 0, "the record is aligned");
_Static_assert(CAPTURE_PAGE >= 24 + CAPTURE_KERNEL_MAX + sizeof(struct capture_holes) +
				       sizeof(struct capture_alloc) + sizeof(struct capture_woken),
	       "what follows the stacks lies in the tail, too");

#endif

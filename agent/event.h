/*
 * agent/event.h: the events that every source produces and that the rest of the agent consumes.
 *
 * A source (agent/source/source.h) turns its input into these events and returns them in the order
 * of their times. Pointers inside an event are borrowed from the source until its next call.
 */
#ifndef AGENT_EVENT_H
#define AGENT_EVENT_H

#include "schema/plan.h"
#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum event_type {
	EVENT_MAPPING, /* a new mapping; it replaces what it overlaps */
	EVENT_EXEC,    /* the process has a new image: all its mappings are gone */
	EVENT_FORK,    /* a new process (inherits mappings) or a new thread (shares them) */
	EVENT_EXIT,    /* a thread ended; the process ends with its last thread */
	EVENT_COMM,    /* a thread's name changed */
	EVENT_SAMPLE,
	EVENT_WAKER, /* the stack of a thread that woke another one; comes before the wait's sample */
	EVENT_CGROUP,	 /* the path of a cgroup; comes before the cgroup's samples */
	EVENT_FREED,	 /* memory of a sampled allocation was freed */
	EVENT_GENERATED, /* all that a process has registered now for code it generated */
	EVENT_MEMORY,	 /* memory of a process that leads to the names of interpreted code */
	EVENT_LOST,	 /* samples or side-band records that did not arrive */
	EVENT_CHANGED,	 /* from here on a live recording has another rate or other filters */
};

#define EVENT_PID_KERNEL UINT32_MAX /* pid of the kernel's own mappings, as in perf.data */

struct event_mapping {
	uint64_t start, end, off; /* off: in the file; for the kernel's own text see source_info */
	uint32_t prot;		  /* PROT_*; PROT_READ | PROT_EXEC if the source does not know it */
	uint32_t major, minor;	  /* device and inode as the process saw them; 0: not known */
	uint64_t inode, inode_generation;
	struct uw_build_id build_id; /* as the kernel read it at mapping time; size 0: not known */
	const char *path; /* in the process's mount namespace; "" or "//anon": anonymous */
	bool deleted; /* the kernel reported a deleted file; path has no " (deleted)" any more */
	bool file;    /* path names a file although it does not begin with a slash */
	bool main_program; /* the mapping is of the program that was executed */
	/*
	 * File offset at which the ELF image begins, or an offset up to 64 MiB after that
	 * beginning. Used only if the file itself is no ELF file, that is, for archives.
	 */
	uint64_t elf_off;
	/*
	 * The file tree that the process sees (opener_view in agent/opener/opener.h), if the source has
	 * looked already.
	 */
	uint64_t view;
	bool has_view;
	/* The source's copy of the mapped bytes if no file holds them ([vdso]); else NULL. */
	const uint8_t *image;
	uint64_t image_size;
};

struct event_fork {
	uint32_t parent_pid, parent_tid;
};

struct event_comm {
	const char *comm;
};

struct event_cgroup {
	uint64_t id;	  /* as in event_sample.cgroup_id */
	const char *path; /* from the root of the cgroup2 hierarchy, which is "/" */
};

/*
 * The allocation that a sample stands for. Allocations are sampled at random, large ones with a
 * higher probability: the sample stands for objects / EVENT_OBJECT allocations of its size.
 */
#define EVENT_OBJECT 65536u
struct event_alloc {
	uint64_t id; /* unique in the recording; 0: the sample is no allocation */
	uint64_t size;
	uint64_t objects;
	bool tracked; /* an EVENT_FREED follows when the memory is freed */
};

/*
 * Return how many allocated bytes are represented by this number of bytes of the sampled
 * allocation.
 */
static inline uint64_t event_alloc_bytes(const struct event_alloc *alloc, uint64_t bytes)
{
	return (uint64_t)((unsigned __int128)bytes * alloc->objects / EVENT_OBJECT);
}

/*
 * The wait that a sample stands for, and others like it. The sample's period is the whole time until
 * the thread ran again.
 */
struct event_wait {
	uint64_t n;	   /* how many waits; 0: the sample is no wait, or nothing is known of it */
	uint64_t runnable; /* the part of the period after the thread was woken */
	uint32_t waker_pid, waker_tid; /* who woke it; 0: an interrupt, or not known */
	const char *waker;   /* the name of that thread, or EVENT_INTERRUPT; NULL: not known */
	uint8_t waker_stack; /* enum event_waker_stack */
	/* Of EVENT_WAKER_SENT, and of the EVENT_WAKER itself: unique in the recording. */
	uint64_t id;
};
#define EVENT_INTERRUPT "[interrupt]"

/* Whether there is a stack of the thread that ended a wait, and why not. */
enum event_waker_stack {
	EVENT_WAKER_NOT_ASKED,
	EVENT_WAKER_SENT,      /* an EVENT_WAKER with the same id came before */
	EVENT_WAKER_INTERRUPT, /* no thread ended it */
	EVENT_WAKER_UNSEEN, /* it was not seen who ended it, or nobody had when recording ended */
	EVENT_WAKER_NOT_SELECTED, /* only certain processes are recorded, and its is not one of them */
	EVENT_WAKER_TOO_SHORT,	  /* until then the wait was too short to be recorded */
	EVENT_WAKER_LOST,	  /* the kernel or the agent had no room */
	EVENT_WAKER_UNREADABLE, /* its registers could not be copied */
	EVENT_WAKER_N
};

/* Return the word for a stack that is not there, e.g. "lost". The string is static. */
const char *event_waker_name(enum event_waker_stack stack);

struct event_freed {
	uint64_t id;
	uint64_t bytes; /* freed bytes; if less than event_alloc.size, the rest stays allocated */
};

struct event_generated {
	const void *bytes; /* schema/dynamic_blob.h */
	size_t size;
};

/* Pieces, one after another: address and size, u64 each, then the bytes. */
struct event_memory {
	const void *bytes;
	size_t size;
};

struct event_sample {
	/*
	 * Between the processes of a recording: a record of the kernel (schema/capture.h), mostly in its ring, for the one that
	 * takes the event to decode. Then nothing else of the sample is set. NULL elsewhere.
	 */
	const void *record;
	uint16_t event; /* index in source_info.events */
	uint32_t cpu;
	uint64_t period; /* in the event's own unit (cpu-clock: ns); at least 1 */
	bool has_user_regs;
	/*
	 * 32-bit code: eight registers and pc, by their x86-64 numbers; such stacks are not
	 * walked.
	 */
	bool compat;
	bool stack_cut; /* the live stack was longer than the copy */
	struct uw_regs regs;
	uint64_t code_mask;		 /* see struct uw_thread; 0: not known */
	uint64_t thread_pointer;	 /* fsbase; of a thread in a core. 0: not known */
	const struct uw_region *regions; /* captured user memory; ranges do not overlap */
	uint32_t n_regions;
	/*
	 * Captured memory of interpreters, for agent/runtime; in the order in which it was copied. Ranges may
	 * overlap.
	 */
	const struct uw_region *slices;
	uint32_t n_slices;
	uint8_t slices_end; /* enum plan_end: why there are no more of them */
	uw_read_fn read;    /* reads other memory of the process, after regions; NULL: none */
	void *read_ctx;
	const char *name; /* the sample's own name, for tables; NULL: use its number */
	uint32_t n_kernel_ips;
	const uint64_t *kernel_ips; /* innermost first; all but the first are return addresses */
	/*
	 * The stack as the recorder walked it by frame pointers, innermost first. Used only if the
	 * sample holds nothing better.
	 */
	uint32_t n_user_ips;
	const uint64_t *user_ips;
	uint64_t cgroup_id; /* 0: not known */
	bool has_uid;	    /* uid is known: the real user id, in the initial user namespace */
	uint32_t uid;
	uint32_t ns_pid; /* the process id in its own pid namespace; 0: not known */
	struct event_alloc alloc;
	struct event_wait wait;
	/*
	 * Start time since boot of the process; 0: not known. Together, pid and start time are
	 * unique until the next boot.
	 */
	uint64_t process_start_ns;
};

enum event_lost_reason {
	/* The kernel had no room: its ring buffer, or its table of waits, was full. */
	EVENT_LOST_RING_FULL,
	EVENT_LOST_UNREADABLE,	/* registers or stack could not be copied */
	EVENT_LOST_DAMAGED,	/* the record arrived incomplete or inconsistent */
	EVENT_LOST_UNSUPPORTED, /* valid, but of a kind that offwind cannot walk */
	/* The end of a thread's wait was lost, so that its duration is not known. */
	EVENT_LOST_WAIT_END,
	EVENT_LOST_NOT_WRITTEN, /* the capture file could not be written */
	EVENT_LOST_CRASHED,	/* walking it ended the worker */
	EVENT_LOST_N
};

/* Return the reason's name in messages, e.g. "ring_full". The string is static. */
const char *event_lost_name(enum event_lost_reason reason);

struct event_lost {
	enum event_lost_reason reason;
	uint64_t n_samples;  /* exact number of lost samples */
	uint64_t n_sideband; /* lost mapping, fork, … records: names may be missing later */
};

struct event {
	enum event_type type;
	uint32_t pid, tid; /* pid: the process (thread group) */
	uint64_t time_ns;  /* as the source stamped it; each source uses one clock */
	union {
		struct event_mapping mapping;
		struct event_fork fork;
		struct event_comm comm;
		struct event_cgroup cgroup;
		struct event_freed freed;
		struct event_generated generated;
		struct event_memory memory;
		struct event_sample sample; /* also of EVENT_WAKER, whose period says nothing */
		struct event_lost lost;
	};
};

/*
 * Return the bytes of an event, from its beginning, that its type uses: most are far smaller than one of a sample. What it
 * points to is not counted.
 */
size_t event_size(const struct event *event);

#endif

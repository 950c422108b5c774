/*
 * agent/event.h: the one stream that every source gives and everything after it takes.
 *
 * A source turns what it reads into these events, in the order of their times.
 * Pointers inside an event are borrowed until the next call of the source.
 */
#ifndef AGENT_EVENT_H
#define AGENT_EVENT_H

#include "unwinder/unwinder.h"

#include <stdbool.h>
#include <stdint.h>

enum event_type {
	EVENT_MAPPING, /* a mapping appeared; it replaces what it overlaps */
	EVENT_EXEC,    /* the process has a new image: all mappings are gone */
	EVENT_FORK,    /* a new process (inherits mappings) or a new thread (shares them) */
	EVENT_EXIT,    /* a thread ended; the process with its last one */
	EVENT_COMM,    /* a thread's name changed */
	EVENT_SAMPLE,
	EVENT_CGROUP,	 /* the path of a cgroup, before its samples */
	EVENT_FREED,	 /* memory is given back whose allocation was a sample */
	EVENT_GENERATED, /* what a process has registered of code it generated: all of it, anew */
	EVENT_LOST,	 /* samples or side-band records that never arrived */
};

#define EVENT_PID_KERNEL UINT32_MAX /* pid of the kernel's own mappings, as in perf.data */

struct event_mapping {
	uint64_t start, end, off; /* off: in the file; the kernel's own text: see source_info */
	uint32_t prot;		  /* PROT_*; sources that are not told set PROT_READ | PROT_EXEC */
	uint32_t major, minor;	  /* device and inode as the process saw them; 0: not told */
	uint64_t inode, inode_generation;
	struct uw_build_id build_id; /* as the kernel read it at mapping time; size 0: not told */
	const char *path;  /* in the process's mount namespace; "" or "//anon": anonymous */
	bool deleted;	   /* the kernel said so; path has no " (deleted)" left */
	bool file;	   /* path names a file though it does not begin with a slash */
	bool main_program; /* of the file that was executed */
	/*
	 * Where in the file its ELF image begins, or no more than pages behind that; counts only
	 * where the file does not begin with one: archives.
	 */
	uint64_t elf_off;
	/* The source's own image of the bytes, where no file has them ([vdso]); else NULL. */
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
	uint64_t id;	  /* as in event_sample */
	const char *path; /* from the root of the cgroup2 hierarchy, which is "/" */
};

/*
 * Of a sample that is an allocation.  One in so many was captured, more likely a
 * large one: it stands for objects / EVENT_OBJECT allocations of its size.
 */
#define EVENT_OBJECT 65536u
struct event_alloc {
	uint64_t id; /* of the recording; 0: the sample is none */
	uint64_t size;
	uint64_t objects;
	bool tracked; /* EVENT_FREED will tell when it is given back */
};

/* What bytes of it stand for. */
static inline uint64_t event_alloc_bytes(const struct event_alloc *alloc, uint64_t bytes)
{
	return (uint64_t)((unsigned __int128)bytes * alloc->objects / EVENT_OBJECT);
}

struct event_freed {
	uint64_t id;
	uint64_t bytes; /* of its size; less than all of it: the rest stays */
};

struct event_generated {
	const void *bytes; /* schema/dynamic.h */
	size_t size;
};

struct event_sample {
	uint16_t event; /* index in source_info.events */
	uint32_t cpu;
	uint64_t period; /* in the event's own unit (cpu-clock: ns); at least 1 */
	bool has_user_regs;
	bool compat; /* 32-bit code: its eight registers and pc, by their x86-64 numbers; not walked yet */
	bool stack_cut; /* the live stack was longer than what was copied */
	struct uw_regs regs;
	uint64_t code_mask;		 /* see struct uw_thread; 0: not told */
	const struct uw_region *regions; /* user memory, not overlapping */
	uint32_t n_regions;
	uw_read_fn read; /* more of the process's memory, asked after regions; NULL: none */
	void *read_ctx;
	const char *name; /* the sample's own, for tables; NULL: its number serves */
	uint32_t n_kernel_ips;
	const uint64_t *kernel_ips; /* innermost first; all but the first are return addresses */
	/* The recorder's own walk, by frame pointers, innermost first; for want of anything better. */
	uint32_t n_user_ips;
	const uint64_t *user_ips;
	uint64_t cgroup_id; /* 0: not told */
	uint32_t ns_pid;    /* the process as its own pid namespace numbers it; 0: not told */
	struct event_alloc alloc;
	uint64_t process_start_ns; /* since the machine started; with pid it names a process for
				       good; 0: not told */
};

enum event_lost_reason {
	EVENT_LOST_RING_FULL,	/* the kernel had no room */
	EVENT_LOST_UNREADABLE,	/* registers or stack could not be copied */
	EVENT_LOST_DAMAGED,	/* the record arrived torn */
	EVENT_LOST_UNSUPPORTED, /* sound, but of a kind nothing here can walk */
	EVENT_LOST_WAIT_END,	/* a thread that waited, nobody knows for how long */
	EVENT_LOST_NOT_WRITTEN, /* the capture file could not be written */
	EVENT_LOST_N
};

const char *event_lost_name(enum event_lost_reason reason);

struct event_lost {
	enum event_lost_reason reason;
	uint64_t n_samples;  /* samples lost, exactly */
	uint64_t n_sideband; /* mapping, fork, … records lost: names may be missing later */
};

struct event {
	enum event_type type;
	uint32_t pid, tid; /* pid: the process (thread group) */
	uint64_t time_ns;  /* as the source stamped it; one clock a source */
	union {
		struct event_mapping mapping;
		struct event_fork fork;
		struct event_comm comm;
		struct event_cgroup cgroup;
		struct event_freed freed;
		struct event_generated generated;
		struct event_sample sample;
		struct event_lost lost;
	};
};

#endif

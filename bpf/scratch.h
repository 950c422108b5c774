/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bpf/scratch.h: the scratch buffers in which the programs put records together, one for each CPU
 * and each kind of program.
 */
#ifndef BPF_SCRATCH_H
#define BPF_SCRATCH_H

#include "bpf/shared.h"

/*
 * The scratch buffer of one CPU: a struct front, then the record. The record has room for stack_max
 * bytes of the stack, the second stack, and the parts after it. The verifier may check the last
 * part of a copy as a whole page, so the tail has one page more.
 */
#define SCRATCH_FRONT 104u
#define SCRATCH_HEAD  (SCRATCH_FRONT + CAPTURE_HEAD_SIZE)
#define SCRATCH_TAIL  (CAPTURE_INTERRUPTED_MAX + CAPTURE_PAGE)
/* Both stacks, and the address of the second. */
#define STACKS_MAX (stack_max + CAPTURE_INTERRUPTED_MAX + 24)
_Static_assert(CAPTURE_PAGE >= 24 + CAPTURE_KERNEL_MAX + sizeof(struct capture_holes) +
				       sizeof(struct capture_alloc),
	       "what follows the stacks lies in the tail, too");

/*
 * One scratch buffer for each CPU and each kind of program in use. This is not a per-CPU map,
 * because the values of a per-CPU map are limited to 32 KiB. The agent sets value_size and
 * max_entries from stack_max, the number of CPUs and the events.
 */
enum scratch_kind { SCRATCH_EVENT, SCRATCH_SWITCH, SCRATCH_PROBE };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, SCRATCH_HEAD + CAPTURE_STACK_DEFAULT + SCRATCH_TAIL);
} scratch SEC(".maps");

/*
 * Facts about a thread that are looked up once and cached in task storage. [lo, hi) contains sp; hi
 * is the end of the live stack. For a stack that is not the thread's own (a coroutine's),
 * [other_lo, other_hi) is the VMA that contains sp. The mappings may change without notice. Then a
 * copy is a little too long or too short, which the holes and the cut flag show.
 */
struct top {
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
 * The beginning of a scratch buffer. The program works on this copy of the thread's struct top. The
 * pointer into the scratch buffer is the same whether the thread had a struct top or not, so the
 * verifier checks the code that follows once.
 */
struct front {
	struct capture_holes holes;
	struct top top;
};
_Static_assert(sizeof(struct front) == SCRATCH_FRONT, "the record begins behind it");

/*
 * The number of programs on probes that want the scratch buffer of their CPU. At most one of them
 * uses it; see probe_begins.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} probing SEC(".maps");

/*
 * Reserve this CPU's scratch buffer of the probes. Return the counter for probe_ends, or NULL,
 * counted as unreadable, if the buffer is in use. If two programs begin at the same time, both may
 * fail, but they never both succeed. (An atomic exchange or fetch-and-add needs Linux 5.12.)
 */
static __always_inline __u32 *probe_begins(struct capture_counters *count)
{
	__u32 zero = 0, *busy = bpf_map_lookup_elem(&probing, &zero);

	if (busy) {
		__sync_fetch_and_add(busy, 1);
		if (*(volatile __u32 *)busy == 1)
			return busy;
		__sync_fetch_and_add(busy, -1);
	}
	add(&count->unreadable, 1);
	return NULL;
}

/* Release the scratch buffer that probe_begins reserved. */
static __always_inline void probe_ends(__u32 *busy)
{
	__sync_fetch_and_add(busy, -1);
}

#endif
